"""The interpreter: what each opcode means, in any framework. Here with plain numbers."""

from __future__ import annotations

import pytest

from ci_autotest.host.steps import PYTHON_TARGETS, execute_step, materialize
from ci_autotest.program.ir import (
    CALL_FUNCTION,
    CALL_METHOD,
    CALL_MODULE,
    GET_ATTR,
    OUTPUT,
    PLACEHOLDER,
    UNPACK,
    DType,
    List,
    Mapping_,
    Ref,
    Slice,
    Step,
)
from ci_autotest.program.targets import is_function


class Numbers:
    """A framework whose tensors are numbers."""

    def __init__(self) -> None:
        self.modes = []

    def placeholder(self, step):
        return {"t0": 7}[step.target]

    def function(self, target):
        return {"torch.add": lambda a, b, alpha=1: a + alpha * b, "torch.list": lambda *args, **kw: (args, kw)}[target]

    def constant(self, argument):
        return f"<{argument.name}>"

    def in_mode(self, step, call):
        self.modes.append((step.modes, step.seed))
        return call()


class Inner:
    weight = 6


class Adder:
    weight = 5
    inner = Inner()

    def __call__(self, value, by=1):
        return value + by

    def scaled(self, by):
        return 10 * by


@pytest.mark.parametrize(
    ("step", "value"),
    [
        (Step(PLACEHOLDER, "t0", (None,)), 7),
        (Step(CALL_FUNCTION, "torch.add", (Ref(0), 2)), 3),
        (Step(CALL_FUNCTION, "torch.add", (Ref(0), 2), (("alpha", Ref(1)),)), 5),
        (Step(CALL_FUNCTION, "operator.sub", (Ref(0), Ref(1))), -1),
        (Step(CALL_FUNCTION, UNPACK, (Ref(2), 1)), "b"),
        (Step(CALL_FUNCTION, "builtins.len", (Ref(2),)), 2),
        (Step(CALL_FUNCTION, "builtins.getattr", (Ref(3), "weight")), 5),
        (Step(CALL_METHOD, "scaled", (Ref(3), 4)), 40),
        (Step(CALL_MODULE, "torch.nn.Adder", (Ref(3), Ref(0)), (("by", 9),)), 10),
        (Step(GET_ATTR, "weight", (Ref(3),)), 5),
        (Step(CALL_METHOD, "get_parameter", (Ref(3), "inner.weight")), 6),
    ],
    ids=lambda value: value.target if isinstance(value, Step) else "",
)
def test_execute_step__opcode__computes(step, value):
    assert execute_step(step, [1, 2, ("a", "b"), Adder()], Numbers()) == value


def test_execute_step__arguments__are_materialized():
    step = Step(
        CALL_FUNCTION, "torch.list",
        ((Ref(0), 1), List((Ref(1), List(()))), Slice(None, Ref(0), 2), Mapping_((("k", Ref(1)),)), ..., None),
        (("dtype", DType("float32")),),
    )  # fmt: skip
    args, kwargs = execute_step(step, [1, 2], Numbers())
    assert args == ((1, 1), [2, []], slice(None, 1, 2), {"k": 2}, ..., None)
    assert kwargs == {"dtype": "<float32>"}


@pytest.mark.parametrize(
    ("how", "modes"),
    [({}, []), ({"modes": ("no_grad",)}, [(("no_grad",), None)]), ({"seed": 3}, [((), 3)])],
    ids=["none", "no grad", "seed"],
)
def test_execute_step__mode__is_the_bindings(how, modes):
    numbers = Numbers()
    assert execute_step(Step(CALL_FUNCTION, "torch.add", (1, 2), **how), [], numbers) == 3
    assert numbers.modes == modes


def test_execute_step__output__computes_nothing():
    with pytest.raises((ValueError, IndexError)):
        execute_step(Step(OUTPUT, "output", (Ref(0),)), [1], Numbers())


@pytest.mark.parametrize("value", [True, 1, 1.5, 2j, "s", None, ...], ids=str)
def test_materialize__plain_value__is_itself(value):
    assert materialize(value, [], Numbers().constant) is value


def test_python_targets__each__is_on_the_allow_list():
    assert [target for target in PYTHON_TARGETS if not is_function(target)] == []
