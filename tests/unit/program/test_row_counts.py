"""A number of rows is found where it is a size, and nowhere else."""

from __future__ import annotations

from typing import Any

import pytest

from ci_autotest.program.ir import CALL_FUNCTION, CALL_METHOD, List, Ref, Step
from ci_autotest.program.row_counts import with_rows

X = Ref(0)


def called(target: str, *args: Any, **named: Any) -> Step:
    """Return a call of a function of torch, or of a method if it has a receiver."""
    is_function = target.startswith("torch.")
    return Step(CALL_FUNCTION if is_function else CALL_METHOD, target, args, tuple(named.items()))


@pytest.mark.parametrize(
    ("step", "with_own"),
    [
        (called("view", X, 6, 2), called("view", X, 3, 2)),
        (called("reshape", X, List((6, -1))), called("reshape", X, List((3, -1)))),
        (called("torch.reshape", X, shape=(6, 2)), called("torch.reshape", X, shape=(3, 2))),
        (called("expand", X, 6, 4), called("expand", X, 3, 4)),
        (called("repeat", X, 6, 1), called("repeat", X, 3, 1)),
        (called("unflatten", X, 0, (6, 2)), called("unflatten", X, 0, (3, 2))),
        (called("new_full", X, (6, 2), 1.0), called("new_full", X, (3, 2), 1.0)),
        (called("torch.full", (6, 2), 0), called("torch.full", (3, 2), 0)),
        (called("torch.zeros", 6, 2), called("torch.zeros", 3, 2)),
        (called("torch.ones", size=(6,)), called("torch.ones", size=(3,))),
        (called("torch.arange", 6), called("torch.arange", 3)),
        (called("torch.arange", end=6), called("torch.arange", end=3)),
    ],
    ids=lambda step: step.target,
)
def test_with_rows__size__is_the_own_number(step: Step, with_own: Step):
    assert with_rows(step, 6, 3) == with_own


@pytest.mark.parametrize(
    "step",
    [
        called("torch.full", (2,), 6),
        called("torch.full", (2,), fill_value=6),
        called("new_full", X, (2,), 6),
        called("unflatten", X, 6, (2, -1)),
        called("torch.arange", 2, 6),
        called("torch.arange", 6, 12),
        called("torch.arange", 6, step=2),
        called("torch.arange", start=6, end=9),
        called("add", X, 6),
        called("torch.zeros", 2, requires_grad=True),
    ],
    ids=lambda step: step.target,
)
def test_with_rows__number_of_another_meaning__stays(step: Step):
    assert with_rows(step, 6, 3) == step
