"""Cases of one form in lockstep: each step is carried out for all of them before the next, as one sweep over a column.

Most bodies do the same steps case after case, on other sizes and numbers. What a step is asked for then costs a call of
Python for the column instead of several for each value. Nothing is decided here: a case that raises, or whose facts are
not those of the others, leaves the lockstep with the trace that it has so far, and is gone on with alone.
"""

from __future__ import annotations

from contextlib import nullcontext
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

import torch

from ci_autotest.backends.columns import Form, Side, facts_in, rows_apart, rows_of_one_tensor
from ci_autotest.backends.engine import gradients
from ci_autotest.backends.foreign import FOREIGN, pass_interrupt
from ci_autotest.backends.graph import Seen, gradients_in_columns, seen_of
from ci_autotest.backends.sweep import extend, forward
from ci_autotest.errors import said
from ci_autotest.program.ir import step_refs

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from contextlib import AbstractContextManager

    from ci_autotest.backends.columns import Cases, Entering
    from ci_autotest.backends.sweep import Executor
    from ci_autotest.backends.trace import Attempt, Facts

#: What is torch's own: of a class of somebody else's, reading an attribute may do anything.
_TENSORS: Final = frozenset({torch.Tensor, torch.nn.Parameter})
_clone: Final = torch.Tensor.clone
_node: Final = attrgetter("grad_fn")
_like: Final = attrgetter("shape", "dtype", "is_cpu")


class Lockstep:
    """Carry out the steps of some accepted cases together.

    Args:
        cases: What they are made of.
        form: What the reference saw in all of them.
        reference: What it saw in each.
    """

    def __init__(self, cases: Cases, form: Form, reference: Side) -> None:
        """Hold the reference's forward pass."""
        self.cases = cases
        self.form = form
        self.reference = reference
        self._members = list(reference.cases)

    @classmethod
    def of(cls, cases: Cases, reference: Side, roots: Collection[int]) -> Lockstep | None:
        """Return cases in lockstep after the reference's forward pass; ``None`` where what it gave forbids it.

        Args:
            cases: What they are made of.
            reference: What it saw: the same facts in every case.
            roots: Positions of the outputs that a gradient is put into.
        """
        form = _form(cases, [column[0] for column in reference.facts], frozenset(reference.copies), roots)
        for index, expected in enumerate(form.facts[:-2]):  # nothing was done after the last call
            if expected is not None and index not in form.copied:
                seen = facts_in(reference.values[index])
                if seen.count(expected) != len(seen):
                    return None  # another than at its step, and not copied
        if rows_of_one_tensor([reference.values[index] for index in form.distinct]):
            return None
        return cls(cases, form, reference)

    def attempt(self, position: int) -> Attempt:
        """Return a case as an attempt, with all that the reference saw, to be looked at alone."""
        side = self.reference
        left = side.left.get(position)
        return self.cases.attempt(position, left[0] if left else side.trace(side.cases.index(position)))

    def forward(
        self, executor: Executor, enter: Entering, around: AbstractContextManager[object] | None = None
    ) -> Side:
        """Return what a candidate on the host sees of the steps.

        Args:
            executor: Carries them out.
            enter: Is told each case before it is entered.
            around: Entered for each call.
        """
        side = forward(Side(self._members), self.cases, executor, enter, (self.form.copied, around))
        form = self.form
        odd = set()
        for column, expected in zip(side.facts, form.facts, strict=True):
            odd |= rows_apart(column, [expected] * len(column))
        for index, expected in enumerate(form.facts):
            if expected is not None and not set(map(type, side.values[index])) <= _TENSORS:
                odd |= {row for row, value in enumerate(side.values[index]) if type(value) not in _TENSORS}
        odd |= rows_of_one_tensor([side.values[index] for index in form.distinct])
        for row in sorted(odd, reverse=True):
            side.leave(row, is_done=False)
        return side

    def backward(self, side: Side, enter: Entering, *, is_torchs_own: bool) -> None:
        """Run the backward passes of a side's cases.

        Args:
            side: As ``forward`` left it, or the reference.
            enter: Is told each case before it is entered.
            is_torchs_own: Whether no code of a user's runs in it: then no copy is made of what is put in.
        """
        form = self.form
        if not (form.roots and form.inputs and side.cases):
            return
        given = self._cotangents(side)
        if side is not self.reference:
            odd = set()
            for index, sources in zip(form.roots.values(), given, strict=True):
                odd |= rows_apart(list(map(_like, side.values[index])), list(map(_like, sources)))
            for row in sorted(odd, reverse=True):
                side.leave(row, is_done=False, columns=given)
            if not side.cases:
                return
        roots = [side.values[index] for index in form.roots.values()]
        inputs = [self._input(side, index) for index in form.inputs]
        if is_torchs_own and len(roots) == 1:
            found = gradients_in_columns(
                list(map(_node, roots[0])), given[0], self._asking(side), partial(enter.each, side.cases)
            )
            if found is not None:
                side.gradients = {index: found[index] for index in form.inputs}
                side.cotangents = dict(zip(form.roots, given, strict=True)) if side is self.reference else {}
                return
        given = [list(map(_clone, column)) for column in given]
        side.cotangents = dict(zip(form.roots, given, strict=True))
        self._engine(side, [_rows(roots), _rows(given), _rows(inputs)], enter)

    def _engine(self, side: Side, columns: list[list[Any]], enter: Entering) -> None:
        found: list[Any] = []
        while len(found) < len(side.cases):
            try:
                extend(found, gradients, columns, side.cases, enter, nullcontext())
            except FOREIGN as error:
                pass_interrupt(error)
                trace = side.leave(len(found), is_done=True, columns=columns)
                trace.backward_failure = f"{type(error).__name__}: {said(error)}"
        side.gradients = dict(zip(self.form.inputs, _rows(found), strict=True)) if found else {}

    def _cotangents(self, side: Side) -> list[list[Any]]:
        """Return what is put into each output that gets a gradient."""
        columns = [self.cases.cotangents(position) for position in self.form.roots]
        return [[column[case] for case in side.cases] for column in columns]

    def _asking(self, side: Side) -> dict[int, Seen]:
        """Return every value that asks for its gradient."""
        found = {}
        for index, facts in enumerate(self.form.facts):
            if facts is not None and facts[0]:
                copies = side.copies.get(index)
                tensors = side.values[index] if copies is None else [copy for copy, _ in copies]
                edges = None if copies is None else [edge for _, edge in copies]
                found[index] = seen_of(tensors, edges, are_leaves=facts[1])
        return found

    def _input(self, side: Side, index: int) -> list[Any]:
        return [edge for _, edge in side.copies[index]] if index in side.copies else side.values[index]


def _rows(columns: Sequence[Sequence[Any]]) -> list[tuple[Any, ...]]:
    return list(zip(*columns, strict=True))


def _form(cases: Cases, facts: list[Facts | None], copied: frozenset[int], positions: Collection[int]) -> Form:
    outputs = [ref.index for ref in step_refs(cases.steps[-1])]
    roots = {position: outputs[position] for position in positions}
    asking = [index for index, seen in enumerate(facts) if seen is not None and seen[0]]
    last = len(facts) - 2
    # The gradient of an output that nothing else uses is what was put in.
    alone = last if len(outputs) == len(roots) == 1 and last in roots.values() else -1
    return Form(
        facts, copied, roots,
        inputs=tuple(index for index in asking if index != alone),
        distinct=tuple(index for index in asking if index not in copied),
    )  # fmt: skip
