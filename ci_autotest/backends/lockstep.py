"""Cases of one form in lockstep: each step is carried out for all of them before the next, as one sweep over a column.

Most bodies do the same steps case after case, on other sizes and numbers. What a step is asked for then costs a call of
Python for the column instead of several for each value. Nothing is decided here: a case that raises, or whose facts are
not those of the others, leaves the lockstep with the trace that it has so far, and is gone on with alone.
"""

from __future__ import annotations

from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, Protocol

import torch

from ci_autotest.backends.columns import Form, Side, facts_in
from ci_autotest.backends.engine import gradients
from ci_autotest.backends.foreign import FOREIGN, pass_interrupt
from ci_autotest.backends.graph import Seen, gradients_in_columns, seen_of
from ci_autotest.backends.observing import kept
from ci_autotest.backends.trace import Failure
from ci_autotest.errors import said, where
from ci_autotest.execute.steps import materialize
from ci_autotest.program.ir import ARRAY, CALL_FUNCTION, CALL_METHOD, OUTPUT, PLACEHOLDER, Ref, output_refs

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence
    from contextlib import AbstractContextManager

    from ci_autotest.backends.trace import Attempt
    from ci_autotest.program.ir import Argument, Step

#: Forms that a batch is searched for; cases of any further one are run alone.
_FORMS: Final = 4
_PLAIN: Final = frozenset({int, float, bool, str, type(None), complex})
_CALLS: Final = frozenset({CALL_FUNCTION, CALL_METHOD})
_Tensor: Final = torch.Tensor
_clone: Final = torch.Tensor.clone
_requires_grad: Final = torch.Tensor.requires_grad_
_node: Final = attrgetter("grad_fn")
_like: Final = attrgetter("shape", "dtype", "is_cpu")


class Executor(Protocol):
    """What carries the steps of a lockstep out."""

    def callee(self, target: str) -> Callable[..., Any]:
        """Return the function that a target names."""

    def constant(self, argument: Argument) -> Any:  # noqa: ANN401 - a torch constant
        """Return a dtype, device or constant of torch."""


