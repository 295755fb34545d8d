"""The text of a repro for a candidate in its own interpreter: numpy and the framework, no torch.

Each part has only what its finding needs; ``host_script.py`` chooses. ``%(name)s`` marks what it fills in.
"""

from typing import Final

HEAD: Final = '''"""%(title)s

%(message)s

Run it: python repro.py
It needs numpy and %(module)s. If PYTHON, in which this was found, exists, the script continues there.
Exit status: 1 while misaligned, 0 when fixed, 2 when it cannot run.
"""

%(libraries)s

%(here)sPYTHON = %(python)r
# An error of this script's own is no finding: it ends with 2.
sys.excepthook = lambda *error: (sys.__excepthook__(*error), sys.stdout.flush(), os._exit(2))
if Path(PYTHON).exists() and Path(PYTHON).parent.parent != Path(sys.prefix) and not os.environ.get("REPRO_IN_PLACE"):
    os.execve(PYTHON, [PYTHON, *sys.argv], {**os.environ, "REPRO_IN_PLACE": "1"})
%(environment)s%(paths)stry:
    import numpy as np
    import %(module)s
except ImportError as error:
    print(f"cannot run: {error}. Run it with an interpreter that has %(module)s %(version)s and numpy.")
    sys.exit(2)
%(first)s'''
READER: Final = '''def stored(name, dtype):
    """Read one flat array of tensors.safetensors: a JSON head, then the bytes."""
    data = (HERE / "tensors.safetensors").read_bytes()
    size = int.from_bytes(data[:8], "little")
    first, last = json.loads(data[8 : 8 + size])[name]["data_offsets"]
    return np.frombuffer(data[8 + size + first : 8 + size + last], dtype)'''
SETTINGS: Final = """RTOL, ATOL = %(rtol)s, %(atol)s  # |candidate - reference| <= ATOL + RTOL * |reference|
SEEN_WITH = %(versions)r

# What follows runs the candidate and compares."""

ELEMENTS: Final = '''def elements(value):
    """Return a tensor's elements and the name of its dtype%(otherwise)s."""
    if not isinstance(value, %(tensor_class)s):
        return %(other)s
%(elements)s'''
#: A value that is no tensor: its shape and dtype differ from those of every tensor.
NO_TENSOR: Final = "np.array(None), type(value).__name__"

OBSERVED: Final = '''def observed():
    """Run the candidate; return %(described)s."""
'''
FORWARD: Final = """    outputs = candidate(%(given)s)
"""
GIVEN: Final = """    given = inputs()
"""
BACKWARD: Final = """    given, weights = inputs(), {i: tensor(*pair) for i, pair in COTANGENTS.items()}
    outputs, gradients = run(given, weights)
    gradients = {name: elements(gradient) for name, gradient in gradients.items()}
"""
AS_GRAPH: Final = """    outputs, _ = run(inputs(), {})
"""
OUTPUT_FLAGS: Final = """    output_flags = [flags(output) for output in outputs]
"""
AFTER: Final = """    after = members(given, %(weights)s)
    after_flags = {name: flags(value) for name, value in given.items()}
"""
OUTPUTS: Final = """    outputs = [elements(output) for output in outputs]
"""
MEMBERS: Final = '''def members(given, weights):
    """Return by name the elements of every input, of modules' states, and of what was put into the backward pass."""
    found = {f"gradient put into output {i}": weight for i, weight in weights.items()}
    for name, value in given.items():
        state = value.state_dict() if hasattr(value, "state_dict") else None
        own = {name: value} if state is None else {f"{name}.{key}": each for key, each in state.items()}
        found.update({member: elements(each) for member, each in own.items()})
    return found'''

