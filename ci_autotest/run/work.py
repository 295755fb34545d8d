"""The work on a batch: its cases with an accepted attempt, and which of them run in lockstep."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import torch

from ci_autotest.backends.forming import formed
from ci_autotest.backends.lockstep import Lockstep
from ci_autotest.run.memory import Footprint

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ci_autotest.backends.census import Census
    from ci_autotest.backends.columns import Side
    from ci_autotest.backends.trace import Attempt

_numel: Final = torch.Tensor.numel
#: Cases in lockstep: the number of each by what it is to the lockstep.
Together = tuple[dict[int, int], Lockstep]


class Work:
    """The cases of a batch that have an accepted attempt, in order, and how they are run.

    Attributes:
        spots: Case and number of the attempt, by position.
        locksteps: What runs together, each with the position of what a case is to it.
        alone: Positions of all others.
    """

    def __init__(self, drawn: Sequence[Together], recorded: Mapping[int, tuple[int, Attempt]]) -> None:
        """Put together cases that were drawn, in lockstep already, and attempts by case, with their numbers."""
        numbers = {case: 0 for cases, _ in drawn for case in cases.values()}
        numbers.update({case: number for case, (number, _) in recorded.items()})
        self.spots = sorted(numbers.items())
        position = {case: at for at, (case, _) in enumerate(self.spots)}
        self.locksteps = [({one: position[case] for one, case in cases.items()}, found) for cases, found in drawn]
        self._attempts = {position[case]: attempt for case, (_, attempt) in recorded.items()}
        self._places = {at: (one, found) for cases, found in self.locksteps for one, at in cases.items()}
        self._made: dict[int, Attempt] = {}
        self.alone = sorted(self._attempts)

    def form(self) -> None:
        """Run attempts of one form in lockstep."""
        alone = self.alone
        for rows, lockstep in formed([self._attempts[position] for position in alone]):
            positions = {one: alone[row] for one, row in enumerate(rows)}
            self.locksteps.append((positions, lockstep))
            self._places.update({position: (one, lockstep) for one, position in positions.items()})
        self.alone = [position for position in alone if position not in self._places]

    def attempt(self, position: int) -> Attempt:
        """Return one case's attempt with all that the reference saw of it: asked for after its backward pass."""
        if position not in self._places:
            return self._attempts[position]
        if position not in self._made:
            one, lockstep = self._places[position]
            self._made[position] = lockstep.attempt(one)
        return self._made[position]

    def values(self, position: int) -> Sequence[object]:
        """Return what the reference saw of one case's steps."""
        if position not in self._places:
            return self._attempts[position].trace.values
        one, lockstep = self._places[position]
        side = lockstep.reference
        return (side.left[one][0] if one in side.left else side.trace(side.cases.index(one))).values

    def footprint(self) -> Footprint:
        """Return the memory that the cases take, by what the reference saw.

        That is two sides, with as much again for gradients.
        """
        alone = [[[value] for value in self._attempts[position].trace.values] for position in self.alone]
        found = sum((_footprint(1, columns) for columns in alone), Footprint())
        sides = [lockstep.reference for _, lockstep in self.locksteps]
        return sum((_footprint(len(side.cases), side.values) for side in sides), found)

    def profiles(self) -> list[str]:
        """Return what each case turned out to be about."""
        found = {position: self._attempts[position].profile for position in self.alone}
        found.update({position: lockstep.cases.profile(one) for position, (one, lockstep) in self._places.items()})
        return [found[position] for position in range(len(self.spots))]

    def forms(self, census: Census) -> list[int]:
        """Return the form of each case's program; those in lockstep differ in dtypes at most."""
        found = {position: census.form(self._attempts[position]) for position in self.alone}
        for positions, lockstep in self.locksteps:
            known: dict[tuple[object, ...], int] = {}
            inputs = lockstep.cases.dtypes()
            is_one = len(set(inputs)) == 1 and _is_of_one_dtype(lockstep.reference)
            for one, position in positions.items():
                # Which of two dtypes a step gives depends on sizes too: a tensor without dimensions gives way.
                dtypes = inputs[one] if is_one else tuple(map(_dtype, self.values(position)))
                form = known.get(dtypes)
                if form is None:
                    form = known[dtypes] = _form(lockstep, one, dtypes, census)
                found[position] = form
        return [found[position] for position in range(len(self.spots))]


def _is_of_one_dtype(side: Side) -> bool:
    """Whether all tensors of the first case are of one dtype: no other case of such inputs can then have another."""
    return bool(side.cases) and len({_dtype(column[0]) for column in side.values} - {None}) <= 1


def _footprint(cases: int, columns: Sequence[Sequence[object]]) -> Footprint:
    """Return the memory of some cases, by the values of their steps."""
    total = largest = 0
    for column in columns:
        tensors = [value for value in column if isinstance(value, torch.Tensor)]
        if tensors:
            width, numels = 4 * tensors[0].element_size(), list(map(_numel, tensors))
            total += width * sum(numels)
            largest += width * max(numels)
    return Footprint(cases, total, largest)


def _dtype(value: object) -> object:
    return value.dtype if isinstance(value, torch.Tensor) else None


def _form(lockstep: Lockstep, one: int, dtypes: tuple[object, ...], census: Census) -> int:
    """Return the form of a case's program, which is worked out once for each program that is known by its identity."""
    identity = lockstep.cases.identity
    if identity is None:
        return census.form(lockstep.attempt(one))
    return census.form_of((identity, dtypes), lambda: lockstep.attempt(one))
