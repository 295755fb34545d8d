"""The tests that show a suspect in a process of their own; other tests do not join its finding."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Final, NamedTuple

from ci_autotest.run.messages import Confirm, Tried

if TYPE_CHECKING:
    from collections.abc import Collection

    from ci_autotest.findings.suspect import Suspect
    from ci_autotest.findings.tools import Tools
    from ci_autotest.run.messages import TestInfo


#: Kinds that are looked at with what ran before them, and a kind whose every run has a process of its own.
_NEVER_SHARED: Final = frozenset({"stateful", "randomness"})


class Unrepeated(NamedTuple):
    """A failure of a test whose first failing case is aligned in a process of its own.

    Attributes:
        test: The test's id.
        candidate: The candidate's name.
        operator: Operator of the failure.
        kind: Kind of the failure.
    """

    test: str
    candidate: str
    operator: str
    kind: str


def unrepeated_by(suspect: Suspect, repeated: Suspect) -> list[Unrepeated]:
    """Return the failures that a suspect no longer has after each of its tests ran alone."""
    verdict = suspect.verdict
    if verdict is None:
        return []
    identity = suspect.candidate, verdict.operator, verdict.kind or ""
    return [Unrepeated(test, *identity) for test in suspect.tests if test not in repeated.tests]


def repeated_alone(suspect: Suspect, tools: Tools) -> Suspect:
    """Return a suspect with only the tests whose first failing case also fails alone, or unchanged if none does.

    Suspects of probes are left unchanged because their calls run again together with what ran before them. Suspects of
    lost workers have a single test.
    """
    verdict = suspect.verdict
    if len(suspect.tests) == 1 or verdict is None or verdict.kind in _NEVER_SHARED:
        return suspect
    firsts = {suspect.test.id: (suspect.case, suspect.attempt, suspect.test)}
    for other in suspect.others:
        firsts.setdefault(other[2].id, other)
    kept = [test for test in firsts if _repeats(suspect, firsts[test], tools)]
    # If no test fails alone, the failure needs what ran before it, which later stages look for.
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
    """Whether a case fails alone too; yes if it already ran alone, or cannot run again."""
    case, attempt, test = first
    # A history of one message is the case's own message: its process had run nothing else.
    if len(suspect.histories.get((test.id, case), ())) <= 1:
        return True
    with closing(tools.fresh()) as fresh:
        again = fresh.ask(
            Confirm(test=test, case=case, attempt=attempt, candidate=suspect.candidate, wanted=suspect.identity)
        )
    # What cannot run again is not proved right.
    return not isinstance(again, Tried) or again.verdict.outcome != "aligned"


def unrepeated_notes(unrepeated: Collection[Unrepeated]) -> list[str]:
    """Return a sentence for each failure that its test does not show alone."""
    return [
        f"{test} on {name}: {operator} ({kind}) was misaligned after other tests of its process, but is aligned alone: "
        "it is flaky and not part of the finding of that operator"
        for test, name, operator, kind in sorted(unrepeated)
    ]
