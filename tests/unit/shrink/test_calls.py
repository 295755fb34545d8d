"""Fewer calls: the exact minimum of a sequence, whatever a kernel has to remember."""

from __future__ import annotations

import pytest

from ci_autotest.program.codegen import body_lines
from ci_autotest.program.ir import (
    CALL_FUNCTION,
    CALL_METHOD,
    CALL_MODULE,
    NO_GRAD,
    OUTPUT,
    PLACEHOLDER,
    Copy,
    Program,
    Ref,
    Step,
    TensorSpec,
    output_refs,
)
from ci_autotest.program.recording import Recording
from ci_autotest.shrink.calls import fewer_calls, given_back, plain_calls, same_calls

SPEC = TensorSpec("float32", (1,), (1,), 0, 1)


def sequence(calls: int, *, inputs: int = 1) -> Recording:
    """Return calls of ``tanh``, each on one of some inputs, all of them outputs."""
    placed = [Step(PLACEHOLDER, f"t{i}", (SPEC,), (), "x") for i in range(inputs)]
    made = [Step(CALL_FUNCTION, "torch.tanh", (Ref(i % inputs),), (), "tanh") for i in range(calls)]
    outputs = tuple(Ref(inputs + i) for i in range(calls))
    program = Program((), (*placed, *made, Step(OUTPUT, "output", outputs, (), "output")))
    return Recording(program, {f"t{i}": bytes(4) for i in range(inputs)})


def shrunk(recording: Recording, passes, shows) -> Recording:
    """Return the smallest that shows it; the value that differs is the last call's."""
    best = [recording]
    last = lambda: best[0].program.calls[-1][0]  # noqa: E731 - one expression
    for change in passes:
        for proposal in change(lambda: best[0], last):
            if shows(proposal.program):
                best[0] = proposal
    return best[0]


@pytest.mark.parametrize("needed", [1, 2, 7])
def test_fewer_calls__kernel_counts__reach_the_minimum(needed):
    found = shrunk(sequence(20, inputs=5), [fewer_calls], lambda program: len(program.calls) >= needed)
    assert len(found.program.calls) == needed
    assert found.tensors.keys() == {step.target for step in found.program.body if step.op == PLACEHOLDER}


def test_fewer_calls__again__proposes_nothing_that_shows_it():
    shows = lambda program: len(program.calls) >= 3  # noqa: E731 - one expression
    found = shrunk(sequence(9), [fewer_calls], shows)
    assert shrunk(found, [fewer_calls], shows).program == found.program


def test_fewer_calls__what_is_computed_from_a_call__goes_with_it():
    x, tanh = Step(PLACEHOLDER, "t0", (SPEC,), (), "x"), Step(CALL_FUNCTION, "torch.tanh", (Ref(0),), (), "tanh")
    of_it = Step(CALL_FUNCTION, "torch.exp", (Ref(1),), (), "exp")
    output = Step(OUTPUT, "output", (Ref(1), Ref(2), Ref(3)), (), "output")
    recording = Recording(Program((), (x, tanh, of_it, tanh, output)), {"t0": bytes(4)})
    found = shrunk(recording, [fewer_calls], lambda program: program.calls[-1][1].target == "torch.tanh")
    assert [step.target for _, step in found.program.calls] == ["torch.tanh"]


def test_fewer_calls__a_write_that_is_needed__stays():
    x, new = (Step(PLACEHOLDER, f"t{i}", (SPEC,), (), name) for i, name in enumerate(("x", "new")))
    tanh = Step(CALL_FUNCTION, "torch.tanh", (Ref(0),), (), "tanh")
    write = Step(CALL_METHOD, "copy_", (Ref(0), Ref(1)), (), "written", NO_GRAD)
    output = Step(OUTPUT, "output", (Ref(2), Ref(4), Ref(5)), (), "output")
    recording = Recording(Program((), (x, new, tanh, write, tanh, tanh, output)), {"t0": bytes(4), "t1": bytes(4)})

    def shows(program: Program) -> bool:
        targets = [step.target for _, step in program.calls]
        return "copy_" in targets and targets[-1] == "torch.tanh" and targets.index("copy_") > 0

    assert [step.target for _, step in shrunk(recording, [fewer_calls], shows).program.calls] == [
        "torch.tanh",
        "copy_",
        "torch.tanh",
    ]


