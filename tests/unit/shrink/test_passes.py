"""Each pass over a program against a judge that is a pure function: the exact minimum, and none of it lost on a second look."""

from __future__ import annotations

import numpy as np
import pytest

from ci_autotest.program.check import check_program
from ci_autotest.program.ir import (
    CALL_FUNCTION,
    CALL_METHOD,
    OUTPUT,
    PLACEHOLDER,
    DType,
    Program,
    Ref,
    Step,
    TensorSpec,
    contiguous_strides,
)
from ci_autotest.program.note import Note, SubstituteNote
from ci_autotest.program.recording import Recording
from ci_autotest.shrink.shrinker import Inline, ShownTrial, Shrinker, TrialProgram
from ci_autotest.values.verdict import Verdict

BAD = Verdict(outcome="misaligned", operator="torch.exp", kind="value", blame="candidate")
GOOD = Verdict(outcome="aligned")
NUMPY = {"float32": "<f4", "float64": "<f8", "float16": "<f2", "int64": "<i8"}


def tensor(key, shape=(2,), dtype="float32", **how):
    strides = how.pop("strides", contiguous_strides(shape))
    size = how.pop("size", int(np.prod(shape)))
    return Step(PLACEHOLDER, key, (TensorSpec(dtype, shape, strides, 0, size),), (), key)


def call(name, *args, **kwargs):
    return Step(CALL_FUNCTION, f"torch.{name}", args, tuple(kwargs.items()), name)


def recording(*body, setup=()):
    steps = (*setup, *body)
    tensors = {}
    for step in steps:
        if step.op == PLACEHOLDER:
            spec = step.args[0]
            tensors[step.target] = (np.arange(spec.storage_size) + 0.5).astype(NUMPY[spec.dtype]).tobytes()
    ended = (*body, Step(OUTPUT, "output", (Ref(len(steps) - 1),), (), "output"))
    return Recording(Program(setup, ended), tensors)


def shrunk(start, fails):
    """Shrink by a judge that looks at the recording; an inlined step is made an input of its first argument's spec."""
    shrinker = Shrinker(ShownTrial(BAD, start))
    while (proposal := shrinker.propose()) is not None:
        if isinstance(proposal, Inline):
            shown = inlined(proposal.recording, proposal.step)
        else:
            assert isinstance(proposal, TrialProgram)
            shown = pruned(proposal.recording)
        check_program(shown.program)
        shrinker.tell(ShownTrial(BAD if fails(shown) else GOOD, shown))
    assert shrinker.trials <= 200
    return shrinker


def inlined(shown, index):
    steps = list(shown.program.steps)
    spec = next(step.args[0] for step in steps if step.op == PLACEHOLDER)
    steps[index] = Step(PLACEHOLDER, f"made{index}", (spec,), (), steps[index].name)
    data = next(iter(shown.tensors.values()))
    return pruned(Recording(Program((), tuple(steps)), {**shown.tensors, f"made{index}": data}))


def pruned(shown):
    """Drop what the output does not need, as the worker does."""
    steps = shown.program.steps
    needed = {len(steps) - 1}
    for index in reversed(range(len(steps))):
        if index in needed or steps[index].in_setup:
            needed |= {index, *(ref.index for arg in steps[index].args for ref in refs(arg))}
    kept = sorted(needed)
    moved = {old: new for new, old in enumerate(kept)}
    body = tuple(steps[i]._replace(args=tuple(renumbered(arg, moved) for arg in steps[i].args)) for i in kept)
    keys = {step.target for step in body if step.op == PLACEHOLDER}
    return Recording(Program((), body), {key: data for key, data in shown.tensors.items() if key in keys}, shown.note)


def refs(arg):
    return (
        [arg]
        if isinstance(arg, Ref)
        else [item for item in arg if isinstance(item, Ref)]
        if isinstance(arg, tuple)
        else []
    )


def renumbered(arg, moved):
    if isinstance(arg, Ref):
        return Ref(moved[arg.index])
    return tuple(renumbered(item, moved) for item in arg) if isinstance(arg, tuple) else arg


def targets(shown):
    return [step.target for step in shown.program.body if step.op != OUTPUT]


CHAIN = recording(tensor("t0"), call("sin", Ref(0)), call("exp", Ref(1)), call("cos", Ref(2)), call("tanh", Ref(3)))


@pytest.mark.parametrize(
    ("needed", "minimum"),
    [
        pytest.param({"torch.exp"}, ["made", "torch.exp"], id="one step: cut after it, its input made an input"),
        pytest.param({"torch.sin"}, ["t0", "torch.sin"], id="the first: all others cut"),
        pytest.param({"torch.sin", "torch.cos"}, ["t0", "torch.sin", "torch.cos"], id="two: the one between deleted"),
        pytest.param({"torch.exp", "torch.tanh"}, ["made", "torch.exp", "torch.tanh"], id="two: before them made an input"),
        pytest.param(
            {"torch.sin", "torch.exp", "torch.cos", "torch.tanh"},
            ["t0", "torch.sin", "torch.exp", "torch.cos", "torch.tanh"], id="all",
        ),
    ],
)  # fmt: skip
def test_shrinker__steps__reach_the_minimum(needed, minimum):
    best = shrunk(CHAIN, lambda shown: needed <= set(targets(shown))).best.recording
    assert [target.rstrip("0123456789") if target.startswith("made") else target for target in targets(best)] == minimum