class Lockstep:
    """Carry out the steps of some accepted attempts together.

    Args:
        attempts: Of one form.
        form: That form.
        enter: Is told the position of a case among the attempts before code is entered for it that may not come back.

    Attributes:
        reference: What the reference saw.
    """

    def __init__(self, attempts: Sequence[Attempt], form: Form) -> None:
        """Turn the traces of the reference into columns."""
        self.attempts = attempts
        self.form = form
        self._programs = [attempt.program for attempt in attempts]
        side = self.reference = Side(len(attempts))
        side.values = [list(column) for column in zip(*[one.trace.values for one in attempts], strict=True)]
        side.facts = [[facts] * len(attempts) for facts in form.facts]
        side.copies = {index: [one.trace.copies[index] for one in attempts] for index in form.copied}

    @property
    def moves(self) -> bool:
        """Whether a value of the reference is another than at its step, and was not copied, or two are one tensor."""
        form, values = self.form, self.reference.values
        for index, expected in enumerate(form.facts):
            if expected is not None and index not in form.copied:
                seen = facts_in(values[index])
                if seen.count(expected) != len(seen):
                    return True
        return bool(_rows_of_one_tensor([values[index] for index in form.distinct]))

    def forward(
        self, executor: Executor, enter: Callable[[int], None], around: AbstractContextManager[object] | None = None
    ) -> Side:
        """Return what a candidate on the host sees of the steps.

        Args:
            executor: Carries them out.
            enter: Is told each case before it is entered.
            around: Entered for each call.
        """
        side = Side(len(self.attempts))
        column: list[Any]
        for index, step in enumerate(self.form.steps):
            if step.op == OUTPUT:
                column = [None] * len(side.cases)
            elif step.op == PLACEHOLDER:
                column = self._placed(side, index, step.target)
            else:
                column = self._called(side, index, executor, enter, around)
            side.values.append(column)
            side.facts.append(facts_in(column, are_tensors=self.form.facts[index] is not None))
            if index in self.form.copied:
                side.copies[index] = [kept(value) if isinstance(value, _Tensor) else (None, None) for value in column]
        self._dismiss(side)
        return side

    def _placed(self, side: Side, index: int, key: str) -> list[Any]:
        column = [self.attempts[case].sources[key].clone() for case in side.cases]
        specs: list[Any] = [self._programs[case].body[index].args[0] for case in side.cases]
        for row, spec in enumerate(specs):
            if not spec.is_contiguous:
                column[row] = column[row].as_strided(spec.shape, spec.strides, spec.offset)
        return list(map(_requires_grad, column)) if specs[0].requires_grad else column

    def _called(
        self,
        side: Side,
        index: int,
        executor: Executor,
        enter: Callable[[int], None],
        around: AbstractContextManager[object] | None,
    ) -> list[Any]:
        """Return the column that a call gives; cases that raise leave."""
        step = self.form.steps[index]
        columns = [self._argument(side, index, place, executor) for place in range(len(step.args))]
        call: Any
        if step.op == CALL_FUNCTION:
            call = executor.callee(step.target)
        elif set(map(type, columns[0])) == {_Tensor}:
            call = getattr(_Tensor, step.target)
        else:
            call = partial(_method, step.target)
        if step.kwargs:
            columns.insert(0, self._keywords(side, index, executor))
            call = partial(_with_keywords, call)
        elif not columns:
            columns, call = [[()] * len(side.cases)], partial(_without_arguments, call)
        found: list[Any] = []
        while len(found) < len(side.cases):
            try:
                _sweep(found, call, columns, side.cases, enter, around)
            except FOREIGN as error:
                pass_interrupt(error)
                trace = side.leave(len(found), is_done=True, columns=columns)
                trace.failure = Failure(index, type(error).__name__, said(error) + where(error))
        return found

    def _argument(self, side: Side, index: int, place: int, executor: Executor) -> list[Any]:
        argument = self.form.steps[index].args[place]
        if type(argument) is Ref:
            return side.values[argument.index]
        given = [self._programs[case].body[index].args[place] for case in side.cases]
        return given if type(argument) in _PLAIN else self._materialized(side, given, executor)

    def _keywords(self, side: Side, index: int, executor: Executor) -> list[Any]:
        """Return the keyword arguments of each case."""
        given = [self._programs[case].body[index].kwargs for case in side.cases]
        names = [name for name, _ in given[0]]
        columns = [
            self._materialized(side, [pairs[place][1] for pairs in given], executor) for place in range(len(names))
        ]
        return [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]

    def _materialized(self, side: Side, given: list[Argument], executor: Executor) -> list[Any]:
        if type(given[0]) in _PLAIN:
            return list(given)
        return [
            materialize(one, [column[row] for column in side.values], executor.constant)
            for row, one in enumerate(given)
        ]

    def _dismiss(self, side: Side) -> None:
        """Let cases leave whose facts are not the reference's, or of which two values are unexpectedly one."""
        form = self.form
        odd = set()
        for column, expected in zip(side.facts, form.facts, strict=True):
            odd |= _rows_apart(column, [expected] * len(column))
        odd |= _rows_of_one_tensor([side.values[index] for index in form.distinct])
        for row in sorted(odd, reverse=True):
            side.leave(row, is_done=False)

    def backward(self, side: Side, enter: Callable[[int], None], *, is_torchs_own: bool) -> None:
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
                odd |= _rows_apart(list(map(_like, side.values[index])), list(map(_like, sources)))
            for row in sorted(odd, reverse=True):
                side.leave(row, is_done=False, columns=given)
            if not side.cases:
                return
        roots = [side.values[index] for index in form.roots.values()]
        inputs = [self._input(side, index) for index in form.inputs]
        if is_torchs_own and len(roots) == 1:
            found = gradients_in_columns(
                list(map(_node, roots[0])), given[0], self._asking(side), _announced(side.cases, side.cases, enter)
            )
            if found is not None:
                side.gradients = {index: found[index] for index in form.inputs}
                side.cotangents = dict(zip(form.roots, given, strict=True)) if side is self.reference else {}
                return
        given = [list(map(_clone, column)) for column in given]
        side.cotangents = dict(zip(form.roots, given, strict=True))
        self._engine(side, [_rows(roots), _rows(given), _rows(inputs)], enter)

    def restore(self, cases: Collection[int]) -> None:
        """Give attempts, by position, what the reference saw of their backward passes: they are looked at alone."""
        side = self.reference
        for row, case in enumerate(side.cases if cases else ()):
            if case not in cases:
                continue
            trace = self.attempts[case].trace
            trace.gradients = {index: column[row] for index, column in side.gradients.items()}
            trace.cotangents = {position: column[row] for position, column in side.cotangents.items()}

    def _engine(self, side: Side, columns: list[list[Any]], enter: Callable[[int], None]) -> None:
        found: list[Any] = []
        while len(found) < len(side.cases):
            try:
                _sweep(found, gradients, columns, side.cases, enter, None)
            except FOREIGN as error:
                pass_interrupt(error)
                trace = side.leave(len(found), is_done=True, columns=columns)
                trace.backward_failure = f"{type(error).__name__}: {said(error)}"
        side.gradients = dict(zip(self.form.inputs, _rows(found), strict=True)) if found else {}

    def _cotangents(self, side: Side) -> list[list[Any]]:
        """Return what is put into each output that gets a gradient."""
        return [[self.attempts[case].cotangents[position] for case in side.cases] for position in self.form.roots]

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