def test_same_calls__many__are_a_loop():
    found = shrunk(sequence(31, inputs=4), [fewer_calls, same_calls], lambda program: len(program.calls) >= 31)
    last = found.program.calls[-1][0]
    only = Recording(
        Program((), (*found.program.body[:-1], Step(OUTPUT, "output", (Ref(last),), (), "output"))), found.tensors
    )
    assert body_lines(only.program) == ["for _ in range(30):", "    torch.tanh(x)", "tanh_30 = torch.tanh(x)"]


def test_given_back__value_that_differs__is_an_output():
    recording = sequence(3)
    cut = Recording(
        Program((), (*recording.program.body[:-1], Step(OUTPUT, "output", (Ref(3),), (), "output"))), recording.tensors
    )
    (found,) = given_back(lambda: cut, lambda: 1)
    assert output_refs(found.program) == (Ref(3), Ref(1))
    assert list(given_back(lambda: found, lambda: 1)) == []


def odd(recording: Recording) -> Recording:
    """Return a sequence whose calls are on copies, every second one without gradients."""
    program = recording.program
    calls = [index for index, _ in program.calls]
    body = tuple(
        step._replace(args=(Copy(step.args[0]),), modes=NO_GRAD if index % 2 else ()) if index in calls else step
        for index, step in enumerate(program.body)
    )
    return Recording(Program((), body), recording.tensors)


def test_plain_calls__nothing_hangs_on_copies_or_gradients__all_are_plain():
    found = shrunk(odd(sequence(5)), [plain_calls], lambda program: len(program.calls) == 5)
    assert found.program == sequence(5).program


def test_plain_calls__one_call_must_be_on_a_copy__the_others_are_plain():
    needed = lambda program: isinstance(program.calls[2][1].args[0], Copy)  # noqa: E731 - one expression
    found = shrunk(odd(sequence(5)), [plain_calls], needed)
    assert [isinstance(step.args[0], Copy) for _, step in found.program.calls] == [False, False, True, False, False]


def test_plain_calls__again__proposes_nothing():
    assert list(plain_calls(lambda: sequence(3), lambda: 1)) == []


def test_fewer_calls__setup_of_modules_that_no_call_is_left_of__goes_with_them():
    def module(name: str) -> Step:
        return Step(CALL_FUNCTION, "torch.nn.Tanh", (), (), name, in_setup=True)

    container = Step(CALL_FUNCTION, "torch.nn.Sequential", (Ref(1),), (), "container", in_setup=True)
    evaluated = Step(CALL_METHOD, "eval", (Ref(2),), (), "evaluated", in_setup=True)
    calls = [Step(CALL_MODULE, "", (Ref(i), Ref(4)), (), "tanh") for i in (0, 1)]
    placed = Step(PLACEHOLDER, "t0", (SPEC,), (), "x")
    body = (placed, *calls, Step(OUTPUT, "output", (Ref(5), Ref(6)), (), "output"))
    recording = Recording(Program((module("a"), module("b"), container, evaluated), body), {"t0": bytes(4)})
    found = shrunk(recording, [fewer_calls], lambda program: len(program.calls) >= 1)
    assert [step.name for step in found.program.setup] == ["b", "container", "evaluated"]
    assert len(found.program.calls) == 1


def test_plain_calls__on_another_tensor_over_the_same_memory__is_on_the_input():
    data = Step(CALL_FUNCTION, "builtins.getattr", (Ref(0), "data"), (), "data")
    found = sequence(1).program
    called = found.body[1]._replace(args=(Ref(1),))
    body = (found.body[0], data, called, found.body[2]._replace(args=(Ref(2),)))
    recording = Recording(Program((), body), sequence(1).tensors)
    assert shrunk(recording, [plain_calls, fewer_calls], lambda _: True).program == found
