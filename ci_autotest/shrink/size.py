"""The size of a program that shows a finding. Of two programs that show the same, the smaller one is kept.

Sizes are compared part by part, so that a program with fewer steps is smaller whatever its elements are.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from ci_autotest.program.distribution import REPLICATE
from ci_autotest.program.ir import PLACEHOLDER, Copy, parts, step_refs
from ci_autotest.program.literals import array_of
from ci_autotest.values.dtypes import FLOATING, PARTS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from ci_autotest.program.ir import Program, Step, TensorSpec
    from ci_autotest.program.recording import Recording
    from ci_autotest.values.case import Draw

#: Greatest absolute value of a small integer.
SMALL: Final = 8
#: Kinds of draws whose distance from the simplest value counts; any other draw is simplest or is not.
_COUNTED: Final = frozenset({"ndim", "dim", "int"})
_ORDINARY: Final = "ordinary"


class Size(NamedTuple):
    """The size of a program, the part that counts most first.

    Attributes:
        steps: Inputs, calls and steps of the setup.
        arguments: Arguments of all steps, without the data of inputs.
        draws: How far the draws are from the simplest ones; 0 for a program that no draws lead to.
        elements: Of all inputs and cotangents, and what else their storages hold.
        ranks: Of the mesh, and placements that are not replicated.
        unusual: Inputs that are not contiguous, not float32 or require grad, modes, and calls on computed values.
        calls: Different calls, because equal ones print as a loop.
        numbers: How complicated numbers are: 0, then 1, small integers, integers, halves, sixteenths, others.
    """

    steps: int
    arguments: int
    draws: int
    elements: int
    ranks: int
    unusual: int
    calls: int
    numbers: int


def size(recording: Recording, draws: Iterable[Draw] = (), profile: str = _ORDINARY) -> Size:
    """Return the size of a program with its data.

    Args:
        recording: The program.
        draws: That led to it, if it was drawn.
        profile: Of its case.
    """
    program, specs = recording.program, recording.program.specs
    body = [step for _, step in program.calls]
    return Size(
        steps=len(program.steps),
        arguments=sum(map(_arguments, program.steps)),
        draws=sum(map(_distance, draws)) + (profile != _ORDINARY),
        elements=sum(map(_elements, specs.values())),
        ranks=sum(map(_ranks, specs.values())),
        unusual=sum(map(_unusual, specs.values())) + sum(_unusual_call(step, program) for step in body),
        calls=len({step._replace(name="") for step in body}),
        numbers=sum(cost(numbers_of(recording.tensors[key], spec.dtype)) for key, spec in specs.items())
        + sum(map(_constants, body)),
    )


def _elements(spec: TensorSpec) -> int:
    # An expanded input has a small storage and is no simpler for it.
    return max(math.prod(spec.shape), spec.storage_size)


def _arguments(step: Step) -> int:
    return 0 if step.op == PLACEHOLDER else len(step.args) + len(step.kwargs)


def _distance(draw: Draw) -> int:
    if draw.kind in _COUNTED:
        return abs(int(draw.value or 0) - int(draw.simplest or 0))
    return int(draw.value != draw.simplest)


def _ranks(spec: TensorSpec) -> int:
    lies = spec.distribution
    return 0 if lies is None else lies.ranks + sum(placement != REPLICATE for placement in lies.placements)


def _unusual(spec: TensorSpec) -> int:
    is_other = spec.dtype in FLOATING and spec.dtype != "float32"
    return (not spec.is_contiguous) + is_other + spec.requires_grad


def _unusual_call(step: Step, program: Program) -> int:
    computed = sum(program.steps[ref.index].op != PLACEHOLDER for ref in step_refs(step))
    copies = sum(isinstance(value, Copy) for value in (*step.args, *(value for _, value in step.kwargs)))
    return len(step.modes) + computed + copies


def _constants(step: Step) -> int:
    values = (*step.args, *(value for _, value in step.kwargs))
    plain = [part for part in parts(*values) if isinstance(part, int | float) and not isinstance(part, bool)]
    return cost(np.array(plain, np.float64))


def numbers_of(data: bytes, dtype: str) -> NDArray[np.float64]:
    """Return the numbers of a storage in float64; complex numbers as real and imaginary parts in turn."""
    return array_of(data, PARTS.get(dtype, dtype), (-1,)).astype(np.float64)


def cost(numbers: NDArray[np.float64]) -> int:
    """Return how complicated the numbers are. A pass proposes only cheaper numbers, so that no pass undoes another."""
    with np.errstate(all="ignore"):
        steps = [numbers == 0, numbers == 1, (numbers == np.rint(numbers)) & (np.abs(numbers) <= SMALL)]
        steps += [
            numbers == np.rint(numbers),
            numbers * 2 == np.rint(numbers * 2),
            numbers * 16 == np.rint(numbers * 16),
        ]
    cost = np.full(numbers.shape, len(steps))
    # The cheapest property comes last, and overwrites the price of any other that holds too.
    for price, holds in reversed(list(enumerate(steps))):
        cost[holds] = price
    # A sign costs extra, so that -0.0 becomes 0.0.
    return int(cost.sum()) + int(np.signbit(numbers).sum())
