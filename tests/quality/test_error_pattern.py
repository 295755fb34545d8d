"""The pattern of a finding is computed on the case as it was found, with the step's inputs by name."""

import pytest
import torch

from ci_autotest.alignment.error_pattern import inputs_of, pattern_of
from ci_autotest.backends.trace import Trace
from ci_autotest.program.ir import Program, Ref, Step
from ci_autotest.testing import random_tensor
from ci_autotest.values.error_pattern import Box, Condition, Everything, Scaled, Span
from ci_autotest.values.tolerance import Tolerance
from tests import engine

_TOLERANCE = Tolerance(1e-5, 1e-5)


def test_pattern_of__last_columns_of_a_softmax__are_named_with_the_constant():
    reference = torch.softmax(torch.randn(20, 35, generator=torch.Generator().manual_seed(1)), -1)
    candidate = reference.clone()
    candidate[:, -3:] = 0.25

    found = pattern_of((candidate, reference), {}, _TOLERANCE)

    assert (found.region, found.mismatched) == (Box(parts=(Span(axis=1, start=32, stop=35, size=35),)), 60)


def test_pattern_of__zeros_of_an_input__are_named_with_the_input():
    x = torch.randn(30, 20, generator=torch.Generator().manual_seed(2)).relu()
    candidate = torch.where(x == 0, 0.5, x)

    assert pattern_of((candidate, x), {"x": x}, _TOLERANCE).region == Condition(input="x", property="zero")


@pytest.mark.parametrize("dtype", [torch.complex64, torch.int64, torch.bfloat16])
def test_pattern_of__dtype__factor_is_named(dtype):
    reference = torch.arange(1, 41).reshape(5, 8).to(dtype)

    found = pattern_of((reference * 2, reference), {}, Tolerance(0.0, 0.0))

    assert (found.region, found.relation) == (Everything(), Scaled(factor=2.0))


@pytest.mark.parametrize(
    "sides",
    [(torch.ones(3), torch.ones(4)), (torch.ones(3), torch.ones(3)), (torch.ones(0), torch.ones(0))],
    ids=["other shape", "equal", "empty"],
)
def test_pattern_of__nothing_to_describe__is_none(sides):
    assert pattern_of(sides, {}, _TOLERANCE) is None


def test_judge_program__step_that_writes_to_its_input__is_described_by_what_it_was_given():
    def body():
        return random_tensor(ndim=2, dim0=20, dim1=20, requires_grad=False).relu().add_(1.0)

    def add(x, other):
        return torch.where(x == 0, 7.0, torch.add(x, other))

    pattern = engine.tried(body, engine.substitute(add=add)).pattern

    assert (pattern.region.property, pattern.region.input) == ("zero", "x")


def test_inputs_of__two_inputs_that_are_recorded_by_one_name__are_both_there():
    steps = tuple(Step("placeholder", f"input_{i}", (), (), "tensor") for i in range(2))
    call = Step("call_function", "torch.add", (Ref(0), Ref(1)), (), "y")
    trace = Trace()
    trace.values = [torch.zeros(2), torch.ones(2), None]

    found = inputs_of(Program((), (*steps, call)), 2, trace, has_backward=False)

    assert list(found) == ["tensor", "tensor_1"]


def test_inputs_of__values_that_numpy_cannot_have__are_left_out():
    values = [torch.eye(3).to_sparse(), torch.empty(3, device="meta"), torch.ones(2), 5]
    steps = [Step("placeholder", f"input_{i}", (), (), f"v{i}") for i in range(4)]
    call = Step("call_function", "torch.add", tuple(Ref(i) for i in range(4)), (), "y")

    trace = Trace()
    trace.values = values

    found = inputs_of(Program((), (*steps, call)), 4, trace, has_backward=False)

    assert list(found) == ["v2"]
