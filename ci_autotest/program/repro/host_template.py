"""The template of a repro for a candidate in its own interpreter: numpy and the framework, no torch."""

from typing import Final

TEMPLATE: Final = '''"""{title}

{message}

Run it: python repro.py
It needs numpy and {module}; where {module} is not in the interpreter that runs it, it goes on in PYTHON.
Exit status: 1 while misaligned, 0 when fixed, 2 when it cannot run.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
PYTHON = {python!r}  # the interpreter in which this was found
SEEN_WITH = {versions!r}
KIND = {kind!r}


def cannot_run(kind, error, trace):
    """End with 2: an error of this script's own is no finding."""
    sys.__excepthook__(kind, error, trace)
    sys.stdout.flush()
    os._exit(2)


sys.excepthook = cannot_run


def in_its_interpreter():
    """Go on in the interpreter in which this was found, where it is there."""
    own = Path(PYTHON).parent.parent
    if Path(PYTHON).exists() and own != Path(sys.prefix) and not os.environ.get("REPRO_IN_PLACE"):
        os.environ["REPRO_IN_PLACE"] = "1"
        os.execv(PYTHON, [PYTHON, *sys.argv])


in_its_interpreter()
{paths}try:
    import numpy as np
    import {module}
except ImportError as error:
    print(f"cannot run: {{error}}. Run it with an interpreter that has {module} {version} and numpy.")
    sys.exit(2)

device = {device}
RTOL, ATOL = {rtol}, {atol}  # |candidate - reference| <= ATOL + RTOL * |reference|
CHECK_DTYPE, STRICTNESS = {check_dtype}, {strictness!r}

{reader}{glue}
def inputs():
{setup}


{adapters}def candidate({takes}):
{body}


# What goes into the backward pass, and what the reference, {reference}, gave when this was found.
COTANGENTS = {cotangents}
OUTPUTS = {outputs}
REFUSED = {refused}  # outputs that say how a step was refused
FLAGS = {flags}
GRADIENTS = {gradients}
AFTER, AFTER_FLAGS = {after}, {after_flags}  # of the inputs and states what its run has changed
NAMES = {names}


def differs(what, found, expected):
    """Print how a value departs from the reference's, and say whether it does."""
    if not (is_array(found) and is_array(expected)):
        bad = unlike(found, expected)
        sides = f"candidate {{shown(found)}}, reference {{shown(expected)}}" if bad else shown(expected)
        print(f"{{'misaligned' if bad else 'aligned'}}: {{what}}: {{sides}}")
        return bad
    (left, dtype), (right, wanted) = found, expected
    if left.shape != right.shape or (CHECK_DTYPE and dtype != wanted):
        print(f"misaligned: {{what}}: candidate {{shown(found)}}, reference {{shown(expected)}}")
        return True
    if left.dtype.kind in "biu" and right.dtype.kind in "biu":  # float64 does not hold all integers
        bad = left != right
        greatest = max((abs(a - b) for a, b in zip(left[bad].tolist(), right[bad].tolist())), default=0)
    else:
        wide = np.complex128 if np.iscomplexobj(right) else np.float64
        left, right = left.astype(wide), right.astype(wide)
        with np.errstate(all="ignore"):
            bad = apart_of(left, right)
            greatest = f"{{float(np.abs(left - right)[bad].max(initial=0)):.3g}}"
    if not bad.any():
        print(f"aligned: {{what}}")
        return False
    first = tuple(int(i) for i in np.argwhere(bad)[0])
    count = f"{{int(bad.sum())}} / {{bad.size}} elements"
    print(f"misaligned: {{what}}: {{count}}, greatest difference {{greatest}}")
    print(f"  first at {{first}}: candidate {{left[first].item()!r}}, reference {{right[first].item()!r}}")
    return True


def apart_of(left, right):
    """Return which elements are apart; a strict comparison wants every bit but a NaN's."""
    if STRICTNESS == "tolerance":
        return ~np.isclose(left, right, rtol=RTOL, atol=ATOL, equal_nan=True)
    signs = np.signbit(left.real) != np.signbit(right.real)
    return ((left != right) | signs) & ~(np.isnan(left) & np.isnan(right))
def flags_differ(what, found, expected):
    """Print which flags of a tensor differ, and say whether any does."""
    wrong = [flag for flag in found if flag in expected and found[flag] != expected[flag]]
    for flag in wrong:
        print(f"misaligned: {{flag}} of {{what}}: candidate {{found[flag]}}, reference {{expected[flag]}}")
    return bool(wrong)


def is_array(value):
    """Whether a value is the elements of a tensor and the name of its dtype."""
    return isinstance(value, tuple) and len(value) == 2 and isinstance(value[0], np.ndarray)


def unlike(found, expected):
    """Say whether two values differ that are not both tensors, floats by the tolerance."""
    if isinstance(found, (float, complex)) and type(found) is type(expected):
        rtol, atol = (RTOL, ATOL) if STRICTNESS == "tolerance" else (0, 0)
        return not np.isclose(found, expected, rtol=rtol, atol=atol, equal_nan=True)
    return is_array(found) or is_array(expected) or found != expected


def plain(value):
    """Return a value that is no tensor as it is compared: a shape as a tuple, what is of the framework by its type."""
    if isinstance(value, (tuple, list)) and all(isinstance(item, int) for item in value):
        return tuple(map(int, value))
    if isinstance(value, np.ndarray):
        return value, str(value.dtype)
    is_plain = value is None or isinstance(value, (bool, int, float, complex, str))
    return value if is_plain else f"a {{type(value).__name__}}"


def shown(value):
    if is_array(value):
        return f"{{value[1]}} of shape {{value[0].shape}}"
    return "nothing" if value is None else repr(value)


def observed():
    """Run the candidate; return what it gives, what became of all that it was given, and the flags of both."""
    given, weights = inputs(), {{i: tensor(*told) for i, told in COTANGENTS.items()}}
    outputs, gradients = run(given, weights)
    found = {{name: elements(gradient) for name, gradient in gradients.items()}}
    after = members(given, {{i: elements(weight) for i, weight in weights.items()}})
    own = [flags(output) for output in outputs], {{name: flags(value) for name, value in given.items()}}
    return [elements(output) for output in outputs], found, after, *own


def members(given, weights):
    """Return the elements of every input, of a module's states, and of what was put into the backward pass, by name."""
    found = {{f"gradient put into output {{i}}": weight for i, weight in weights.items()}}
    for name, value in given.items():
        state = value.state_dict() if hasattr(value, "state_dict") else None
        own = {{name: value}} if state is None else {{f"{{name}}.{{key}}": each for key, each in state.items()}}
        found.update({{member: elements(each) for member, each in own.items()}})
    return found


def is_own(error):
    """Whether it is a name that this script lacks: that is no finding."""
    trace = error.__traceback__
    while trace.tb_next is not None:
        trace = trace.tb_next
    return isinstance(error, NameError) and trace.tb_frame.f_code.co_filename == main.__code__.co_filename


def main():
    print(f"found before: {{__doc__.strip().splitlines()[0]}}")
    print(f"found with {{SEEN_WITH}}; running {module} {{getattr({module}, '__version__', 'of unknown version')}}")
    if KIND == "graph":
        print("cannot run: this was found in a graph that ci-autotest makes: ci-autotest replay shows it again")
        return 2
    try:
        outputs, gradients, after, output_flags, after_flags = observed()
    except Exception as error:
        statuses = {{"leniency": 0, "error": 1, "crash": 1, "timeout": 1, "shape": 1}}
        status = 2 if is_own(error) else statuses.get(KIND, 2)
        what = ("aligned", "misaligned", "cannot run")[status]
        print(f"{{what}}: the candidate raises {{type(error).__name__}}: {{error}}")
        return status
    went_back = any(gradient is not None for gradient in gradients.values())
    if KIND == "leniency" and not REFUSED and (went_back or not COTANGENTS):
        where = "backward pass" if COTANGENTS else NAMES[-1]
        print(f"misaligned: {{where}}: the candidate accepts, the reference raises")
        return 1
    bad = len(outputs) != len(OUTPUTS)
    for i, expected in OUTPUTS.items():
        if i in REFUSED:
            how = f"raises {{outputs[i]}}" if outputs[i] else "accepts"
            verdict = "aligned" if outputs[i] else "misaligned"
            print(f"{{verdict}}: {{NAMES[i]}}: the candidate {{how}}, the reference raises {{expected}}")
            bad |= not outputs[i]
        else:
            bad |= differs(f"value of {{NAMES[i]}}", outputs[i], expected)
    for i, expected in FLAGS.items() if KIND == "metadata" else ():
        bad |= flags_differ(NAMES[i], output_flags[i], expected)
    for name, expected in GRADIENTS.items():
        found = gradients.get(name)
        present = [side[0] for side in (found, expected) if side is not None]
        if len(present) == 1 and not present[0].any():
            print(f"aligned: gradient of {{name}}: none, and one of zeros, are the same")
            continue
        bad |= differs(f"gradient of {{name}}", found, expected)
    if KIND in {{"mutation", "state"}}:
        given = inputs()
        for name, before in members(given, COTANGENTS).items():
            bad |= differs(f"{{name}} after the run", after.get(name), AFTER.get(name, before))
        for name, value in given.items():
            bad |= flags_differ(f"{{name}} after the run", after_flags[name], AFTER_FLAGS.get(name, flags(value)))
    return 1 if bad else 0


{watch}
def ended(status):
    """Say in one line what the exit status says; the process that is watched leaves it to the one that watches."""
    said = {{0: "fixed: nothing differs from the reference any more", 1: "misaligned: the candidate is not fixed"}}
    if status in said and not os.environ.get("REPRO_WATCHED"):
        print(said[status])
    return status


if __name__ == "__main__":
    sys.exit(ended({entry}()))
'''

