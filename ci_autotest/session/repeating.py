"""Which tests of a suspect show it in a process of their own: no other one joins its finding."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

from ci_autotest.run.messages import Confirm, Tried

if TYPE_CHECKING:
    from collections.abc import Collection

    from ci_autotest.run.messages import TestInfo
    from ci_autotest.session.ledger import Suspect
    from ci_autotest.session.made import Workshop


def repeated(suspect: Suspect, workshop: Workshop) -> Suspect:
    """Return a suspect with those of its tests whose first case is not aligned alone; as it is, where none is left.

    A probe's calls are looked at with what ran before them anyway, and a lost worker's suspect is of one test.
    """
    verdict = suspect.verdict
    if len(suspect.tests) == 1 or verdict is None or verdict.kind == "stateful":
        return suspect
    firsts = {suspect.test.id: (suspect.case, suspect.attempt, suspect.test)}
    for other in suspect.others:
        firsts.setdefault(other[2].id, other)
    kept = [test for test in firsts if _repeats(suspect, firsts[test], workshop)]
    if not kept or len(kept) == len(firsts):
        return suspect
    (case, attempt, test), hits = firsts[kept[0]], tuple(hit for hit in suspect.hits if hit.test in kept)
    own = tuple(other for other in suspect.others if other[2].id in kept and other != firsts[kept[0]])
    return suspect._replace(
        test=test, case=case, attempt=attempt, others=own, tests=tuple(kept), hits=hits,
        cases=sum(hit.count for hit in hits), of_cases=sum(hit.of_cases for hit in hits),
        before=suspect.histories.get((test.id, case), ()),
    )  # fmt: skip


def _repeats(suspect: Suspect, first: tuple[int, int, TestInfo], workshop: Workshop) -> bool:
    """Whether a case is not aligned alone either; what cannot be asked, or ran in such a process, is not doubted."""
    case, attempt, test = first
    if len(suspect.histories.get((test.id, case), ())) <= 1:
        return True
    with closing(workshop.fresh()) as fresh:
        again = fresh.ask(Confirm(test=test, case=case, attempt=attempt, candidate=suspect.candidate))
    return not isinstance(again, Tried) or again.verdict.outcome != "aligned"


def unrepeated_notes(unrepeated: Collection[tuple[str, str, str, str]]) -> list[str]:
    """Return sentences on failures that their tests do not show alone.

    Args:
        unrepeated: Test, candidate, operator and kind of each.
    """
    return [
        f"{test} on {name}: {operator} ({kind}) was misaligned after other tests of its process, and alone it is "
        "aligned: flaky, and no part of the finding of that operator"
        for test, name, operator, kind in sorted(unrepeated)
    ]