def _sweep(
    found: list[Any],
    call: Callable[..., Any],
    columns: list[list[Any]],
    cases: list[int],
    enter: Callable[[int], None],
    around: AbstractContextManager[object] | None,
) -> None:
    """Append what a call gives for each row from the first on that ``found`` lacks; what it raises ends the sweep."""
    begin = len(found)
    first, *others = [column[begin:] for column in columns] if begin else columns
    results = map(call, _announced(first, cases[begin:], enter), *others)
    if around is None:
        found.extend(results)
    else:
        with around:
            found.extend(results)


def _announced(column: list[Any], cases: list[int], enter: Callable[[int], None]) -> Iterator[Any]:
    for case, value in zip(cases, column, strict=True):
        enter(case)
        yield value


def _method(name: str, receiver: Any, *args: Any) -> Any:  # noqa: ANN401 - a method's
    return getattr(receiver, name)(*args)


def _with_keywords(call: Callable[..., Any], keywords: dict[str, Any], *args: Any) -> Any:  # noqa: ANN401 - the call's
    return call(*args, **keywords)


def _without_arguments(call: Callable[[], Any], _: tuple[()]) -> Any:  # noqa: ANN401 - the call's
    return call()


def _rows_apart(column: list[Any], expected: list[Any]) -> set[int]:
    """Return the rows in which two columns differ."""
    if column == expected:
        return set()
    return {row for row, (one, other) in enumerate(zip(column, expected, strict=True)) if one != other}


def _rows_of_one_tensor(columns: list[list[Any]]) -> set[int]:
    """Return the rows of which two values are one tensor."""
    sizes = list(map(len, map(set, zip(*[map(id, column) for column in columns], strict=True))))
    if sizes.count(len(columns)) == len(sizes):
        return set()
    return {row for row, size in enumerate(sizes) if size != len(columns)}


