"""Facts of a program, its steps and its specs."""

from __future__ import annotations

import pytest

from ci_autotest.program.ir import Program, Ref, Step, TensorSpec
from ci_autotest.program.note import Note
from ci_autotest.program.recording import Recording

SLICED = TensorSpec("float32", (2, 3), (6, 2), 1, 12, requires_grad=True, state="buffer")
MODULE = Step("call_function", "torch.nn.Linear", (2, 2), (), "module", in_setup=True)
X = Step("placeholder", "x", (TensorSpec.plain("float32", (2,)),), (), "x")
OUTPUT = Step("output", "output", (Ref(2),), (), "output")
RELU = Step("call_method", "relu", (Ref(1),), (), "y")
PROGRAM = Program((MODULE,), (X, RELU, OUTPUT), (None, TensorSpec.plain("float32", (2,))))


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        pytest.param(
            TensorSpec.plain("int64", (2, 0, 3)), TensorSpec("int64", (2, 0, 3), (3, 3, 1), 0, 0), id="plain, empty"
        ),
        pytest.param(TensorSpec.plain("int64", ()), TensorSpec("int64", (), (), 0, 1), id="plain, of no dimension"),
        pytest.param(
            SLICED.contiguous(dtype="float64"),
            TensorSpec("float64", (2, 3), (3, 1), 0, 6, requires_grad=True, state="buffer"),
            id="contiguous, of another dtype",
        ),
        pytest.param(
            SLICED.contiguous(shape=(4,)),
            TensorSpec("float32", (4,), (1,), 0, 4, requires_grad=True, state="buffer"),
            id="contiguous, of another shape",
        ),
        pytest.param(
            TensorSpec.plain("float32", (2, 3)).spread(), TensorSpec("float32", (2, 3), (6, 2), 3, 15), id="spread"
        ),
    ],
)
def test_spec__made_of_another__has_its_layout(found: TensorSpec, expected: TensorSpec) -> None:
    assert found == expected


def test_label__of_a_spec__is_its_dtype_and_sizes() -> None:
    assert SLICED.label == "float32[2, 3]"


def test_numbered__of_a_program__counts_the_setup_too() -> None:
    assert (PROGRAM.start, list(PROGRAM.numbered)) == (1, [(1, X), (2, RELU), (3, OUTPUT)])


def test_calls__of_a_program__are_neither_inputs_nor_the_output() -> None:
    assert PROGRAM.calls == ((2, RELU),)
    assert [step.is_call for step in PROGRAM.steps] == [True, False, True, False]


def test_with_program__after_an_edit__keeps_the_data_of_what_is_left() -> None:
    tensors = {"x": b"x", "cotangent_1": b"c", "output_0": b"o"}
    whole = Recording(PROGRAM, tensors, Note(test="t"), {"output_0": SLICED}, {"output_0": True})
    shorter = Program((), (X, OUTPUT._replace(args=(Ref(0),))))

    assert whole.with_program(shorter) == Recording(shorter, {"x": b"x"}, Note(test="t"))
    assert whole.with_program(PROGRAM, {"x": b"0"}).tensors == {"x": b"0", "cotangent_1": b"c"}