READER: Final = '''
def stored(name, dtype):
    """Read one flat array of tensors.safetensors: a JSON head, then the bytes."""
    data = (HERE / "tensors.safetensors").read_bytes()
    size = int.from_bytes(data[:8], "little")
    first, last = json.loads(data[8 : 8 + size])[name]["data_offsets"]
    return np.frombuffer(data[8 + size + first : 8 + size + last], dtype)


'''

#: For what differs from itself: the candidate is run again and again on the same inputs.
REPEATED: Final = '''
def repeated():
    """Say whether the candidate differs from itself."""
    print(f"found before: {__doc__.strip().splitlines()[0]}")
    first = observed()
    for number in range(2, 51):
        written_to([*first[0], *first[1].values()], number)
        outputs, gradients, *_ = observed()
        pairs = [*zip(outputs, first[0]), *((gradients[name], first[1][name]) for name in gradients)]
        for found, before in pairs:
            if is_array(found) and is_array(before) and found[0].tobytes() != before[0].tobytes():
                print(f"misaligned: run {number} of the candidate differs from its first on the same inputs")
                return 1
    print("aligned: fifty runs of the candidate are the same")
    return 0


def written_to(results, number):
    """Leave memory of the results' sizes behind that a number was written to: what nothing writes to shows it."""
    floats = [found for found in results if is_array(found) and found[0].dtype.kind == "f" and found[0].size]
    room = (1 << 25) // max(len(floats), 1)  # bytes
    held = []
    for array, dtype in floats:
        one = tensor(np.full(array.shape, number, array.dtype), dtype)
        held += [one + one for _ in range(max(1, min(8, room // array.nbytes)))]
    for one in held:
        elements(one)  # waits until it is written


'''

