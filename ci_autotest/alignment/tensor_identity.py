"""Tensor identity: which values of a program are the same tensor on one side and different tensors on the other.

A fused kernel may return one tensor for two results, and an operator may return its argument on one side and a copy on
the other. Such a tensor receives the gradients of all values that it stands for. Its gradient is therefore compared
only if both sides have the same tensors; gradients of leaves are always compared.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ci_autotest.backends.trace import Trace


def of_one_side(candidate: Trace, reference: Trace) -> frozenset[int]:
    """Return the steps that share their tensor with another step on one side only, judged by their gradient edges."""
    ours, theirs = _groups(candidate), _groups(reference)
    alone: frozenset[int] = frozenset()
    every = [index for groups in (ours, theirs) for index, group in groups.items() if len(group) > 1]
    return frozenset(index for index in every if ours.get(index, alone) != theirs.get(index, alone))


def _groups(trace: Trace) -> dict[int, frozenset[int]]:
    """Return, for each step with a gradient edge, all steps with the same edge."""
    found: dict[Any, list[int]] = {}
    for index, edge in enumerate(trace.edges):
        if edge is not None:
            # Two objects of Python may be one tensor to autograd, which this pair names.
            found.setdefault((edge.node, edge.output_nr), []).append(index)
    return {index: frozenset(group) for group in found.values() for index in group}
