"""Scalars that a body read from a tensor: they are compared as elements of that tensor, with its tolerance.

A sum may differ in its last place, and so may the result of its ``item()``. A Python float would have to be equal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from ci_autotest.backends.snapshots import metadata
from ci_autotest.backends.trace import Observation
from ci_autotest.program.ir import step_refs
from ci_autotest.values.dtypes import COMPLEX, FLOATING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ci_autotest.backends.trace import Trace
    from ci_autotest.program.ir import Step


def as_elements(
    sides: tuple[Observation, Observation], index: int, steps: Sequence[Step], reference: Trace
) -> tuple[Observation, Observation]:
    """Return two numbers as 0-dim tensors of the dtype of the tensor that they were read from; other values as is.

    Args:
        sides: The candidate's and the reference's observation of the step.
        index: Of the step.
        steps: Of the program.
        reference: Trace with snapshots.
    """
    kind = type(sides[1].data)
    # Integers must be equal, and a number of another type is a difference by itself.
    if kind not in {float, complex} or type(sides[0].data) is not kind:
        return sides
    dtype = _source_dtype(index, steps, reference)
    if dtype not in (FLOATING if kind is float else COMPLEX):
        return sides
    left, right = (torch.tensor(side.data, dtype=getattr(torch, dtype)) for side in sides)
    return Observation(metadata(left), left), Observation(metadata(right), right)


def _source_dtype(index: int, steps: Sequence[Step], reference: Trace) -> str:
    """Return the dtype of the tensor that a number was read from, also through ``tolist``; ``""`` if from none."""
    refs = step_refs(steps[index])
    while refs:
        index = refs[0].index
        found = reference.observations[index]
        if found is not None and found.metadata is not None:
            return found.metadata.dtype
        refs = step_refs(steps[index])
    return ""
