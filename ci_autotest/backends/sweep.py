"""A sweep: one step of a program carried out for every case in lockstep, and so the program, step by step."""

from __future__ import annotations

from functools import partial
from itertools import repeat
from operator import is_
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

import torch

from ci_autotest.backends.columns import facts_in
from ci_autotest.backends.foreign import FOREIGN, pass_interrupt
from ci_autotest.backends.observing import kept
from ci_autotest.backends.trace import Failure
from ci_autotest.errors import said, where
from ci_autotest.execute.steps import materialize
from ci_autotest.program.ir import ARRAY, CALL_FUNCTION, CALL_METHOD, OUTPUT, PLACEHOLDER, Ref

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence
    from contextlib import AbstractContextManager

    from ci_autotest.backends.columns import Cases, Entering, Side
    from ci_autotest.backends.trace import Facts
    from ci_autotest.program.ir import Argument, Step

_PLAIN: Final = frozenset({int, float, bool, str, type(None), complex})
#: Methods that leave something with a tensor which the walk back through graphs does not look for, or give an array.
_UNSUITED: Final = frozenset({ARRAY, "retain_grad", "register_hook"})
_Tensor: Final = torch.Tensor
_clone: Final = torch.Tensor.clone
_requires_grad: Final = torch.Tensor.requires_grad_


class Executor(Protocol):
    """What carries the steps of a lockstep out."""

    def callee(self, target: str) -> Callable[..., Any]:
        """Return the function that a target names."""

    def constant(self, argument: Argument) -> Any:  # noqa: ANN401 - a torch constant
        """Return a dtype, device or constant of torch."""


def is_plain_call(step: Step) -> bool:
    """Whether a call needs nothing but its arguments."""
    is_call = step.op in {CALL_FUNCTION, CALL_METHOD}
    return is_call and not step.modes and step.seed is None and step.target not in _UNSUITED


def extend(
    found: list[Any],
    call: Callable[..., Any],
    columns: list[list[Any]],
    cases: list[int],
    enter: Entering,
    around: AbstractContextManager[object] | None = None,
) -> None:
    """Append what a call gives for each row from the first on that ``found`` lacks; what it raises ends the sweep.

    Args:
        found: Is extended.
        call: Of torch's own, unless something is ``around`` it.
        columns: Its arguments.
        cases: What each row is of.
        enter: Is told each case before it is entered.
        around: Entered for the calls: they are somebody's code.
    """
    begin = len(found)
    if begin:
        columns, cases = [column[begin:] for column in columns], cases[begin:]
    if around is None:
        found.extend(map(call, enter.each(cases, columns[0]), *columns[1:]))
        if len(found) < begin + len(cases):
            # `map` took it for its own end; torch lets it pass from an operator that was registered in Python.
            message = "operator raised StopIteration"
            raise RuntimeError(message)
        return
    with around:
        for row in enter.each(cases, zip(*columns, strict=True)):
            found.append(call(*row))


def _method(name: str, receiver: Any, *args: Any) -> Any:  # noqa: ANN401 - a method's
    return getattr(receiver, name)(*args)


def _with_keywords(call: Callable[..., Any], keywords: dict[str, Any], *args: Any) -> Any:  # noqa: ANN401 - the call's
    return call(*args, **keywords)


def _without_arguments(call: Callable[[], Any], _: tuple[()]) -> Any:  # noqa: ANN401 - the call's
    return call()


