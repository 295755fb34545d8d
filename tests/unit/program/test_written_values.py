"""Which values a step writes to, told by its spelling."""

from __future__ import annotations

import inspect

import pytest
from torch import nn

from ci_autotest.program.ir import CALL_FUNCTION, CALL_METHOD, CALL_MODULE, PLACEHOLDER, List, Ref, Step
from ci_autotest.program.written_values import IN_PLACE_AT, written_values

WRITING = [
    Step(CALL_METHOD, "exp_", (Ref(0),)),
    Step(CALL_METHOD, "__iadd__", (Ref(0), 1)),
    Step(CALL_METHOD, "__setitem__", (Ref(0), 0, 1)),
    Step(CALL_FUNCTION, "torch.exp_", (Ref(0),)),
    Step(CALL_FUNCTION, "operator.iand", (Ref(0), 1)),
    Step(CALL_FUNCTION, "operator.setitem", (Ref(0), 0, 1)),
    Step(CALL_FUNCTION, "torch.nn.functional.relu", (Ref(0),), (("inplace", True),)),
    Step(CALL_FUNCTION, "torch.nn.functional.relu", (Ref(0), True)),
    Step(CALL_FUNCTION, "torch.nn.functional.elu", (), (("input", Ref(0)), ("inplace", True))),
    Step(CALL_FUNCTION, "torch.exp", (Ref(1),), (("out", Ref(0)),)),
    Step(CALL_FUNCTION, "torch.ops.aten.exp_.default", (Ref(0),)),
    Step(CALL_FUNCTION, "torch.ops.aten.__iand__.Scalar", (Ref(0), 1)),
    Step(CALL_FUNCTION, "torch.ops.aten.exp.out", (Ref(1),), (("out", Ref(0)),)),
]
READING = [
    Step(CALL_METHOD, "exp", (Ref(0),)),
    Step(CALL_METHOD, "__and__", (Ref(0), 1)),
    # The underscore tells these from Python's keywords.
    Step(CALL_FUNCTION, "operator.and_", (Ref(0), 1)),
    Step(CALL_FUNCTION, "operator.not_", (Ref(0),)),
    Step(CALL_FUNCTION, "operator.invert", (Ref(0),)),
    Step(CALL_FUNCTION, "torch.isnan", (Ref(0),)),
    Step(CALL_FUNCTION, "torch.nn.functional.relu", (Ref(0),), (("inplace", False),)),
    # What the user's own do is not told by their names.
    Step(CALL_FUNCTION, "torch.ops.mine.scale_", (Ref(0), 2.0)),
    Step(CALL_FUNCTION, "mykernels.scale_", (Ref(0), 2.0)),
    Step(CALL_FUNCTION, "torch.ops.aten.exp.default", (Ref(0),)),
    Step(CALL_METHOD, "requires_grad_", (Ref(0),)),
    Step(CALL_FUNCTION, "torch.nn.ReLU", (), (("inplace", True),), "module", in_setup=True),
    Step(CALL_FUNCTION, "torch.nn.functional.elu", (Ref(0), True)),
    Step(PLACEHOLDER, "t0_", ()),
]


@pytest.mark.parametrize(
    ("step", "expected"), [*((step, True) for step in WRITING), *((step, False) for step in READING)],
    ids=[step.target for step in (*WRITING, *READING)],
)  # fmt: skip
def test_written_values__each_spelling(step: Step, expected: bool):
    assert written_values(step, ()) == ((Ref(0),) if expected else ())


def module(name: str, *args, **kwargs) -> Step:
    return Step(CALL_FUNCTION, f"torch.nn.{name}", args, tuple(kwargs.items()), "module", in_setup=True)


@pytest.mark.parametrize(
    ("setup", "expected"),
    [
        ((module("ReLU", inplace=True),), True),
        ((module("ReLU", True),), True),
        ((module("ELU", 1.0, True),), True),
        ((module("ReLU", inplace=False),), False),
        ((module("Linear", 2, 2),), False),
        ((module("ReLU", True), module("Sequential", Ref(0))), True),
        ((module("Flatten"), module("ReLU", True), module("Sequential", Ref(0), Ref(1))), True),
        ((module("Dropout"), module("ReLU", True), module("Sequential", Ref(0), Ref(1))), False),
        (
            (
                module("Dropout"),
                module("ReLU", True),
                module("Sequential", Ref(0), Ref(1)),
                Step(CALL_METHOD, "eval", (Ref(2),), in_setup=True),
            ),
            True,
        ),
        # The second layer writes to what the first has made.
        ((module("Linear", 2, 2), module("ReLU", True), module("Sequential", Ref(0), Ref(1))), False),
    ],
)
def test_written_values__call_of_a_module__goes_by_its_constructor(setup: tuple[Step, ...], expected: bool):
    last = max(at for at, step in enumerate(setup) if step.op == CALL_FUNCTION)
    call = Step(CALL_MODULE, setup[last].target, (Ref(last), Ref(9)))
    assert written_values(call, setup) == ((Ref(9),) if expected else ())


def test_written_values__list_behind_out__is_all_of_it():
    step = Step(CALL_FUNCTION, "torch.frexp", (Ref(0),), (("out", List((Ref(1), Ref(2)))),))
    assert written_values(step, ()) == (Ref(1), Ref(2))


@pytest.mark.parametrize("name", IN_PLACE_AT)
def test_in_place_at__is_the_place_in_torchs_signature(name: str):
    is_layer = name[0].isupper()
    named = list(inspect.signature(getattr(nn if is_layer else nn.functional, name)).parameters)
    assert named[IN_PLACE_AT[name]] == "inplace"


def test_in_place_at__has_every_function_and_layer_of_torch():
    both = [(nn.functional, str.islower), (nn, str.isalnum)]
    found = {
        name
        for namespace, is_named in both
        for name in dir(namespace)
        if is_named(name) and not name.startswith("_") and callable(value := getattr(namespace, name))
        if (inspect.isclass(value) or namespace is nn.functional) and "inplace" in _parameters(value)
    }
    assert found <= IN_PLACE_AT.keys()


def _parameters(value: object) -> list[str]:
    try:
        return list(inspect.signature(value).parameters)
    except (TypeError, ValueError):
        return []
