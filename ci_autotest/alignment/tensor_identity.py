"""Which values of a program are one tensor: a side may give one where the other gives two.

A fused kernel may return one tensor for two results, and what returns its argument on one side may copy it on the
other. Such a tensor receives the gradients of all that it stands for: it is compared where both sides have the same
tensors, and at the leaves always.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ci_autotest.backends.trace import Trace


def of_one_side(candidate: Trace, reference: Trace) -> frozenset[int]:
    """Return the steps whose value is one tensor with another step's on one side alone, by their gradient edges."""
    ours, theirs = _groups(candidate), _groups(reference)
    alone: frozenset[int] = frozenset()
    every = [index for groups in (ours, theirs) for index, group in groups.items() if len(group) > 1]
    return frozenset(index for index in every if ours.get(index, alone) != theirs.get(index, alone))


def _groups(trace: Trace) -> dict[int, frozenset[int]]:
    """Return the steps that have one gradient edge with a step, itself among them, by each step that has an edge."""
    found: dict[Any, list[int]] = {}
    for index, edge in enumerate(trace.edges):
        if edge is not None:
            found.setdefault((edge.node, edge.output_nr), []).append(index)
    return {index: frozenset(group) for group in found.values() for index in group}
