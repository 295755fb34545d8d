"""Functions with which a repro starts besides ``main``: watch a process, search a compiler's layers, repeat runs."""

from typing import Final

#: For crashes and hangs: the candidate runs in a process of its own.
WATCH: Final = """RETURNED = "the candidate returned"
TIMEOUT_S = %(timeout_s)s


def watched():
    \"\"\"Run this script in a process of its own; return 1 if that process crashes or hangs.\"\"\"
    import os
    import signal
    import subprocess
    import tempfile
    import time

    if os.environ.get("REPRO_WATCHED"):
        print("imported", flush=True)
        status = main()
        print(RETURNED, flush=True)
        return status
    # Output goes to a file, because a grandchild could keep a pipe open. The group lets grandchildren be killed too.
    with tempfile.TemporaryFile("w+", errors="replace") as output:
        child = subprocess.Popen(
            [sys.executable, str(Path(__file__).resolve())],
            env={**os.environ, "REPRO_WATCHED": "1", "PYTHONPATH": os.pathsep.join(sys.path)}, stdout=output, stderr=output, start_new_session=True,
        )
        until = time.monotonic() + 300
        while child.poll() is None and not os.fstat(output.fileno()).st_size and time.monotonic() < until:
            time.sleep(0.05)  # Imports are no part of the time that a candidate has.
        try:
            status = child.wait(TIMEOUT_S)
        except subprocess.TimeoutExpired:
            status = None
        try:
            os.killpg(child.pid, signal.SIGKILL)
        except OSError:
            pass
        child.wait()
        output.seek(0)
        printed = output.read()
    print(printed, end="")
    if status is None:
        print(f"misaligned: the candidate did not return within {TIMEOUT_S} s")
        return 1
    if RETURNED not in printed and status != 2:
        print(f"misaligned: the candidate ended its process with status {status}")
        return 1
    return status"""

#: For a compiler: find the first of its layers that differs, as its maintainers ask for in reports.
#: Source: pytorch/pytorch .github/ISSUE_TEMPLATE/pt2-bug-report.yml.
LAYERS: Final = """LAYERS = {"eager": "dynamo", "aot_eager": "aot_autograd", "inductor": "inductor"}


def ablation(%(takes)s):
    \"\"\"Compile with one layer more each time, and name the first that differs from eager.\"\"\"
    print("ablation:")
    for compiler, layer in LAYERS.items():
        torch._dynamo.reset()
        options = OPTIONS if compiler == "inductor" else {}
        try:
            %(found)s = run(torch.compile(reference, **{**options, "backend": compiler}))
            wrong = [apart(a, b) for i, (a, b) in enumerate(zip(found, outputs)) if i not in INDICES]
%(gradients)s            own = [[flags_of(one).get(name) for name in ("requires_grad", "is_leaf")] for one in (*found, *outputs)]
            wrong += [a != b for a, b in zip(own, own[len(found) :])]
            verdict = "misaligned" if any(wrong) else "aligned"
        except Exception as error:
            verdict = f"raises {type(error).__name__}"
        print(f"  backend={compiler!r}: {verdict}")
        if verdict != "aligned":
%(kernel)s            print(f"the layer at fault is {layer}%(or_kernel)s")
            return


OPTIONS = %(options)s
INDICES = %(indices)s  # outputs that are not compared
torch._inductor.config.fallback_random = True  # both sides draw the same numbers"""

LAYER_GRADIENTS: Final = """            wrong += [apart(found_gradients.get(name), gradients[name]) for name in gradients]
"""
LAYER_KERNEL: Final = """            own = f", or a kernel of {DEVICE}" if compiler == "eager" and DEVICE.type != "cpu" else ""
"""

#: For nondeterminism: repeat the candidate on the same inputs. All results are kept alive, because the memory of an
#: earlier one would contain the right numbers even where the kernel writes nothing.
REPEATED: Final = '''def repeated():
    """Run the candidate fifty times on the same inputs; return 1 if a run differs from the first."""
    print(f"found before: {__doc__.strip().splitlines()[0]}")
    seen = []
    for number in range(50):
        if seen:
            written_to(seen[0], number)
        try:
            %(outputs)s = run(candidate)
            seen.append(%(results)s)
        except Exception as error:
            seen.append([f"{type(error).__name__}: {error}"])
        if len(seen[-1]) != len(seen[0]) or any(map(apart, seen[-1], seen[0])):
            print(f"misaligned: run {len(seen)} of the candidate differs from its first on the same inputs")
            return 1
    print("aligned: fifty runs of the candidate are the same")
    return 0


def written_to(results, number):
    """Write a number to memory of the results' sizes and free it: a kernel that leaves memory unwritten shows it."""
    tensors = [item for item in results if isinstance(item, torch.Tensor) and item.layout == torch.strided and item.numel()]
    room = (1 << 25) // max(len(tensors), 1)  # bytes
    blocks = [item for item in tensors for _ in range(max(1, min(8, room // item.nbytes)))]
    held = [torch.full_like(item, number, requires_grad=False) for item in blocks]
    del held'''