def only_spec(shown):
    return next(step.args[0] for step in shown.program.body if step.op == PLACEHOLDER)


@pytest.mark.parametrize("least", [1, 2, 3, 5, 16, 31, 32])
def test_shrinker__size_of_a_program__is_the_least_that_fails(least):
    start = recording(tensor("t0", (32,)), call("exp", Ref(0)))
    shrinker = shrunk(start, lambda shown: only_spec(shown).shape[0] >= least)
    assert only_spec(shrinker.best.recording).shape == (least,)
    assert len(shrinker.best.recording.tensors["t0"]) == 4 * least


def test_shrinker__equal_sizes__stay_linked_in_inputs_states_and_arguments():
    start = recording(
        tensor("t0", (3, 7)), tensor("t1", (7,)), call("nn.functional.layer_norm", Ref(0), (7,), Ref(1)),
    )  # fmt: skip

    def fits(shown):
        first, second = (step.args[0].shape for step in shown.program.body[:2])
        return first[-1:] == second == shown.program.body[2].args[1] and first[-1] >= 2

    best = shrunk(start, fits).best.recording.program.body
    assert [step.args[0].shape for step in best[:2]] == [(1, 2), (2,)]
    assert best[2].args[1] == (2,)


def test_shrinker__last_elements_matter__keeps_those():
    start = recording(tensor("t0", (9,)), call("exp", Ref(0)))
    best = shrunk(start, lambda shown: np.frombuffer(shown.tensors["t0"], "<f4")[-1] == 8.5).best.recording
    assert np.frombuffer(best.tensors["t0"], "<f4").tolist() == [8.5]


@pytest.mark.parametrize("dtype", ["float16", "float64"])
def test_shrinker__dtype_that_does_not_matter__is_float32(dtype):
    start = recording(tensor("t0", dtype=dtype), Step(CALL_METHOD, "to", (Ref(0), DType(dtype))))
    best = shrunk(start, lambda _: True).best.recording.program
    assert best.body[0].args[0].dtype == "float32"
    assert best.body[1].args[1:] in {(), (DType("float32"),)}
    kept = shrunk(start, lambda shown: only_spec(shown).dtype == dtype).best.recording
    assert only_spec(kept).dtype == dtype


def test_shrinker__layout_that_does_not_matter__is_contiguous():
    start = recording(tensor("t0", (2, 3), strides=(1, 2)), call("exp", Ref(0)))
    best = shrunk(start, lambda shown: only_spec(shown).shape == (2, 3) and shown.tensors["t0"] != bytes(24)).best
    assert only_spec(best.recording).is_contiguous
    kept = shrunk(start, lambda shown: only_spec(shown).strides == (1, 2)).best.recording
    assert not only_spec(kept).is_contiguous


@pytest.mark.parametrize(
    ("needed", "kwargs"),
    [
        pytest.param(set(), [], id="none matters"),
        pytest.param({"stride"}, ["stride"], id="one matters"),
        pytest.param({"stride", "padding"}, ["stride", "padding"], id="both matter"),
    ],
)
def test_shrinker__optional_arguments__are_dropped(needed, kwargs):
    start = recording(tensor("t0"), call("nn.functional.max_pool1d", Ref(0), 2, stride=3, padding=1))
    best = shrunk(start, lambda shown: needed <= {key for key, _ in shown.program.body[1].kwargs}).best.recording
    assert [key for key, _ in best.program.body[1].kwargs] == kwargs


def test_shrinker__call_that_a_users_function_answers__keeps_its_arguments():
    start = recording(tensor("t0"), call("nn.functional.softmax", Ref(0), dim=0))
    start = Recording(
        start.program, start.tensors, Note(side=SubstituteNote(renames={"torch.nn.functional.softmax": "mine.softmax"}))
    )
    assert shrunk(start, lambda _: True).best.recording.program.body[1].kwargs == (("dim", 0),)


def test_shrinker__positional_constants__are_dropped_from_the_end():
    start = recording(tensor("t0"), call("transpose", Ref(0), 1, 2, None))
    best = shrunk(start, lambda shown: len(shown.program.body[1].args) >= 3).best.recording
    assert best.program.body[1].args == (Ref(0), 1, 2)


def test_shrinker__one_element_of_many__is_the_only_one_left():
    start = recording(tensor("t0", (500,)), call("exp", Ref(0)))

    def fails(shown):
        found = np.frombuffer(shown.tensors["t0"], "<f4")
        return len(found) == 500 and found[321] != 0

    best = np.frombuffer(shrunk(start, fails).best.recording.tensors["t0"], "<f4")
    assert best[321] != 0
    assert np.count_nonzero(best) <= 500 // 16 + 1
