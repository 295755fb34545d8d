"""Error growth: if no step is misaligned alone, show how the error grows from step to step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import torch

from ci_autotest.alignment.elements import difference
from ci_autotest.program.codegen import names
from ci_autotest.program.ir import OUTPUT, PLACEHOLDER
from ci_autotest.values.tolerance import Tolerance
from ci_autotest.values.verdict import StepError

if TYPE_CHECKING:
    from ci_autotest.backends.trace import Trace
    from ci_autotest.program.ir import Program

#: Most steps that are reported.
_REPORTED: Final = 32
_EVERYTHING: Final = Tolerance(0.0, 0.0)


def growth(program: Program, candidate: Trace, reference: Trace) -> tuple[StepError, ...]:
    """Return how far the sides are apart after each step of the body that both show; nothing if they agree everywhere.

    Args:
        program: What was run.
        candidate: Trace with snapshots.
        reference: Trace with snapshots of the same steps.
    """
    found, named = [], names(program)
    for index, step in enumerate(program.steps):
        if step.op in {PLACEHOLDER, OUTPUT} or step.in_setup:
            continue
        if index >= min(len(candidate.observations), len(reference.observations)):
            break  # A side that raised has no later values.
        left, right = candidate.observations[index], reference.observations[index]
        if left is None or right is None or left.metadata is None or right.metadata is None:
            continue
        if not isinstance(left.data, torch.Tensor) or left.data.shape != right.data.shape:
            continue
        apart = difference(left.data, right.data, _EVERYTHING)
        absolute = apart.greatest_absolute if apart else 0.0
        found.append(
            StepError(
                step=index,
                what=named[index],
                greatest_absolute=absolute,
                greatest_ulp=apart.greatest_ulp if apart else 0,
            )
        )
    return tuple(found[:_REPORTED]) if any(item.greatest_absolute != 0 for item in found) else ()