DIFFERS: Final = '''def differs(name, found, expected):
    """Print how a value differs from the reference's; return whether it does."""
%(plain)s    (left, dtype), (right, wanted) = found, expected
    if left.shape != right.shape%(dtype)s:
        print(f"misaligned: {name}: candidate {shown(found)}, reference {shown(expected)}")
        return True
%(unequal)s    if not bad.any():
        print(f"aligned: {name}")
        return False
    first = tuple(int(i) for i in np.argwhere(bad)[0])
    print(f"misaligned: {name}: {int(bad.sum())} / {bad.size} elements, greatest difference {greatest}")
    print(f"  first at {first}: candidate {left[first].item()!r}, reference {right[first].item()!r}")
    return True'''
PLAIN: Final = """    if not (is_array(found) and is_array(expected)):
        bad = unlike(found, expected)
        sides = f"candidate {shown(found)}, reference {shown(expected)}" if bad else shown(expected)
        print(f"{'misaligned' if bad else 'aligned'}: {name}: {sides}")
        return bad
"""
#: Both sides hold floating-point numbers of one dtype.
FLOATS: Final = """    left, right = left.astype(np.float64), right.astype(np.float64)
    with np.errstate(all="ignore"):
        bad = %(strict)s
        greatest = f"{float(np.abs(left - right)[bad].max(initial=0)):.3g}"
"""
MIXED: Final = """    if left.dtype.kind in "biu" and right.dtype.kind in "biu":  # float64 does not hold all integers
        bad = left != right
        greatest = max((abs(a - b) for a, b in zip(left[bad].tolist(), right[bad].tolist())), default=0)
    else:
        wide = np.complex128 if np.iscomplexobj(right) else np.float64
        left, right = left.astype(wide), right.astype(wide)
        with np.errstate(all="ignore"):
            bad = %(strict)s
            greatest = f"{float(np.abs(left - right)[bad].max(initial=0)):.3g}"
"""
TOLERANT: Final = "~np.isclose(left, right, rtol=RTOL, atol=ATOL, equal_nan=True)"
#: Every bit but a NaN's.
STRICT: Final = (
    "((left != right) | (np.signbit(left.real) != np.signbit(right.real))) & ~(np.isnan(left) & np.isnan(right))"
)
SHOWN: Final = """def shown(value):
    return f"{value[1]} of shape {value[0].shape}\""""
SHOWN_PLAIN: Final = """def shown(value):
    if is_array(value):
        return f"{value[1]} of shape {value[0].shape}"
    return "nothing" if value is None else repr(value)"""
PLAIN_VALUES: Final = '''def is_array(value):
    """Whether a value is the elements of a tensor and the name of its dtype."""
    return isinstance(value, tuple) and len(value) == 2 and isinstance(value[0], np.ndarray)


def plain(value):
    """Return what is compared of an object that is no tensor: of a framework's own object its type."""
    if isinstance(value, (tuple, list)) and all(isinstance(item, int) for item in value):
        return tuple(map(int, value))
    if isinstance(value, np.ndarray):
        return value, str(value.dtype)
    is_plain = value is None or isinstance(value, (bool, int, float, complex, str))
    return value if is_plain else f"a {type(value).__name__}"


def unlike(found, expected):
    """Whether two values differ that are not both tensors, floats beyond the tolerance."""
    if isinstance(found, (float, complex)) and type(found) is type(expected):
        return not np.isclose(found, expected, rtol=%(rtol)s, atol=%(atol)s, equal_nan=True)
    return is_array(found) or is_array(expected) or found != expected'''
FLAGS_DIFFER: Final = '''def flags_differ(owner, found, expected):
    """Print which flags of a tensor differ; return whether any does."""
    wrong = [flag for flag in found if flag in expected and found[flag] != expected[flag]]
    for flag in wrong:
        print(f"misaligned: {flag} of {owner}: candidate {found[flag]}, reference {expected[flag]}")
    return bool(wrong)'''
#: Only where an exception of the candidate is a finding.
IS_OWN: Final = '''def is_own(error):
    """Whether this script lacks a name: that is not a finding."""
    trace = error.__traceback__
    while trace.tb_next is not None:
        trace = trace.tb_next
    return isinstance(error, NameError) and trace.tb_frame.f_code.co_filename == main.__code__.co_filename'''