#: Tensors and gradients of a module with torch's names.
TORCH_LIKE: Final = '''
def tensor(array, dtype, requires_grad=False):
    """Return a leaf; bfloat16 comes as float32 of the same values."""
    made = {m}.from_numpy(np.array(array)) if array.size else {m}.zeros(array.shape)
    made = made.to(getattr({m}, dtype)).to(device)
    return made.requires_grad_() if requires_grad else made


def elements(value):
    """Return a tensor's elements and the name of its dtype, any other value as it is compared."""
    if not isinstance(value, {m}.Tensor):
        return plain(value)
    dtype = str(value.dtype).rpartition(".")[2]
    value = value.detach().cpu()
    return np.array((value.to({m}.float32) if dtype == "bfloat16" else value).numpy()), dtype


def flags(value):
    """Return what is compared of a tensor besides its elements."""
    return {{"requires_grad": value.requires_grad, "is_leaf": value.is_leaf}} if isinstance(value, {m}.Tensor) else {{}}


def run(given, weights):
    """Return the candidate's outputs and gradients."""
    outputs = candidate(**{{name: given[name] for name in TAKES}})
    wanted = {{name: value for name, value in given.items() if isinstance(value, {m}.Tensor) and value.requires_grad}}
    for name, module in given.items():
        if hasattr(module, "named_parameters"):
            wanted.update({{f"{{name}}.{{n}}": p for n, p in module.named_parameters() if p.requires_grad}})
    roots = [(o, weights[i]) for i, o in enumerate(outputs) if i in weights and o.requires_grad]
    if roots and wanted:
        {m}.autograd.backward([o for o, _ in roots], [w for _, w in roots])
    return outputs, {{name: value.grad for name, value in wanted.items()}}

'''
#: In place of ``run`` above, where each body is one graph: outputs without gradients, and beside the eager ones.
GRAPHED: Final = '''
class Body({m}.nn.Graph):
    """The candidate as one graph."""

    def __init__(self, given):
        super().__init__()
        for name in TAKES:
            if not isinstance(given[name], {m}.Tensor):
                setattr(self, f"part_{{name}}", given[name])

    def build(self, *tensors):
        left = iter(tensors)
        return list(candidate(**{{n: getattr(self, f"part_{{n}}", None) or next(left) for n in TAKES}}))


def as_graph(given):
    return Body(given)(*[given[name] for name in TAKES if isinstance(given[name], {m}.Tensor)])


def run(given, weights):
    """Return the candidate's outputs."""
    return as_graph(given), {{}}


def graphed():
    """Say whether the body as one graph departs from the same body run eagerly."""
    print(f"found before: {{__doc__.strip().splitlines()[0]}}")
    given, again, bad = inputs(), inputs(), False
    eager = candidate(**{{name: given[name] for name in TAKES}})
    for name, found, expected in zip(NAMES, as_graph(again), eager):
        bad |= differs(f"value of {{name}}, as a graph", elements(found), elements(expected))
    for name in TAKES:
        if hasattr(given[name], "state_dict"):
            state = again[name].state_dict()
            for key, expected in given[name].state_dict().items():
                bad |= differs(f"{{name}}.{{key}} after the run, as a graph", elements(state[key]), elements(expected))
    return 1 if bad else 0

'''
