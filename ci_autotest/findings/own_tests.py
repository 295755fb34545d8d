"""Which tests of a suspect show it in a process of their own: no other one joins its finding."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, NamedTuple

from ci_autotest.run.messages import Confirm, Tried

if TYPE_CHECKING:
    from collections.abc import Collection

    from ci_autotest.findings.suspect import Suspect
    from ci_autotest.findings.tools import Tools
    from ci_autotest.run.messages import TestInfo


class Unrepeated(NamedTuple):
    """Name a failure of a test whose first case is aligned in a process of its own.

    Attributes:
        test: Its id.
        candidate: Name.
        operator: Of what was seen.
        kind: Of what was seen.
    """

    test: str
    candidate: str
    operator: str
    kind: str


def unrepeated_by(suspect: Suspect, repeated: Suspect) -> list[Unrepeated]:
    """Return the failures that a suspect has no longer where each of its tests was asked alone."""
    verdict = suspect.verdict
    if verdict is None:
        return []
    identity = suspect.candidate, verdict.operator, verdict.kind or ""
    return [Unrepeated(test, *identity) for test in suspect.tests if test not in repeated.tests]


def repeated_alone(suspect: Suspect, tools: Tools) -> Suspect:
    """Return a suspect with those of its tests whose first case is not aligned alone; as it is, where none is left.

    A probe's calls are looked at with what ran before them anyway, and a lost worker's suspect is of one test.
    """
    verdict = suspect.verdict
    if len(suspect.tests) == 1 or verdict is None or verdict.kind == "stateful":
        return suspect
    firsts = {suspect.test.id: (suspect.case, suspect.attempt, suspect.test)}
    for other in suspect.others:
        firsts.setdefault(other[2].id, other)
    kept = [test for test in firsts if _repeats(suspect, firsts[test], tools)]
    if not kept or len(kept) == len(firsts):
        return suspect
    (case, attempt, test), hits = firsts[kept[0]], tuple(hit for hit in suspect.hits if hit.test in kept)
    own = tuple(other for other in suspect.others if other[2].id in kept and other != firsts[kept[0]])
    return suspect._replace(
        test=test, case=case, attempt=attempt, others=own, tests=tuple(kept), hits=hits,
        cases=sum(hit.count for hit in hits), of_cases=sum(hit.of_cases for hit in hits),
        before=suspect.histories.get((test.id, case), ()),
    )  # fmt: skip


def _repeats(suspect: Suspect, first: tuple[int, int, TestInfo], tools: Tools) -> bool:
    """Whether a case is not aligned alone either; what cannot be asked, or ran in such a process, is not doubted."""
    case, attempt, test = first
    if len(suspect.histories.get((test.id, case), ())) <= 1:
        return True
    with closing(tools.fresh()) as fresh:
        again = fresh.ask(Confirm(test=test, case=case, attempt=attempt, candidate=suspect.candidate))
    return not isinstance(again, Tried) or again.verdict.outcome != "aligned"


def unrepeated_notes(unrepeated: Collection[Unrepeated]) -> list[str]:
    """Return sentences on failures that their tests do not show alone."""
    return [
        f"{test} on {name}: {operator} ({kind}) was misaligned after other tests of its process, and alone it is "
        "aligned: flaky, and no part of the finding of that operator"
        for test, name, operator, kind in sorted(unrepeated)
    ]
