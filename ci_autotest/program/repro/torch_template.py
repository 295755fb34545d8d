"""The text of a repro: what a maintainer reads first, then the few lines that compare. Parts that no finding needs go."""

from typing import Final

TEMPLATE: Final = '''"""{title}

{message}

Run it: python repro.py
Exit status: 1 while misaligned, 0 when fixed, 2 when it cannot run.
"""

{libraries}
HERE = Path(__file__).resolve().parent
# An error of this script's own is no finding: it ends with 2.
sys.excepthook = lambda *error: (sys.__excepthook__(*error), sys.stdout.flush(), os._exit(2))
{imports}
{reader}DEVICE, REFERENCE_DEVICE = torch.device({device}), torch.device({reference_device})
device = DEVICE
RTOL, ATOL = {rtol}, {atol}  # |candidate - reference| <= ATOL + RTOL * |reference|


def inputs():
{setup}


def reference({takes}):
{body}


{candidate}

{layers}
# What the reference gave when this was found, by position and by name.
OUTPUTS = {outputs}
{carried}TAKES, NAMES = {taken}, {names}
SEEN_WITH = {versions}


{run}


{compare}


def main():
    print(f"found before: {{__doc__.strip().splitlines()[0]}}")
    print(f"found with {{SEEN_WITH}}; running torch {{torch.__version__}} on {{DEVICE}}")
    outputs, gradients, after, raised, memory = run(reference)
{agrees}
    try:
        found, found_gradients, found_after, found_raised, found_memory = run(candidate)
    except BaseException as error:
        print(f"misaligned: the candidate raises {{type(error).__name__}}: {{error}}")
        return 1
    bad = len(found) != len(outputs)
{checks}    return 1 if bad else 0


{watch}
def ended(status):
    said = {{0: "fixed: nothing differs from the reference any more", 1: "misaligned: the candidate is not fixed"}}
    if status in said{watched}:
        print(said[status])
    return status


if __name__ == "__main__":
    {end}'''

RUN: Final = '''def run(function):
    """Return outputs, gradients, what inputs and states are afterwards, and what the backward pass raises."""
    global device
    device = REFERENCE_DEVICE if function is reference else DEVICE
    torch.manual_seed(0)
    given = {name: v.to(device) if isinstance(v, torch.nn.Module) else v for name, v in inputs().items()}
    outputs = list(function(*[given[name] for name in TAKES]))'''
#: Where the reference gives arrays; elsewhere a candidate's array is no tensor.
ARRAYS: Final = """    outputs = [torch.tensor(o) if type(o).__name__ == "ndarray" else o for o in outputs]"""
SEEN: Final = """    after = {name: value for name, value in given.items() if isinstance(value, torch.Tensor)}
    modules = {name: value for name, value in given.items() if isinstance(value, torch.nn.Module)}
    gradients, raised, memory = {}, None, []"""
#: The backward pass, where the finding is about it.
BACKWARD: Final = '''    leaves = {**after, **{f"{m}.{n}": p for m, module in modules.items() for n, p in module.named_parameters()}}
    wanted = {name: value for name, value in leaves.items() if value.requires_grad}
    pairs = [(outputs[i], weight) for i, weight in COTANGENTS.items() if isinstance(outputs[i], torch.Tensor)]
    roots = [(o, w.to(o.device, o.dtype).clone()) for o, w in pairs if o.requires_grad and o.shape == w.shape]
    if roots and wanted:
        try:
            weights = [weight for _, weight in roots]
            found = torch.autograd.grad([o for o, _ in roots], list(wanted.values()), weights, allow_unused=True)
            gradients = dict(zip(wanted, found))
        except RuntimeError as error:
            raised = f"{type(error).__name__}: {error}"'''
STATES: Final = (
    """    after |= {f"{m}.{n}": v for m, module in modules.items() for n, v in module.state_dict().items()}"""
)
PUT_IN: Final = """    after |= {f"gradient put into output {i}": weight for i, (_, weight) in enumerate(roots)}"""
MEMORY: Final = """    memory = [[name for name in after if share(output, after[name])] for output in outputs]"""
RETURN: Final = """    return outputs, gradients, after, raised, memory"""

SHARE: Final = '''def share(left, right):
    """Whether two tensors lie in the same memory."""
    tensors = isinstance(left, torch.Tensor) and isinstance(right, torch.Tensor) and left.numel() and right.numel()
    return bool(tensors) and left.untyped_storage().data_ptr() == right.untyped_storage().data_ptr()'''

COMPARE: Final = '''def apart(found, expected):
    """Say how two values differ; nothing where they do not."""
    tensors = [isinstance(side, torch.Tensor) for side in (found, expected)]
    if not all(tensors):
        return f"candidate {shown(found)}, reference {shown(expected)}" if any(tensors) or %(unlike)s else ""
    if found.shape != expected.shape%(dtype)s:
        return f"candidate {shown(found)}, reference {shown(expected)}"
    left, right = (elements(side, expected.is_complex()) for side in (found, expected))
    bad = unequal(left, right)
    if not bad.any():
        return ""
    first = tuple(bad.nonzero()[0].tolist())
    greatest = max(abs(a - b) for a, b in zip(left[bad].tolist(), right[bad].tolist()))
    greatest = greatest if isinstance(greatest, int) else f"{greatest:.3g}"
    how = f"{int(bad.sum())} / {bad.numel()} elements, greatest difference {greatest}"
    return f"{how}\\n  first at {first}: candidate {left[first].item()!r}, reference {right[first].item()!r}"


def elements(value, is_complex):
    """Return a tensor's elements on the host, in 64 bits; integers as they are, because float64 does not hold all."""
    value = value.detach().cpu()
    value = value if value.layout is torch.strided else value.to_dense()
    if is_complex or value.is_complex():
        return value.to(torch.complex128)
    return value.double() if value.is_floating_point() else value


def unequal(left, right):
    """Return which elements differ, integers exactly."""
    if not any(side.is_floating_point() or side.is_complex() for side in (left, right)):
        return left != right
    kind = torch.promote_types(left.dtype, right.dtype)
    left, right = left.to(kind), right.to(kind)
    return %(strict)s


def shown(value):
    return f"{value.dtype} of shape {tuple(value.shape)}" if isinstance(value, torch.Tensor) else repr(value)


def differs(what, found, expected):
    """Print how a value departs from what is expected, and say whether it does."""
    how = apart(found, expected)
    print(f"misaligned: {what}: {how}" if how else f"aligned: {what}")
    return bool(how)'''
