"""The text of a repro: first what a maintainer reads, then the lines that compare.

Each part is used only if the finding needs it; ``script_parts.py`` chooses. ``%(name)s`` marks what is filled in.
"""

from typing import Final

HEAD: Final = '''"""%(title)s

%(message)s

Run it: python repro.py
Exit status: 1 while misaligned, 0 when fixed, 2 when it cannot run.
"""

%(libraries)s

%(here)s# An error of this script's own is no finding: it ends with 2.
sys.excepthook = lambda *error: (sys.__excepthook__(*error), sys.stdout.flush(), os._exit(2))
%(imports)s%(devices)s'''
#: Only if a side is not on the CPU; otherwise no tensor is moved.
DEVICES: Final = """
DEVICE, REFERENCE_DEVICE = torch.device(%(device)s), torch.device(%(reference_device)s)
device = DEVICE"""
READER: Final = '''def stored(name, dtype):
    """Read one flat tensor of tensors.safetensors: a JSON head, then the bytes."""
    data = (HERE / "tensors.safetensors").read_bytes()
    size = int.from_bytes(data[:8], "little")
    first, last = json.loads(data[8 : 8 + size])[name]["data_offsets"]
    return torch.frombuffer(bytearray(data[8 + size + first : 8 + size + last]), dtype=dtype).clone()'''
SETTINGS: Final = """RTOL, ATOL = %(rtol)s, %(atol)s  # |candidate - reference| <= ATOL + RTOL * |reference|
SEEN_WITH = %(versions)r

# What follows runs both sides and compares them."""

RUN_ALONE: Final = """def run(function):
    torch.manual_seed(0)
    return list(function(*inputs().values()))"""
RUN: Final = '''def run(function):
    """Return %(described)s."""
'''
ON_DEVICE: Final = """    global device
    device = REFERENCE_DEVICE if function is reference else DEVICE
"""
GIVEN: Final = """    torch.manual_seed(0)
    given = inputs()
"""
MOVED: Final = """    given = {name: v.to(device) if isinstance(v, torch.nn.Module) else v for name, v in given.items()}
"""
#: Only if the reference returns arrays of numpy; otherwise a candidate's array is not a tensor, and misaligned.
ARRAYS: Final = """    outputs = [torch.tensor(o) if type(o).__name__ == "ndarray" else o for o in outputs]
"""
TENSORS: Final = """    tensors = {name: value for name, value in given.items() if isinstance(value, torch.Tensor)}
"""
MODULES: Final = """    modules = {name: value for name, value in given.items() if isinstance(value, torch.nn.Module)}
"""
PARAMETERS: Final = """    leaves |= {f"{m}.{n}": p for m, module in modules.items() for n, p in module.named_parameters()}
"""
BACKWARD: Final = """    wanted = {name: value for name, value in leaves.items() if value.requires_grad}
    pairs = [(outputs[i], weight) for i, weight in COTANGENTS.items() if isinstance(outputs[i], torch.Tensor)]
    roots = [(o, %(copy)s) for o, w in pairs if o.requires_grad and o.shape == w.shape]
    gradients, raised = {}, None
    if roots and wanted:
        try:
            weights = [weight for _, weight in roots]
            found = torch.autograd.grad([o for o, _ in roots], list(wanted.values()), weights, allow_unused=True)
            gradients = dict(zip(wanted, found))
        except RuntimeError as error:
            raised = f"{type(error).__name__}: {error}"
"""
#: How a gradient that is put in is copied: a deep copy keeps strides that a clone does not.
COPIES: Final = {False: "w.to(o.device, o.dtype).clone()", True: "copy.deepcopy(w.to(o.device, o.dtype))"}
STATES: Final = """    after |= {f"{m}.{n}": v for m, module in modules.items() for n, v in module.state_dict().items()}
"""
PUT_IN: Final = """    after |= {f"gradient put into output {i}": weight for i, (_, weight) in enumerate(roots)}
"""
MEMORY: Final = """    memory = [[name for name in tensors if share(output, tensors[name])] for output in outputs]
"""

SHARE: Final = '''def share(left, right):
    """Whether two tensors lie in the same memory."""
    tensors = isinstance(left, torch.Tensor) and isinstance(right, torch.Tensor) and left.numel() and right.numel()
    return bool(tensors) and left.untyped_storage().data_ptr() == right.untyped_storage().data_ptr()'''

APART: Final = '''def apart(found, expected):
    """Describe how two values differ; empty if they do not."""
%(unlike)s        return f"candidate {shown(found)}, reference {shown(expected)}"
%(unequal)s    if not bad.any():
        return ""
    first = tuple(bad.nonzero()[0].tolist())
    greatest = max(abs(a - b) for a, b in zip(left[bad].tolist(), right[bad].tolist()))
    how = f"{int(bad.sum())} / {bad.numel()} elements, greatest difference {%(greatest)s}"
    return f"{how}\\n  first at {first}: candidate {left[first].item()!r}, reference {right[first].item()!r}"'''
