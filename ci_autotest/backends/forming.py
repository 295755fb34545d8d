"""Attempts that were recorded one by one, put together to locksteps: those whose programs have one form."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ci_autotest.backends.columns import Side
from ci_autotest.backends.lockstep import Lockstep
from ci_autotest.backends.sweep import is_plain_call
from ci_autotest.program.ir import OUTPUT, PLACEHOLDER, Ref

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from ci_autotest.backends.trace import Attempt, Trace
    from ci_autotest.program.ir import Argument, Step, TensorSpec

#: Forms that a batch is searched for; cases of any further one are run alone.
_FORMS: Final = 4
#: Cases from which on it pays to run them in lockstep.
WORTHWHILE: Final = 3
_PLAIN: Final = frozenset({int, float, bool, str, type(None), complex})


class RecordedCases:
    """Cases as they were recorded."""

    identity: object = None

    def __init__(self, attempts: Sequence[Attempt]) -> None:
        """Hold attempts of one form."""
        self._attempts = attempts
        self.count = len(attempts)
        self.steps = attempts[0].program.body

    def at(self, index: int) -> list[Step]:
        """Return one step of every case."""
        return [attempt.program.body[index] for attempt in self._attempts]

    def specs(self, index: int) -> list[TensorSpec]:
        """Return what every case says of an input."""
        return [attempt.program.body[index].args[0] for attempt in self._attempts]  # type: ignore[misc]

    def sources(self, key: str) -> list[Any]:
        """Return the data of an input."""
        return [attempt.sources[key] for attempt in self._attempts]

    def cotangents(self, position: int) -> list[Any]:
        """Return what is put into an output that requires grad."""
        return [attempt.cotangents[position] for attempt in self._attempts]

    def dtypes(self) -> list[tuple[str, ...]]:
        """Return the dtypes of each case's inputs."""
        count = len(self._attempts[0].sources)
        return [
            tuple([step.args[0].dtype for step in attempt.program.body[:count]])  # type: ignore[union-attr]
            for attempt in self._attempts
        ]

    def profile(self, position: int) -> str:
        """Return what one case turned out to be about."""
        return self._attempts[position].profile

    def attempt(self, position: int, reference: Trace) -> Attempt:
        """Return one case, with what the reference saw of its backward pass."""
        attempt = self._attempts[position]
        attempt.trace.gradients, attempt.trace.cotangents = reference.gradients, reference.cotangents
        attempt.trace.backward_failure = reference.backward_failure
        return attempt


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
        if len(group.positions) >= WORTHWHILE:
            members = [attempts[position] for position in group.positions]
            lockstep = Lockstep.of(RecordedCases(members), _reference(members), members[0].cotangents)
            if lockstep is not None:
                found.append((group.positions, lockstep))
    return found


def _reference(attempts: Sequence[Attempt]) -> Side:
    """Return the traces of the reference as columns."""
    side = Side(range(len(attempts)))
    side.values = [list(column) for column in zip(*[one.trace.values for one in attempts], strict=True)]
    side.facts = [[facts] * len(attempts) for facts in attempts[0].trace.facts]
    side.copies = {index: [one.trace.copies[index] for one in attempts] for index in attempts[0].trace.copies}
    return side


class _Group:
    """Attempts whose programs differ in sizes and numbers only, and of which the reference saw the same facts."""

    def __init__(self, position: int, first: Attempt) -> None:
        self.positions = [position]
        self._first = first
        self._inputs = len(first.sources)
        self._calls = first.program.body[self._inputs :]
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
        ):
            return False
        calls = other.program.body[self._inputs :]
        return self._calls == calls if self._is_bare else all(map(is_same_call, self._calls, calls))


def _is_straight(attempt: Attempt) -> bool:
    """Whether a program is a list of inputs and then of plain calls."""
    program, inputs = attempt.program, len(attempt.sources)
    return (
        not program.setup
        and all(step.op == PLACEHOLDER for step in program.body[:inputs])
        and all(step.op == OUTPUT or is_plain_call(step) for step in program.body[inputs:])
    )


def is_same_call(one: Step, other: Step) -> bool:
    """Whether two steps differ in numbers only."""
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