def formed(attempts: Sequence[Attempt]) -> list[tuple[list[int], Lockstep]]:
    """Return the locksteps of accepted attempts that were run on the host, each with the positions of its attempts."""
    groups: list[_Group] = []
    for position, attempt in enumerate(attempts):
        for group in groups:
            if group.takes(attempt):
                group.positions.append(position)
                break
        else:
            if len(groups) < _FORMS and _is_straight(attempt):
                groups.append(_Group(position, attempt))
    found = []
    for group in groups:
        if len(group.positions) > 1:
            members = [attempts[position] for position in group.positions]
            lockstep = Lockstep(members, _form(members[0]))
            if not lockstep.moves:
                found.append((group.positions, lockstep))
    return found


class _Group:
    """Attempts whose programs differ in sizes and numbers only, and of which the reference saw the same facts."""

    def __init__(self, position: int, first: Attempt) -> None:
        self.positions = [position]
        self._first = first
        self._inputs = len(first.sources)
        body = first.program.body
        self._dtypes = _dtypes(first)
        self._calls = body[self._inputs :]
        # Programs that refer to nothing but values are compared at once; beside numbers, 1 is not True and not 1.0.
        self._is_bare = all(type(arg) is Ref for step in self._calls for arg in step.args) and not any(
            step.kwargs for step in self._calls
        )

    def takes(self, other: Attempt) -> bool:
        """Whether an attempt is of this form."""
        first, mine, theirs = self._first, self._first.trace, other.trace
        if (
            mine.facts != theirs.facts
            or len(other.sources) != self._inputs
            or first.cotangents.keys() != other.cotangents.keys()
            or ((mine.copies or theirs.copies) and mine.copies.keys() != theirs.copies.keys())
            or self._dtypes != _dtypes(other)
        ):
            return False
        calls = other.program.body[self._inputs :]
        return self._calls == calls if self._is_bare else all(map(_is_same_call, self._calls, calls))


def _dtypes(attempt: Attempt) -> list[str]:
    """Return the dtypes of the inputs, which come first in every program that is straight."""
    return [step.args[0].dtype for step in attempt.program.body[: len(attempt.sources)]]  # type: ignore[union-attr]


def _is_straight(attempt: Attempt) -> bool:
    """Whether a program is a list of inputs and then of calls, each of which needs nothing but its arguments."""
    program, inputs = attempt.program, len(attempt.sources)
    return (
        not program.setup
        and all(step.op == PLACEHOLDER for step in program.body[:inputs])
        and all(
            step.op == OUTPUT or (step.op in _CALLS and not step.modes and step.seed is None and step.target != ARRAY)
            for step in program.body[inputs:]
        )
    )


def _is_same_call(one: Step, other: Step) -> bool:
    return (
        one[:2] == other[:2]
        and one[5:] == other[5:]
        and len(one.args) == len(other.args)
        and all(map(_is_same_argument, one.args, other.args))
        and [name for name, _ in one.kwargs] == [name for name, _ in other.kwargs]
        and all(_is_same_argument(a, b) for (_, a), (_, b) in zip(one.kwargs, other.kwargs, strict=True))
    )


def _is_same_argument(one: Argument, other: Argument) -> bool:
    return type(one) is type(other) and (one == other or (_is_number(one) and _is_number(other)))


def _is_number(argument: Argument) -> bool:
    """Whether an argument is plain, or a tuple of such: what may be another from case to case."""
    return type(argument) in _PLAIN or (type(argument) is tuple and all(type(item) in _PLAIN for item in argument))


def _form(attempt: Attempt) -> Form:
    program, facts, copied = attempt.program, attempt.trace.facts, frozenset(attempt.trace.copies)
    outputs = output_refs(program)
    roots = {position: outputs[position].index for position in attempt.cotangents}
    asking = [index for index, seen in enumerate(facts) if seen is not None and seen[0]]
    last = len(facts) - 2
    # The gradient of an output that nothing else uses is what was put in.
    alone = last if len(outputs) == len(roots) == 1 and last in roots.values() else -1
    return Form(
        program.body, facts, copied, roots,
        inputs=tuple(index for index in asking if index != alone),
        distinct=tuple(index for index in asking if index not in copied),
    )  # fmt: skip