#: The reference gives a tensor; the candidate may give anything.
NO_TENSOR: Final = """    if not isinstance(found, torch.Tensor) or found.shape != expected.shape%(dtype)s:
"""
#: A side may have no tensor.
PLAIN: Final = """    tensors = [isinstance(side, torch.Tensor) for side in (found, expected)]
    if not all(tensors):
        return f"candidate {shown(found)}, reference {shown(expected)}" if any(tensors) or %(differ)s else ""
    if found.shape != expected.shape%(dtype)s:
"""
#: Both sides hold floating-point numbers of one dtype.
FLOATS: Final = """    left, right = (side.detach().cpu().to_dense().double() for side in (found, expected))
    bad = %(strict)s
"""
MIXED: Final = """    left, right = (elements(side, expected.is_complex()) for side in (found, expected))
    bad = unequal(left, right)
"""
ELEMENTS: Final = '''def elements(value, is_complex):
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
    return %(strict)s'''
TOLERANT: Final = "~torch.isclose(left, right, rtol=RTOL, atol=ATOL, equal_nan=True)"
STRICT_FLOATS: Final = "((left != right) | (left.signbit() != right.signbit())) & ~(left.isnan() & right.isnan())"
STRICT: Final = """\\
        ~torch.isclose(left, right, rtol=RTOL, atol=ATOL, equal_nan=True) if left.is_complex() else (
        ((left != right) | (torch.signbit(left) != torch.signbit(right))) & ~(left.isnan() & right.isnan())
    )"""
SHOWN: Final = """def shown(value):
    return f"{value.dtype} of shape {tuple(value.shape)}" if isinstance(value, torch.Tensor) else repr(value)"""
DIFFERS: Final = '''def differs(name, found, expected):
    """Print how a value differs from what is expected; return whether it does."""
    how = apart(found, expected)
    print(f"misaligned: {name}: {how}" if how else f"aligned: {name}")
    return bool(how)'''
UNLIKE: Final = '''def unlike(found, expected):
    """Whether two plain values differ, floats beyond the tolerance; other objects are not compared."""
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


def flags_differ(owner, value, flags):
    """Print which flags of a tensor differ; return whether any does."""
    found, flags = flags_of(value), dict(flags)
    if flags and not found:
        print(f"misaligned: {owner}: candidate {type(value).__name__}, reference a tensor")
        return True
%(strides)s    wrong = [name for name in flags if found[name] != flags[name]]
    for name in wrong:
        print(f"misaligned: {name} of {owner}: candidate {found[name]}, reference {flags[name]}")
    return bool(wrong)'''
NO_STRIDES: Final = """    flags.pop("strides", None)
"""
#: Where every bit counts; a dimension of one element may have any stride.
STRIDES: Final = """    sizes = tuple(value.shape) if found else ()
    if 0 in sizes or not len(sizes) == len(found["strides"]) == len(flags.get("strides", ())):
        flags.pop("strides", None)
    else:
        for side in (found, flags):
            side["strides"] = tuple(step for size, step in zip(sizes, side["strides"]) if size > 1)
"""
REFUSALS: Final = '''def refusal_differs(name, found, expected):
    """Print how each side refused a step; return whether that differs."""
    bad = bool(expected) and (not found or %(other)s)
    how = [f"raises {side}" if side else "accepts" for side in (found, expected)]
    print(f"{'misaligned' if bad else 'aligned'}: {name}: the candidate {how[0]}, the reference {how[1]}")
    return bad'''

MAIN: Final = """def main():
    print(f"found before: {__doc__.strip().splitlines()[0]}")
    print(f"found with {SEEN_WITH}; running torch {torch.__version__}%(on_device)s")
    %(reference)s = run(reference)
    has_changed = any(%(changed)s)
    print(f"the reference recomputed {'DIFFERS from' if has_changed else 'agrees with'} the values carried here")
    try:
        %(candidate)s = run(candidate)
    except BaseException as error:
        print(f"misaligned: the candidate raises {type(error).__name__}: {error}")
        return 1
    bad = len(found) != len(outputs)
%(checks)s    return 1 if bad else 0"""
#: The checks of ``main``.
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
        left, right, owner = found_after.get(name), AFTER.get(name, after[name]), f"{name} after the run"
        bad |= bool(apart(left, right)) and differs(owner, left, right)
        bad |= name.isidentifier() and flags_differ(owner, left, AFTER_FLAGS.get(name, flags_of(after[name])))
"""
SHARED: Final = """    if found_memory != memory:
        print(f"misaligned: memory shared with inputs: candidate {found_memory}, reference {memory}")
        bad = True
"""

END: Final = """if __name__ == "__main__":
%(usable)s    status = %(entry)s()
%(said)s    %(leave)s
"""
SAID: Final = """    print("misaligned: the candidate is not fixed" if status else "fixed: nothing differs from the reference any more")
"""
#: If the entry may return 2.
SAID_IF_RUN: Final = """    if status != 2:
        print("misaligned: the candidate is not fixed" if status else "fixed: nothing differs from the reference any more")
"""
#: The watching process prints the last line, not the watched one.
SAID_BY_WATCHER: Final = """    if status != 2 and not os.environ.get("REPRO_WATCHED"):
        print("misaligned: the candidate is not fixed" if status else "fixed: nothing differs from the reference any more")
"""
LEAVE: Final = "sys.exit(status)"
#: For a device: with torch 2.13, autograd threads of a device were seen to abort a process that exits normally.
USABLE: Final = """    try:
        torch.ones(1).to(DEVICE).cpu()
    except Exception as error:
        print(f"cannot run: device {DEVICE} cannot be used here ({type(error).__name__}: {error})")
        sys.exit(2)
"""
LEAVE_AT_ONCE: Final = """sys.stdout.flush()
    os._exit(status)  # an accelerator's threads may abort a process that exits normally"""