def forward(
    side: Side,
    cases: Cases,
    executor: Executor,
    enter: Entering,
    how: tuple[Collection[int], AbstractContextManager[object] | None],
) -> Side:
    """Carry out the steps of a side's cases on the host, and return the side; a case that raises leaves.

    Args:
        side: Says which cases.
        cases: What they are made of.
        executor: Carries the steps out.
        enter: Is told each case before it is entered.
        how: Indices of values that are copied at their step, and what is entered for each call.
    """
    copied, around = how
    sweep = _Sweep(side, cases, executor, enter, around)
    column: list[Any]
    for index, step in enumerate(cases.steps):
        if step.op == PLACEHOLDER:
            column, facts = sweep.placed(index, step.target)
        elif step.op == OUTPUT:
            column, facts = [None] * len(side.cases), [None] * len(side.cases)
        else:
            column = sweep.called(index, step)
            facts = facts_in(column)
        side.values.append(column)
        side.facts.append(facts)
        if index in copied:
            side.copies[index] = [kept(value) if isinstance(value, _Tensor) else (None, None) for value in column]
    return side


class _Sweep(NamedTuple):
    """Carry out one step after the other."""

    side: Side
    cases: Cases
    executor: Executor
    enter: Entering
    around: AbstractContextManager[object] | None

    def placed(self, index: int, key: str) -> tuple[list[Any], list[Facts | None]]:
        """Return the column of an input, and its facts, which are known: a copy that nobody has written to."""
        members, sources, specs = self.side.cases, self.cases.sources(key), self.cases.specs(index)
        column = list(map(_clone, [sources[case] for case in members]))
        own = [specs[case] for case in members]
        for row in [row for row, spec in enumerate(own) if not spec.is_contiguous]:
            column[row] = column[row].as_strided(own[row].shape, own[row].strides, own[row].offset)
        asks = [spec.requires_grad for spec in own]
        if all(asks):
            return list(map(_requires_grad, column)), [(True, True, 0)] * len(column)
        column = [tensor.requires_grad_() if asked else tensor for tensor, asked in zip(column, asks, strict=True)]
        return column, [(asked, True, 0) for asked in asks]

    def called(self, index: int, step: Step) -> list[Any]:
        """Return the column that a call gives; cases that raise leave."""
        side = self.side
        if not side.cases:
            return []
        steps = self.cases.at(index)
        columns = [self._argument(steps, place, argument) for place, argument in enumerate(step.args)]
        call: Any
        if step.op == CALL_FUNCTION:
            call = self.executor.callee(step.target)
        elif set(map(type, columns[0])) == {_Tensor}:
            call = getattr(_Tensor, step.target)
        else:
            call = partial(_method, step.target)
        if step.kwargs and columns and self._are_fixed(steps):
            call = partial(call, **dict(step.kwargs))
        elif step.kwargs:
            columns.insert(0, self._keywords(steps))
            call = partial(_with_keywords, call)
        elif not columns:
            columns, call = [[()] * len(side.cases)], partial(_without_arguments, call)
        found: list[Any] = []
        while len(found) < len(side.cases):
            try:
                extend(found, call, columns, side.cases, self.enter, self.around)
            except FOREIGN as error:
                pass_interrupt(error)
                trace = side.leave(len(found), is_done=True, columns=columns)
                trace.failure = Failure(index, type(error).__name__, said(error) + where(error))
        return found

    def _argument(self, steps: Sequence[Step], place: int, argument: Argument) -> list[Any]:
        if type(argument) is Ref:
            return self.side.values[argument.index]
        return self._materialized([steps[case].args[place] for case in self.side.cases])

    def _are_fixed(self, steps: Sequence[Step]) -> bool:
        """Whether keyword arguments are the same plain values in every case."""
        first = steps[0]
        return all(type(value) in _PLAIN for _, value in first.kwargs) and all(map(is_, steps, repeat(first)))

    def _keywords(self, steps: Sequence[Step]) -> list[Any]:
        """Return the keyword arguments of each case."""
        given = [steps[case].kwargs for case in self.side.cases]
        names = [name for name, _ in given[0]]
        columns = [self._materialized([pairs[place][1] for pairs in given]) for place in range(len(names))]
        return [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]

    def _materialized(self, given: list[Argument]) -> list[Any]:
        if type(given[0]) in _PLAIN:
            return given
        constant, values = self.executor.constant, self.side.values
        return [materialize(one, [column[row] for column in values], constant) for row, one in enumerate(given)]
