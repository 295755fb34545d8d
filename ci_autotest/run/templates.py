"""Templates of plain bodies, made when a test has many cases: such cases are drawn, and run in lockstep at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ci_autotest.backends.forming import WORTHWHILE
from ci_autotest.case import test_key
from ci_autotest.record.drawing import DrawnCases, alike, performed
from ci_autotest.run.equipment import REFERENCE

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from ci_autotest.record.template import Template
    from ci_autotest.run.equipment import Equipment
    from ci_autotest.run.messages import TestInfo
    from ci_autotest.run.place import Place
    from ci_autotest.run.work import Together

#: Cases for which it pays to look for a template: a proof costs what twenty gain.
MANY: Final = 20
#: Batches that are looked at for one.
_TRIES: Final = 3


class Templates:
    """Keep the templates of this worker's tests.

    Args:
        equipment: What is worked with.
        place: Where the case in flight is told.
    """

    def __init__(self, equipment: Equipment, place: Place) -> None:
        """Have none."""
        self._equipment = equipment
        self._place = place
        self._known: dict[str, Template | None] = {}
        self._tries: dict[str, int] = {}

    def knows(self, test: str) -> bool:
        """Whether a test has a template."""
        return self._known.get(test) is not None

    def drawn(self, test: TestInfo, cases: Sequence[int], watched: Collection[int], *, pays: bool) -> list[Together]:
        """Return those of some cases, in lockstep, whose body need not be run; what it has not must be recorded.

        Args:
            test: Whose.
            cases: Numbers, of which the words are fetched.
            watched: Indices of values that the test's steps write to.
            pays: Whether it pays to make a template; one that is there is used.
        """
        attempts, reference = self._equipment.attempts, self._equipment.reference
        declaration, _ = self._equipment.library.find(test)
        key = test_key(self._equipment.hello.seed, test.id)
        template = self._template(test, key, cases) if pays else self._known.get(test.id)
        if template is None:
            return []
        found: list[Together] = []
        drawn = attempts.drawn(declaration, template, (key, test.id), cases)
        for positions in alike(drawn):
            if len(positions) < WORTHWHILE:
                continue
            numbers = [cases[position] for position in positions]
            members = [drawn[position] for position in positions]
            own = DrawnCases(template, members, are_random=declaration.check_grad_use_random_data)
            enter = self._place.entering(REFERENCE, {one: (case, 0) for one, case in enumerate(numbers)})
            lockstep = performed(own, reference, enter, watched, goes_back=declaration.auto_backward)
            if lockstep is not None:
                found.append(({one: numbers[one] for one in lockstep.reference.cases}, lockstep))
        return found

    def _template(self, test: TestInfo, key: int, cases: Sequence[int]) -> Template | None:
        """Return a test's template; a case that the reference refuses shows none, and the next batch is looked at."""
        found = self._known.get(test.id)
        tries = self._tries.get(test.id, 0)
        if found is None and tries < _TRIES:
            declaration, call = self._equipment.library.find(test)
            self._place.enter(cases[0], REFERENCE, 0)
            found = self._known[test.id] = self._equipment.attempts.template(
                declaration, call, (key, test.id, cases[0], 0)
            )
            self._tries[test.id] = tries + 1
        return found
