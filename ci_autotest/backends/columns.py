"""Columns: what cases in lockstep are made of and what one side saw of them, a list with an entry for each case."""

from __future__ import annotations

from itertools import chain
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypeVar

import torch

from ci_autotest.backends.trace import Trace

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from ci_autotest.backends.trace import Attempt, Facts
    from ci_autotest.program.ir import Step, TensorSpec

Item = TypeVar("Item")
_Tensor: Final = torch.Tensor
_facts: Final = attrgetter("requires_grad", "is_leaf", "_version")


class Cases(Protocol):
    """What cases of one form are made of.

    Attributes:
        count: Of cases.
        steps: Of the first; those of the others differ from them in sizes and numbers only.
        identity: Of the program that all of them, and those of other batches, are cases of; ``None``: not known.
    """

    count: int
    steps: tuple[Step, ...]
    identity: object

    def at(self, index: int) -> Sequence[Step]:
        """Return one step of every case; not of a placeholder."""

    def specs(self, index: int) -> Sequence[TensorSpec]:
        """Return what every case says of an input."""

    def sources(self, key: str) -> Sequence[Any]:
        """Return the data of an input."""

    def cotangents(self, position: int) -> Sequence[Any]:
        """Return what is put into an output that requires grad; ``None`` of cases that left before it was drawn."""

    def dtypes(self) -> Sequence[tuple[str, ...]]:
        """Return the dtypes of each case's inputs."""

    def profile(self, position: int) -> str:
        """Return what one case turned out to be about."""

    def attempt(self, position: int, reference: Trace) -> Attempt:
        """Return one case as an attempt, with what the reference saw of it."""


class Entering(Protocol):
    """Is told which case is entered: a crash is that case's."""

    def __call__(self, case: int, /) -> None:
        """Enter a case."""

    def each(self, cases: Sequence[int], column: Iterable[Item]) -> Iterator[Item]:
        """Yield the item of each of some cases, at least one, after the case is entered."""


class Form(NamedTuple):
    """Hold what the reference saw that is the same in all cases of a lockstep.

    Attributes:
        facts: Of each value at its step.
        copied: Indices of values that later steps write to.
        roots: Index of each output that a gradient is put into, by its position.
        inputs: Indices of the values that gradients are taken for.
        distinct: Indices of the values among which no two are one tensor: those that ask for their gradient.
    """

    facts: list[Facts | None]
    copied: frozenset[int]
    roots: dict[int, int]
    inputs: tuple[int, ...]
    distinct: tuple[int, ...]


class Side:
    """Hold what one side saw.

    Args:
        cases: Positions of the cases that begin.

    Attributes:
        cases: Positions of those that are still in lockstep; they index the rows of every column.
        values: By step.
        facts: By step.
        copies: Copy and gradient edge of values that are written to later, by step.
        cotangents: What was put in, by position of the output.
        gradients: By step.
        left: What was seen, by position, of the cases that left, and whether their backward pass is behind them.
    """

    def __init__(self, cases: Iterable[int]) -> None:
        """Begin with no step."""
        self.cases = list(cases)
        self.values: list[list[Any]] = []
        self.facts: list[list[Facts | None]] = []
        self.copies: dict[int, list[tuple[Any, Any]]] = {}
        self.cotangents: dict[int, list[Any]] = {}
        self.gradients: dict[int, Sequence[Any]] = {}
        self.left: dict[int, tuple[Trace, bool]] = {}

    def trace(self, row: int) -> Trace:
        """Return what was seen of one case so far."""
        trace = Trace()
        trace.values = [column[row] for column in self.values]
        trace.facts = [column[row] for column in self.facts]
        if self.copies:
            trace.copies = {index: column[row] for index, column in self.copies.items()}
        if self.cotangents:
            trace.cotangents = {position: column[row] for position, column in self.cotangents.items()}
        if self.gradients:
            trace.gradients = {index: column[row] for index, column in self.gradients.items()}
        return trace

    def leave(self, row: int, *, is_done: bool, columns: Iterable[list[Any]] = ()) -> Trace:
        """Take a case out of the lockstep and return its trace.

        Args:
            row: The case's.
            is_done: Whether its backward pass is behind it, or will not come.
            columns: Further ones that lose the row.
        """
        trace = self.trace(row)
        self.left[self.cases[row]] = trace, is_done
        held = [self.cases, *self.values, *self.facts, *self.copies.values(), *self.cotangents.values(), *columns]
        for column in {id(column): column for column in held}.values():
            del column[row]
        return trace


def facts_in(column: list[Any]) -> list[Facts | None]:
    """Return what is seen of the values of a step."""
    if set(map(type, column)) == {_Tensor}:
        try:
            return list(map(_facts, column))
        except RuntimeError:
            pass  # one was made in inference mode
    return list(map(_facts_of, column))


def _facts_of(value: Any) -> Facts | None:  # noqa: ANN401 - whatever a step gave
    try:
        return _facts(value) if isinstance(value, _Tensor) else None
    except Exception:  # noqa: BLE001 - of a class of somebody else's, reading may raise anything: its case leaves
        return None


def rows_apart(column: list[Any], expected: list[Any]) -> set[int]:
    """Return the rows in which two columns differ."""
    if column == expected:
        return set()
    return {row for row, (one, other) in enumerate(zip(column, expected, strict=True)) if one != other}


def rows_of_one_tensor(columns: list[list[Any]]) -> set[int]:
    """Return the rows of which two values are one tensor."""
    seen = [list(map(id, column)) for column in columns]
    if len(set(chain.from_iterable(seen))) == sum(map(len, seen)):
        return set()
    return {row for row, values in enumerate(zip(*seen, strict=True)) if len(set(values)) != len(values)}
