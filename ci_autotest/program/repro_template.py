"""The text of a repro, around the program."""

from typing import Final

TEMPLATE: Final = '''"""{title}

{message}

Run it: python repro.py
Exit status: 1 while misaligned, 0 when fixed, 2 when it cannot run.
"""

import inspect
import json
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
{imports}
{reader}
device = torch.device({device})
RTOL, ATOL = {rtol}, {atol}  # |candidate - reference| <= ATOL + RTOL * |reference|
CHECK_DTYPE, STRICTNESS = {check_dtype}, {strictness!r}
SEEN_WITH = {versions}


def inputs():
{setup}


def reference({takes}):
{body}


{candidate}

# What goes into the backward pass, and what the reference gave when this was found.
COTANGENTS = {cotangents}
OUTPUTS = {outputs}
GRADIENTS = {gradients}
NAMES = {names}


def run(function):
    """Return outputs, gradients, and the inputs and states as they are afterwards."""
    given = inputs()
    leaves = {{name: value for name, value in given.items() if isinstance(value, torch.Tensor)}}
    modules = {{name: value for name, value in given.items() if isinstance(value, torch.nn.Module)}}
    parameters = {{f"{{m}}.{{n}}": p for m, module in modules.items() for n, p in module.named_parameters()}}
    outputs = function(*[given[name] for name in function_takes()])
    given_back = [(o, c) for i, o in enumerate(outputs) if (c := COTANGENTS.get(i)) is not None]
    roots = [(o, c) for o, c in given_back if isinstance(o, torch.Tensor) and o.requires_grad and o.shape == c.shape]
    wanted = {{name: value for name, value in {{**leaves, **parameters}}.items() if value.requires_grad}}
    gradients, raised = {{}}, None
    if roots and wanted:
        weights = [c.to(o.device, o.dtype) for o, c in roots]
        try:
            found = torch.autograd.grad([o for o, _ in roots], list(wanted.values()), weights, allow_unused=True)
            gradients = dict(zip(wanted, found))
        except RuntimeError as error:
            raised = f"{{type(error).__name__}}: {{error}}"
    after = {{**leaves, **{{f"{{m}}.{{n}}": v for m, module in modules.items() for n, v in module.state_dict().items()}}}}
    return outputs, gradients, after, raised


def function_takes():
    return [name for name in "{takes}".split(", ") if name]


def differs(what, candidate, expected):
    """Print how a value departs from what is expected, and say whether it does."""
    if candidate is None or expected is None:
        if candidate is not expected:
            print(f"misaligned: {{what}}: candidate {{shown(candidate)}}, reference {{shown(expected)}}")
        return candidate is not expected
    if not isinstance(expected, torch.Tensor) or not isinstance(candidate, torch.Tensor):
        return False
    if candidate.shape != expected.shape or (CHECK_DTYPE and candidate.dtype != expected.dtype):
        print(f"misaligned: {{what}}: candidate {{shown(candidate)}}, reference {{shown(expected)}}")
        return True
    wide = torch.complex128 if expected.is_complex() else torch.float64
    left, right = candidate.detach().cpu().to(wide), expected.detach().cpu().to(wide)
    bad = apart_of(left, right)
    if not bad.any():
        print(f"aligned: {{what}}")
        return False
    apart = torch.where(bad, (left - right).abs(), 0.0)
    first = tuple(bad.nonzero()[0].tolist())
    print(f"misaligned: {{what}}: {{int(bad.sum())}} / {{bad.numel()}} elements, greatest difference {{float(apart.max()):.3g}}")
    print(f"  first at {{first}}: candidate {{left[first].item()!r}}, reference {{right[first].item()!r}}")
    return True


def apart_of(left, right):
    """Return which elements are apart; a strict comparison wants every bit but a NaN's."""
    if STRICTNESS == "tolerance" or left.is_complex():
        return ~torch.isclose(left, right, rtol=RTOL, atol=ATOL, equal_nan=True)
    return ((left != right) | (torch.signbit(left) != torch.signbit(right))) & ~(left.isnan() & right.isnan())


def flags_differ(what, candidate, expected):
    left, right = ((v.requires_grad, v.is_leaf) if isinstance(v, torch.Tensor) else () for v in (candidate, expected))
    if left != right:
        print(f"misaligned: {{what}}: (requires_grad, is_leaf) is {{left}} on the candidate, {{right}} on the reference")
    return left != right


def shown(value):
    return "nothing" if value is None else f"{{value.dtype}} of shape {{tuple(value.shape)}}"


def main():
    print(__doc__.strip())
    print(f"found with {{SEEN_WITH}}; running torch {{torch.__version__}} on {{device}}")
    outputs, gradients, after, raised = run(reference)
    carried = [OUTPUTS[i] is None or not quiet(o, OUTPUTS[i]) for i, o in enumerate(outputs)]
    carried += [not quiet(gradients.get(name), GRADIENTS[name]) for name in GRADIENTS]
    print(f"the reference recomputed {{'agrees with' if all(carried) else 'DIFFERS from'}} the values carried here")
    try:
        found, found_gradients, found_after, found_raised = run(candidate)
    except Exception as error:
        print(f"misaligned: the candidate raises {{type(error).__name__}}: {{error}}")
        return 1
    bad = len(found) != len(outputs)
    if (found_raised is None) != (raised is None):
        print(f"misaligned: backward pass: candidate raises {{found_raised}}, reference raises {{raised}}")
        bad = True
    for i, name in enumerate(NAMES):
        expected = OUTPUTS[i] if OUTPUTS[i] is not None else outputs[i]
        bad |= differs(f"value of {{name}}", found[i], expected)
        bad |= flags_differ(name, found[i], outputs[i])
    for name in gradients:
        bad |= differs(f"gradient of {{name}}", found_gradients.get(name), GRADIENTS.get(name, gradients[name]))
    for name in after:
        bad |= quiet(found_after.get(name), after[name]) and differs(f"{{name}} after the run", found_after.get(name), after[name])
    return 1 if bad else 0


def quiet(candidate, expected):
    """Say whether two values differ, without a word."""
    if candidate is None or expected is None or candidate.shape != expected.shape:
        return candidate is not expected
    wide = torch.complex128 if expected.is_complex() else torch.float64
    left, right = candidate.detach().cpu().to(wide), expected.detach().cpu().to(wide)
    return not torch.allclose(left, right, rtol=RTOL, atol=ATOL, equal_nan=True)


{watch}
if __name__ == "__main__":
    sys.exit({entry}())
'''

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