MAIN: Final = """def main():
    print(f"found before: {__doc__.strip().splitlines()[0]}")
    print(f"found with {SEEN_WITH}; running %(module)s {getattr(%(module)s, '__version__', 'of unknown version')}")
%(observe)s    bad = len(outputs) != len(OUTPUTS)
%(checks)s    return 1 if bad else 0"""
OBSERVE: Final = """    %(observed)s = observed()
"""
OBSERVE_RAISING: Final = """    try:
        %(observed)s = observed()
    except Exception as error:
        status = 2 if is_own(error) else %(status)s
        verdict = ("aligned", "misaligned", "cannot run")[status]
        print(f"{verdict}: the candidate raises {type(error).__name__}: {error}")
        return status
"""
ACCEPTED: Final = """    print(f"misaligned: {NAMES[-1]}: the candidate accepts, the reference raises")
    return 1
"""
ACCEPTED_BACKWARD: Final = """    if any(gradient is not None for gradient in gradients.values()):
        print("misaligned: backward pass: the candidate accepts, the reference raises")
        return 1
"""
VALUES: Final = """    for i, expected in OUTPUTS.items():
%(refused)s        bad |= differs(f"value of {NAMES[i]}", outputs[i], expected)
"""
REFUSED: Final = """        if i in REFUSED:
            verdict, how = ("aligned", f"raises {outputs[i]}") if outputs[i] else ("misaligned", "accepts")
            print(f"{verdict}: {NAMES[i]}: the candidate {how}, the reference raises {expected}")
            bad |= not outputs[i]
            continue
"""
FLAGS: Final = """    for i, expected in FLAGS.items():
        bad |= flags_differ(NAMES[i], output_flags[i], expected)
"""
GRADIENTS: Final = """    for name, expected in GRADIENTS.items():
        found = gradients.get(name)
        present = [side[0] for side in (found, expected) if side is not None]
        if len(present) == 1 and not present[0].any():
            print(f"aligned: gradient of {name}: none, and one of zeros, are the same")
            continue
        bad |= differs(f"gradient of {name}", found, expected)
"""
AFTERWARDS: Final = """    given = inputs()
    for name, before in members(given, %(weights)s).items():
        bad |= differs(f"{name} after the run", after.get(name), AFTER.get(name, before))
    for name, value in given.items():
        bad |= flags_differ(f"{name} after the run", after_flags[name], AFTER_FLAGS.get(name, flags(value)))
"""
#: A graph that this package makes cannot be made without it.
NO_GRAPH: Final = """def main():
    print("cannot run: this was found in a graph that ci-autotest makes: ci-autotest replay shows it again")
    return 2"""

#: For nondeterminism: repeat the candidate on the same inputs.
REPEATED: Final = '''def repeated():
    """Run the candidate fifty times on the same inputs; return 1 if a run differs from the first."""
    print(f"found before: {__doc__.strip().splitlines()[0]}")
    %(observed)s = observed()
    first = %(results)s
    for number in range(2, 51):
        written_to(first, number)
        %(observed)s = observed()
        for found, before in zip(%(results)s, first):
            if is_array(found) and is_array(before) and found[0].tobytes() != before[0].tobytes():
                print(f"misaligned: run {number} of the candidate differs from its first on the same inputs")
                return 1
    print("aligned: fifty runs of the candidate are the same")
    return 0


def written_to(results, number):
    """Write a number to memory of the results' sizes and free it: a kernel that leaves memory unwritten shows it."""
    floats = [found for found in results if is_array(found) and found[0].dtype.kind == "f" and found[0].size]
    room = (1 << 25) // max(len(floats), 1)  # bytes
    held = []
    for array, dtype in floats:
        one = tensor(np.full(array.shape, number, array.dtype), dtype)
        held += [one + one for _ in range(max(1, min(8, room // array.nbytes)))]
    for one in held:
        elements(one)  # waits until it is written'''