TOLERANT: Final = "~torch.isclose(left, right, rtol=RTOL, atol=ATOL, equal_nan=True)"
STRICT: Final = """\\
        ~torch.isclose(left, right, rtol=RTOL, atol=ATOL, equal_nan=True) if left.is_complex() else (
        ((left != right) | (torch.signbit(left) != torch.signbit(right))) & ~(left.isnan() & right.isnan())
    )"""
UNLIKE: Final = '''def unlike(found, expected):
    """Say whether two plain values differ, floats by the tolerance; of what is not plain nothing is said."""
    if isinstance(expected, (float, complex)) and type(found) is type(expected):
        wide = torch.complex128 if isinstance(expected, complex) else torch.float64
        return bool(unequal(torch.tensor(found, dtype=wide), torch.tensor(expected, dtype=wide)))
    if isinstance(expected, (tuple, list)) and all(isinstance(item, int) for item in expected):
        return not isinstance(found, (tuple, list)) or list(found) != list(expected)
    plain = (bool, int, float, complex, str, torch.dtype, type(None))
    return isinstance(expected, plain) and (not isinstance(found, plain) or found != expected)'''
FLAGS: Final = '''def flags_of(value):
    """Return what is compared of a tensor besides its elements."""
    if not isinstance(value, torch.Tensor):
        return {}
    found = {"requires_grad": value.requires_grad, "is_leaf": value.is_leaf, "layout": str(value.layout)[6:]}
    return {**found, "strides": tuple(value.stride()) if value.layout is torch.strided else ()}


def flags_differ(what, value, flags):
    """Print which flags of a tensor differ, and say whether any does; strides where every bit counts."""
    found, flags = flags_of(value), dict(flags)
    if flags and not found:
        print(f"misaligned: {what}: candidate {type(value).__name__}, reference a tensor")
        return True
    sizes = tuple(value.shape) if found else ()
    if not IS_BITWISE or 0 in sizes or not len(sizes) == len(found["strides"]) == len(flags.get("strides", ())):
        flags.pop("strides", None)
    else:
        for side in (found, flags):
            side["strides"] = tuple(step for size, step in zip(sizes, side["strides"]) if size > 1)
    wrong = [name for name in flags if found[name] != flags[name]]
    for name in wrong:
        print(f"misaligned: {name} of {what}: candidate {found[name]}, reference {flags[name]}")
    return bool(wrong)'''

REFUSALS: Final = '''def refusal_differs(name, found, expected):
    """Print how a step was refused on both sides, and say whether that differs."""
    bad = bool(expected) and (not found or %(other)s)
    said = [f"raises {side}" if side else "accepts" for side in (found, expected)]
    print(f"{'misaligned' if bad else 'aligned'}: {name}: the candidate {said[0]}, the reference {said[1]}")
    return bad'''

#: What ``main`` looks at.
VALUES: Final = """    for i, name in enumerate(NAMES):
%(skipped)s        bad |= differs(f"value of {name}", found[i], OUTPUTS.get(i, outputs[i]))
"""
INDICES: Final = """        if i in INDICES:
            print(f"not compared: {name} holds indices, and ties have no order")
            continue
"""
REFUSED: Final = """        if i in REFUSED:
            bad |= refusal_differs(name, found[i], OUTPUTS.get(i, outputs[i]))
            continue
"""
OUTPUT_FLAGS: Final = """        bad |= flags_differ(name, found[i], FLAGS.get(i, flags_of(outputs[i])))
"""
GRADIENTS: Final = """    if (found_raised is None) != (raised is None):
        print(f"misaligned: backward pass: candidate raises {found_raised}, reference raises {raised}")
        bad = True
    for name in gradients:
        left, right = found_gradients.get(name), GRADIENTS.get(name, gradients[name])
        present = [side for side in (left, right) if side is not None]
        if len(present) == 2 or any(side.any() for side in present):  # no gradient, and one of zeros, are the same
            bad |= differs(f"gradient of {name}", left, right)
"""
AFTERWARDS: Final = """    for name in after:
        left, right, what = found_after.get(name), AFTER.get(name, after[name]), f"{name} after the run"
        bad |= bool(apart(left, right)) and differs(what, left, right)
        bad |= name.isidentifier() and flags_differ(what, left, AFTER_FLAGS.get(name, flags_of(after[name])))
"""
SHARED: Final = """    if found_memory != memory:
        print(f"misaligned: memory shared with inputs: candidate {found_memory}, reference {memory}")
        bad = True
"""
AGREES: Final = """    has_changed = any(%(apart)s)
    print(f"the reference recomputed {'DIFFERS from' if has_changed else 'agrees with'} the values carried here")"""
