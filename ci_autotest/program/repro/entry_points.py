"""What a repro does besides comparing once: watch a process that may hang, bisect a compiler, run again."""

from typing import Final

#: For a device: seen with torch 2.13, its threads of autograd may abort a process that ends as Python does.
LEAVE: Final = """try:
        torch.ones(1).to(DEVICE).cpu()
    except Exception as error:
        print(f"cannot run: device {{DEVICE}} cannot be used here ({{type(error).__name__}}: {{error}})")
        sys.exit(2)
    status = ended({entry}())
    sys.stdout.flush()
    os._exit(status)  # an accelerator's threads may abort a process that ends in the usual way
"""

#: For what ends or hangs its process: the candidate runs in a process of its own.
WATCH: Final = """
RETURNED = "the candidate returned"
TIMEOUT_S = {timeout_s}


def watched():
    \"\"\"Run this script again in a process of its own, and say how that process ends.\"\"\"
    import os
    import signal
    import subprocess
    import tempfile

    if os.environ.get("REPRO_WATCHED"):
        status = main()
        print(RETURNED, flush=True)
        return status
    # Its output goes to a file and it leads a group of its own: what it starts cannot hold a pipe, and is ended with it.
    with tempfile.TemporaryFile("w+", errors="replace") as output:
        child = subprocess.Popen(
            [sys.executable, str(Path(__file__).resolve())],
            env={{**os.environ, "REPRO_WATCHED": "1", "PYTHONPATH": os.pathsep.join(sys.path)}}, stdout=output, stderr=output, start_new_session=True,
        )
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
        said = output.read()
    print(said, end="")
    if status is None:
        print(f"misaligned: the candidate did not return within {{TIMEOUT_S}} s")
        return 1
    if RETURNED not in said and status != 2:
        print(f"misaligned: the candidate ended its process with status {{status}}")
        return 1
    return status

"""

#: For a compiler: which of its layers is the first to differ, as its maintainers ask of a report.
#: Source: pytorch/pytorch .github/ISSUE_TEMPLATE/pt2-bug-report.yml.
LAYERS: Final = """
LAYERS = {{"eager": "dynamo", "aot_eager": "aot_autograd", "inductor": "inductor"}}


def ablation(outputs, gradients):
    \"\"\"Compile with one layer more each time, and name the first that differs from eager.\"\"\"
    print("ablation:")
    for compiler, layer in LAYERS.items():
        torch._dynamo.reset()
        options = OPTIONS if compiler == "inductor" else {{}}
        try:
            found, found_gradients, _, _, _ = run(torch.compile(reference, **{{**options, "backend": compiler}}))
            wrong = [apart(a, b) for i, (a, b) in enumerate(zip(found, outputs)) if i not in INDICES]
            wrong += [apart(found_gradients.get(name), gradients[name]) for name in gradients]
            own = [[flags_of(one).get(name) for name in ("requires_grad", "is_leaf")] for one in (*found, *outputs)]
            flags = [a != b for a, b in zip(own, own[len(found) :])]
            said = "misaligned" if any(wrong + flags) else "aligned"
        except Exception as error:
            said = f"raises {{type(error).__name__}}"
        print(f"  backend={{compiler!r}}: {{said}}")
        if said != "aligned":
            own = f", or a kernel of {{DEVICE}}" if compiler == "eager" and DEVICE.type != "cpu" else ""
            print(f"the layer at fault is {{layer}}{{own}}")
            return


OPTIONS = {options}
torch._inductor.config.fallback_random = True  # both sides draw the same numbers
"""

#: For what differs from itself: the candidate is run again and again on the same inputs.
REPEATED: Final = """
def repeated():
    \"\"\"Say whether the candidate differs from itself.\"\"\"
    print(f"found before: {{__doc__.strip().splitlines()[0]}}")
    seen = []
    for number in range(50):
        if seen:
            written_to([*seen[0][0], *seen[0][1].values()], number)
        try:
            outputs, gradients, _, raised, _ = run(candidate)
        except Exception as error:
            outputs, gradients, raised = (), {{}}, f"{{type(error).__name__}}: {{error}}"
        seen.append((outputs, gradients, raised))
        first = seen[0]
        if raised != first[2] or any(map(apart, outputs, first[0])) or any(apart(gradients[n], first[1].get(n)) for n in gradients):
            print(f"misaligned: run {len(seen)} of the candidate differs from its first on the same inputs")
            return 1
    print("aligned: fifty runs of the candidate are the same")
    return 0


def written_to(results, number):
    \"\"\"Leave memory of the results' sizes behind that a number was written to: what nothing writes to shows it.\"\"\"
    tensors = [item for item in results if isinstance(item, torch.Tensor) and item.layout == torch.strided and item.numel()]
    room = (1 << 25) // max(len(tensors), 1)  # bytes
    blocks = [item for item in tensors for _ in range(max(1, min(8, room // item.nbytes)))]
    held = [torch.full_like(item, number, requires_grad=False) for item in blocks]
    del held


"""
