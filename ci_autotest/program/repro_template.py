"""The text of a repro, around the program."""

from typing import Final

TEMPLATE: Final = '''"""{title}

{message}

Run it: python repro.py
Exit status: 1 while misaligned, 0 when fixed, 2 when it cannot run.
"""

import inspect
import json
import os
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent


def cannot_run(kind, error, trace):
    """End with 2: an error of this script's own is no finding."""
    sys.__excepthook__(kind, error, trace)
    sys.stdout.flush()
    os._exit(2)


sys.excepthook = cannot_run
{imports}
{reader}
DEVICE, REFERENCE_DEVICE = torch.device({device}), torch.device({reference_device})
device = DEVICE
RTOL, ATOL = {rtol}, {atol}  # |candidate - reference| <= ATOL + RTOL * |reference|
CHECK_DTYPE, CHECK_MEMORY, GOES_BACK, STRICTNESS = {check_dtype}, {check_memory}, {goes_back}, {strictness!r}
CHECK_CLASS = {check_class}  # whether it matters what a refused step raises
SEEN_WITH = {versions}


def inputs():
{setup}


def reference({takes}):
{body}


{candidate}

{layers}
# What goes into the backward pass, and what the reference gave when this was found.
COTANGENTS = {cotangents}
OUTPUTS = {outputs}
FLAGS = {flags}
GRADIENTS = {gradients}
AFTER, AFTER_FLAGS = {after}, {after_flags}  # of the inputs and states what its run has changed
NAMES = {names}
INDICES = {indices}  # outputs that are not compared
REFUSED = {refused}  # outputs that say how a step was refused; nothing, where it was not


def run(function, wide=False):
    """Return outputs, gradients, and the inputs and states as they are afterwards; ``wide`` in float64."""
    global device
    device = REFERENCE_DEVICE if function is reference else DEVICE
    torch.manual_seed(0)
    given = {{name: value.to(device) if isinstance(value, torch.nn.Module) else value for name, value in inputs().items()}}
    given = {{name: doubled(value) for name, value in given.items()}} if wide else given
    leaves = {{name: value for name, value in given.items() if isinstance(value, torch.Tensor)}}
    modules = {{name: value for name, value in given.items() if isinstance(value, torch.nn.Module)}}
    outputs = function(*[given[name] for name in function_takes()])
    parameters = {{f"{{m}}.{{n}}": p for m, module in modules.items() for n, p in module.named_parameters()}}
    outputs = [torch.tensor(o) if type(o).__name__ == "ndarray" else o for o in outputs]
    given_back = [(o, c) for i, o in enumerate(outputs) if (c := COTANGENTS.get(i)) is not None]
    roots = [(o, c) for o, c in given_back if isinstance(o, torch.Tensor) and o.requires_grad and o.shape == c.shape]
    wanted = {{name: value for name, value in {{**leaves, **parameters}}.items() if value.requires_grad}}
    gradients, raised, weights = {{}}, None, []
    if roots and wanted:
        weights = [c.to(o.device, o.dtype).clone() for o, c in roots]
        try:
            found = torch.autograd.grad([o for o, _ in roots], list(wanted.values()), weights, allow_unused=True)
            gradients = dict(zip(wanted, found))
        except RuntimeError as error:
            raised = f"{{type(error).__name__}}: {{error}}"
    after = {{**leaves, **{{f"{{m}}.{{n}}": v for m, module in modules.items() for n, v in module.state_dict().items()}}}}
    after.update({{f"gradient put into output {{i}}": weight for i, weight in enumerate(weights)}})
    memory = [[name for name, value in leaves.items() if share(output, value)] for output in outputs]
    return outputs, gradients, after, raised, memory


def share(left, right):
    """Whether two tensors lie in the same memory."""
    tensors = isinstance(left, torch.Tensor) and isinstance(right, torch.Tensor) and left.numel() and right.numel()
    return bool(tensors) and left.untyped_storage().data_ptr() == right.untyped_storage().data_ptr()


def doubled(value):
    """Return an input in float64, a leaf as before."""
    if isinstance(value, torch.nn.Module):
        return value.double()
    if not isinstance(value, torch.Tensor) or not (value.is_floating_point() or value.is_complex()):
        return value
    kind = torch.complex128 if value.is_complex() else torch.float64
    return value.detach().to(kind).requires_grad_(value.requires_grad)


def exact():
    """Return outputs and gradients in float64, nothing where that is not defined for this program."""
    try:
        outputs, gradients, _, raised, _ = run(reference, wide=True)
    except Exception as error:
        raised = f"{{type(error).__name__}}: {{error}}"
    if raised is not None:
        print(f"float64 is not defined for this program: {{raised.splitlines()[0]}}")
        return (), {{}}
    return outputs, gradients


def baseline(what, candidate, expected, truth):
    """Print how far each side is from float64."""
    sides = (candidate, expected, truth)
    if not all(isinstance(side, torch.Tensor) and side.is_floating_point() for side in sides):
        return
    if candidate.shape == expected.shape == truth.shape and truth.numel():
        errors = [float((side.detach().cpu().double() - truth.detach().cpu().double()).abs().max()) for side in sides[:2]]
        print(f"  against float64: {{what}} of the candidate is off by {{errors[0]:.3g}}, of the reference by {{errors[1]:.3g}}")


def function_takes():
    return [name for name in "{takes}".split(", ") if name]


def differs(what, candidate, expected):
    """Print how a value departs from what is expected, and say whether it does."""
    if not isinstance(expected, torch.Tensor) or not isinstance(candidate, torch.Tensor):
        bad = quiet(candidate, expected)
        sides = f"candidate {{shown(candidate)}}, reference {{shown(expected)}}" if bad else shown(expected)
        print(f"{{'misaligned' if bad else 'aligned'}}: {{what}}: {{sides}}")
        return bad
    if candidate.shape != expected.shape or (CHECK_DTYPE and candidate.dtype != expected.dtype):
        print(f"misaligned: {{what}}: candidate {{shown(candidate)}}, reference {{shown(expected)}}")
        return True
    left, right = (elements(value, expected.is_complex()) for value in (candidate, expected))
    bad = apart_of(left, right)
    if not bad.any():
        print(f"aligned: {{what}}")
        return False
    first = tuple(bad.nonzero()[0].tolist())
    print(f"misaligned: {{what}}: {{int(bad.sum())}} / {{bad.numel()}} elements, greatest difference {{greatest(left[bad], right[bad])}}")
    print(f"  first at {{first}}: candidate {{left[first].item()!r}}, reference {{right[first].item()!r}}")
    return True


def elements(value, is_complex):
    """Return a tensor's elements on the host, in 64 bits; integers as they are, because float64 does not hold all."""
    value = value.detach().cpu()
    value = value if value.layout is torch.strided else value.to_dense()
    if is_complex or value.is_complex():
        return value.to(torch.complex128)
    return value.double() if value.is_floating_point() else value


def whole(left, right):
    """Whether both hold integers or bools."""
    return not any(side.is_floating_point() or side.is_complex() for side in (left, right))


def greatest(left, right):
    """Return the greatest difference, for reading."""
    if whole(left, right):
        return max(abs(ours - theirs) for ours, theirs in zip(left.tolist(), right.tolist()))
    return f"{{float((left - right).abs().max()):.3g}}"


def refusal_differs(name, candidate, expected):
    """Print how a step was refused on both sides, and say whether that differs."""
    bad = bool(expected) and (not candidate or (CHECK_CLASS and candidate != expected))
    said = [f"raises {{side}}" if side else "accepts" for side in (candidate, expected)]
    print(f"{{'misaligned' if bad else 'aligned'}}: {{name}}: the candidate {{said[0]}}, the reference {{said[1]}}")
    return bad


def gradient_differs(what, candidate, expected):
    """Do as ``differs``: a gradient that there is none of is one of zeros."""
    present = [side for side in (candidate, expected) if side is not None]
    if len(present) == 1 and not present[0].any():
        print(f"aligned: {{what}}: no gradient, and one of zeros, are the same")
        return False
    return differs(what, candidate, expected)


def apart_of(left, right):
    """Return which elements are apart, integers exactly; a strict comparison wants every bit but a NaN's."""
    if whole(left, right):
        return left != right
    kind = torch.promote_types(left.dtype, right.dtype)
    left, right = left.to(kind), right.to(kind)
    if STRICTNESS == "tolerance" or left.is_complex():
        return ~torch.isclose(left, right, rtol=RTOL, atol=ATOL, equal_nan=True)
    return ((left != right) | (torch.signbit(left) != torch.signbit(right))) & ~(left.isnan() & right.isnan())


def flags_of(value):
    """Return what is compared of a tensor besides its elements: strides where every bit counts, of what has any."""
    if not isinstance(value, torch.Tensor):
        return {{}}
    strides = value.stride() if value.layout is torch.strided else ()
    found = {{"requires_grad": value.requires_grad, "is_leaf": value.is_leaf, "layout": str(value.layout)[6:]}}
    return {{**found, "strides": tuple(strides)}}


def flags_differ(what, candidate, flags):
    """Print which flags of a tensor differ, and say whether any does."""
    found = flags_of(candidate)
    sizes = tuple(candidate.shape) if found else ()
    if STRICTNESS != "bitwise" or 0 in sizes or not len(sizes) == len(found["strides"]) == len(flags.get("strides", ())):
        flags = {{name: flag for name, flag in flags.items() if name != "strides"}}
    else:
        meant = [i for i, size in enumerate(sizes) if size > 1]
        found, flags = ({{**s, "strides": tuple(s["strides"][i] for i in meant)}} for s in (found, flags))
    apart = [name for name in flags if found and found[name] != flags[name]]
    for name in apart:
        print(f"misaligned: {{name}} of {{what}}: candidate {{found[name]}}, reference {{flags[name]}}")
    return bool(apart)


def shown(value):
    if isinstance(value, torch.Tensor):
        return f"{{value.dtype}} of shape {{tuple(value.shape)}}"
    return "nothing" if value is None else repr(value)


def main():
    print(f"found before: {{__doc__.strip().splitlines()[0]}}")
    print(f"found with {{SEEN_WITH}}; running torch {{torch.__version__}} on {{DEVICE}}")
    outputs, gradients, after, raised, memory = run(reference)
    carried = [not quiet(outputs[i], OUTPUTS[i]) for i in OUTPUTS]
    carried += [not quiet(gradients.get(name), GRADIENTS[name]) for name in GRADIENTS]
    carried += [not quiet(after.get(name), AFTER[name]) for name in AFTER]
    print(f"the reference recomputed {{'agrees with' if all(carried) else 'DIFFERS from'}} the values carried here")
    try:
        found, found_gradients, found_after, found_raised, found_memory = run(candidate)
    except BaseException as error:
        print(f"misaligned: the candidate raises {{type(error).__name__}}: {{error}}")
        return 1
    bad = len(found) != len(outputs)
    truths, true_gradients = exact()
    if GOES_BACK and (found_raised is None) != (raised is None):
        print(f"misaligned: backward pass: candidate raises {{found_raised}}, reference raises {{raised}}")
        bad = True
    for i, name in enumerate(NAMES):
        expected = OUTPUTS.get(i, outputs[i])
        if i in INDICES:
            print(f"not compared: {{name}} holds indices, and ties have no order")
            continue
        if i in REFUSED:
            bad |= refusal_differs(name, found[i], expected)
            continue
        is_apart = differs(f"value of {{name}}", found[i], expected)
        if is_apart and i < len(truths):
            baseline(f"value of {{name}}", found[i], expected, truths[i])
        bad |= is_apart
        bad |= GOES_BACK and flags_differ(name, found[i], FLAGS.get(i, flags_of(outputs[i])))
    for name in gradients if GOES_BACK else ():
        expected = GRADIENTS.get(name, gradients[name])
        is_apart = gradient_differs(f"gradient of {{name}}", found_gradients.get(name), expected)
        if is_apart:
            baseline(f"gradient of {{name}}", found_gradients.get(name), expected, true_gradients.get(name))
        bad |= is_apart
    for name in after if GOES_BACK else ():
        left, right, what = found_after.get(name), AFTER.get(name, after[name]), f"{{name}} after the run"
        bad |= quiet(left, right) and differs(what, left, right)
        bad |= name.isidentifier() and flags_differ(what, left, AFTER_FLAGS.get(name, flags_of(after[name])))
    if CHECK_MEMORY and found_memory != memory:
        print(f"misaligned: memory shared with inputs: candidate {{found_memory}}, reference {{memory}}")
        bad = True
{ablation}    return 1 if bad else 0


def quiet(candidate, expected):
    """Say whether two values differ, without a word."""
    tensors = [isinstance(value, torch.Tensor) for value in (candidate, expected)]
    if not any(tensors):
        return not_alike(candidate, expected)
    if not all(tensors) or candidate.shape != expected.shape or (CHECK_DTYPE and candidate.dtype != expected.dtype):
        return True
    left, right = (elements(value, expected.is_complex()) for value in (candidate, expected))
    return bool(apart_of(left, right).any())


def not_alike(candidate, expected):
    """Say whether two plain values differ, floats by the tolerance; of what is not plain nothing is said."""
    if isinstance(expected, (float, complex)) and type(candidate) is type(expected):
        wide = torch.complex128 if isinstance(expected, complex) else torch.float64
        return bool(apart_of(torch.tensor(candidate, dtype=wide), torch.tensor(expected, dtype=wide)))
    if isinstance(expected, (tuple, list)) and all(isinstance(item, int) for item in expected):
        return not isinstance(candidate, (tuple, list)) or list(candidate) != list(expected)
    return isinstance(expected, PLAIN) and (not isinstance(candidate, PLAIN) or candidate != expected)


PLAIN = (bool, int, float, complex, str, torch.dtype, type(None))


{watch}
def ended(status):
    """Say in one line what the exit status says; the process that is watched leaves it to the one that watches."""
    said = {{0: "fixed: nothing differs from the reference any more", 1: "misaligned: the candidate is not fixed"}}
    if status in said and not os.environ.get("REPRO_WATCHED"):
        print(said[status])
    return status


if __name__ == "__main__":
    {end}'''
