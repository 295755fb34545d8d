"""Device copies: values that the candidate copies between devices, while the reference has only one device."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from ci_autotest.program.ir import step_refs

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from ci_autotest.backends.trace import Observation, Trace
    from ci_autotest.program.ir import Step


def as_moved(
    sides: tuple[Observation, Observation], index: int, steps: Sequence[Step], traces: tuple[Trace, Trace]
) -> tuple[Observation, Observation]:
    """Return both sides with the reference's ``is_leaf`` if the candidate copied what the reference returned itself.

    ``x.to("cpu")`` returns a leaf itself on the host and a copy, which is no leaf, on a device: neither is wrong.

    Args:
        sides: The candidate's and the reference's observation of the step.
        index: Of the step.
        steps: Of the program.
        traces: The candidate's and the reference's.
    """
    left, right = sides
    if left.metadata is None or right.metadata is None or left.metadata.is_leaf is right.metadata.is_leaf:
        return sides
    if not _is_copy(index, steps, traces):
        return sides
    return left._replace(metadata=left.metadata._replace(is_leaf=right.metadata.is_leaf)), right


def written_copy(steps: Sequence[Step], traces: tuple[Trace, Trace], written: Collection[int]) -> str:
    """Return the name of a step whose value is a copy on the candidate alone and is written to, ``""`` if none.

    A write then reaches one tensor on the reference and only the copy on the candidate, so nothing can be compared.

    Args:
        steps: Of the program.
        traces: The candidate's and the reference's.
        written: Indices of the reference's values that a later step wrote to.
    """
    seen = len(traces[0].values)
    # A run that ended early has fewer values.
    copies = (index for index in sorted(written) if index < seen and _is_copy(index, steps, traces))
    return next((steps[index].name for index in copies), "")


def _is_copy(index: int, steps: Sequence[Step], traces: tuple[Trace, Trace]) -> bool:
    """Whether a step returned a copy on another device on the candidate, and its argument itself on the reference."""
    refs = step_refs(steps[index])
    if not refs:
        return False
    ours, theirs = traces[0].values, traces[1].values
    sides = (ours[refs[0].index], ours[index])
    if not all(isinstance(side, torch.Tensor) for side in sides):
        return False
    # By identity: the reference must have returned its very argument.
    return sides[0].device != sides[1].device and theirs[index] is theirs[refs[0].index]
