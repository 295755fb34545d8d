"""A quick look at cases in lockstep: what ``quick`` asks of each value, asked of a column at a time.

It vouches for what is equal, which most is. Whatever it cannot vouch for is looked at case by case.
"""

from __future__ import annotations

from operator import and_, attrgetter
from typing import TYPE_CHECKING, Any, Final

import torch

from ci_autotest.alignment.cases import go_back
from ci_autotest.alignment.elements import same_bits
from ci_autotest.alignment.quick import SMALL, plain_aligned, tensors_aligned
from ci_autotest.backends.columns import facts_in
from ci_autotest.backends.placing import CPU
from ci_autotest.backends.substitute import SubstituteBackend
from ci_autotest.backends.torch_eager import TorchBackend

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ci_autotest.alignment.cases import Contender
    from ci_autotest.alignment.rules import Rules
    from ci_autotest.backends.columns import Entering, Side
    from ci_autotest.backends.lockstep import Lockstep
    from ci_autotest.backends.trace import Facts, Trace

_equal: Final = torch.Tensor.equal  # a tenth faster than the function
_is_view: Final = torch.Tensor._is_view
_numel: Final = torch.Tensor.numel
_dtype: Final = attrgetter("dtype")


def can_contend(contender: Contender) -> bool:
    """Whether a candidate runs in lockstep: step by step, on the host."""
    backend = contender.backend
    return (
        isinstance(backend, TorchBackend | SubstituteBackend)
        and backend.device is CPU
        and not contender.rules.check_graph
    )


def contend(lockstep: Lockstep, contender: Contender, enter: Entering) -> tuple[set[int], dict[int, Trace]]:
    """Run a candidate over a lockstep.

    Args:
        lockstep: With the reference's backward pass.
        contender: Can contend (``can_contend``).
        enter: Is told each case before it is entered.

    Returns:
        The positions of the cases for which a quick look vouches, and traces of all others by position.
    """
    assert isinstance(contender.backend, TorchBackend | SubstituteBackend)  # noqa: S101 - the caller looked
    side = contender.backend.sweep(lockstep, enter)
    good = vouched(lockstep, side, contender.rules)
    traces = {case: side.trace(row) for row, case in enumerate(side.cases) if case not in good}
    for case, (trace, is_done) in side.left.items():
        traces[case] = trace
        if not is_done:
            enter(case)
            go_back(lockstep.attempt(case), contender, trace)
    return good, traces


def vouched(lockstep: Lockstep, side: Side, rules: Rules) -> set[int]:
    """Return the positions of the cases for which a quick look vouches.

    Args:
        lockstep: Holds the reference's side.
        side: The candidate's.
        rules: At any other strictness than ``tolerance``, nothing is vouched for.
    """
    reference = lockstep.reference
    if not (rules.is_tolerant and side.cases and reference.cases):
        return set()
    good = [True] * len(side.cases)
    rows: list[int] | None = None
    if reference.cases != side.cases:
        row_of = {case: row for row, case in enumerate(reference.cases)}
        rows = [row_of.get(case, 0) for case in side.cases]
        good = [case in row_of for case in side.cases]
    try:
        for flags in _Looks(lockstep, side, rows, rules):
            if not all(flags):
                good = list(map(and_, good, flags))
    except Exception:  # noqa: BLE001 - foreign tensors: reading them may raise anything, and of one case only
        return set()
    return {case for case, is_good in zip(side.cases, good, strict=True) if is_good}


class _Looks:
    """What each look says of each case of a side.

    Args:
        lockstep: Holds the reference's side.
        side: The candidate's.
        rows: Row of the reference for each row of the side; ``None``: the same.
        rules: Say what is close.
    """

    def __init__(self, lockstep: Lockstep, side: Side, rows: list[int] | None, rules: Rules) -> None:
        self._lockstep, self._side, self._rows, self._rules = lockstep, side, rows, rules

    def __iter__(self) -> Iterator[list[bool]]:
        form, side, reference = self._lockstep.form, self._side, self._lockstep.reference
        for index, (left, column) in enumerate(zip(side.values, reference.values, strict=True)):
            right, expected = self._reference(column), form.facts[index]
            if expected is None:
                yield [a is b or plain_aligned(a, b) for a, b in zip(left, right, strict=True)]
                continue
            yield from _flags(left, right, None if index in form.copied else expected)
            yield self._same(left, right)
        for index, copies in side.copies.items():
            yield self._same(
                [copy for copy, _ in copies], [copy for copy, _ in self._reference(reference.copies[index])]
            )
        for index in form.inputs if reference.gradients else ():
            yield self._same(side.gradients[index], self._reference(reference.gradients[index]))
        for position, weights in side.cotangents.items():
            yield _equal_in(weights, self._reference(reference.cotangents[position]))

    def _reference(self, column: Sequence[Any]) -> Sequence[Any]:
        return column if self._rows is None else [column[row] for row in self._rows]

    def _same(self, left: Sequence[Any], right: Sequence[Any]) -> list[bool]:
        """Return which tensors are aligned: equal, or within the tolerance."""
        flags = _equal_in(left, right)
        if all(flags):
            return flags
        steps, rules = self._lockstep.cases.steps, self._rules
        return [flag or tensors_aligned(a, b, steps, rules) for flag, a, b in zip(flags, left, right, strict=True)]


def _flags(left: list[Any], right: Sequence[Any], expected: Facts | None) -> Iterator[list[bool]]:
    """Yield whether tensors are at the end as at their step, or as the reference's where that was written to."""
    if expected is None:
        yield [a == b for a, b in zip(facts_in(left), facts_in(list(right)), strict=True)]
    else:
        seen = facts_in(left)
        if seen.count(expected) != len(seen):
            yield [facts == expected for facts in seen]
    views = list(map(_is_view, left))
    if views != list(map(_is_view, right)):
        yield [view is other._is_view() for view, other in zip(views, right, strict=True)]


def _equal_in(left: Sequence[Any], right: Sequence[Any]) -> list[bool]:
    """Return which tensors are equal in dtype, shape and elements; -0.0 is 0.0, as a tolerance has it."""
    try:
        if len({*map(_dtype, left), *map(_dtype, right)}) == 1 or list(map(_dtype, left)) == list(map(_dtype, right)):
            if sum(map(_numel, right)) < SMALL * len(right):  # a few large ones cost less than to look at each
                return list(map(_equal, left, right))
            return [
                _equal(a, b) if b.numel() < SMALL else a.shape == b.shape and same_bits(a, b)
                for a, b in zip(left, right, strict=True)
            ]
    except (RuntimeError, AttributeError):  # other layouts, and what is no tensor
        pass
    return [a is b for a, b in zip(left, right, strict=True)]
