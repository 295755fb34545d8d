"""The ledger of a run: counts by (test, candidate), added up from the pool's events and read for the result."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from ci_autotest.commands.case_counts import KEPT, PairEntry, TestEntry, is_tolerated
from ci_autotest.config.known_differences import matches
from ci_autotest.findings.suspect import Suspect
from ci_autotest.values.finding import HITS_LISTED, Hit
from ci_autotest.values.result import REFERENCE_CANDIDATE
from ci_autotest.values.tally import PairTally, UsageTally

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ci_autotest.commands.case_counts import Hits
    from ci_autotest.config import Known
    from ci_autotest.run.events import LostCase
    from ci_autotest.run.messages import CaseFailure, CasesDone, Left, RunCases, TestInfo
    from ci_autotest.run.worker_loss import WorkerLostError
    from ci_autotest.values.verdict import Verdict

#: Cases of a test that ended their worker and are searched for the operator that did it.
_LOCATED: Final = 10


class Identity(NamedTuple):
    """Identity of a finding: failures with the same identity are one finding."""

    candidate: str
    operator: str
    kind: str


class Seen(NamedTuple):
    """A failing case, as far as a row of ``known`` looks at it."""

    candidate: str
    operator: str
    target: str
    kind: str


class Ledger:
    """Counts of a run.

    Args:
        tests: Tests in order, with their cases in this shard.
        candidates: Names of the candidates that run; a test of a data loader has one of its own besides.
        known: Rows of differences that are accepted.
    """

    def __init__(
        self,
        tests: Sequence[tuple[TestInfo, Sequence[int]]],
        candidates: tuple[str, ...],
        known: tuple[Known, ...] = (),
    ) -> None:
        self._known = known
        own = dict.fromkeys(info.candidate for info, _ in tests if info.candidate)
        #: The candidates that run operators, which coverage counts.
        self.operator_candidates = candidates
        self.candidates = candidates = (*candidates, *own)
        self.tests = {
            info.id: TestEntry(info, cases, order, (info.candidate,) if info.candidate else self.operator_candidates)
            for order, (info, cases) in enumerate(tests)
        }
        self.pairs = {(test, name): PairEntry() for test, entry in self.tests.items() for name in entry.candidates}
        #: Sentences about single tests, by test.
        self.remarks: dict[str, dict[str, None]] = {}
        #: What the cases used, by candidate; under the empty name, what was recorded on the reference.
        self.usage: dict[str, UsageTally] = {name: UsageTally() for name in ("", *candidates)}
        self.passed: list[WorkerLostError] = []
        self.cut: list[str] = []
        #: Cases in which the reference lost its process because of what ran before.
        self.ended_after: list[LostCase] = []
        #: Changes that tests left in their process, by (test, candidate): (operators, change).
        self.left: dict[tuple[str, str], dict[tuple[str, str], None]] = {}
        #: Whether an identity counts against the run, by identity.
        self._identities: dict[Identity, bool] = {}
        self._done = 0
        #: What the process had run before a failing case, by (test, candidate) and case, for the first few cases.
        self._before: dict[tuple[str, str], dict[int, tuple[RunCases, ...]]] = {}

    def part(self, test: str, done: CasesDone, before: tuple[RunCases, ...] = ()) -> None:
        """Count a part of a task.

        Args:
            test: The task's test.
            done: Results of its cases.
            before: What the process had run until then; the task's own message is last.
        """
        entry = self.tests[test]
        entry.tally += done.test
        self.remarks.setdefault(test, {}).update(dict.fromkeys(done.notes))
        held = self._held_reference(test, done)
        # A test can forge its worker's messages: other names are not counted.
        for name in (*entry.candidates, *held):
            tally = done.pairs.get(name, PairTally())
            self.pairs[test, name].count(done.done, tally)
            if name not in held:  # Those are no cases of the plan.
                self._done += tally.aligned + tally.not_compared
                self.usage[name] += done.usage.get(name, UsageTally())
        self.usage[""] += UsageTally(exercised=done.usage.get("", UsageTally()).exercised)
        for failure in done.failures:
            if failure.candidate in {*entry.candidates, *held}:
                self.pairs[test, failure.candidate].fail(failure)
                known = self._before.setdefault((test, failure.candidate), {})
                if len(known) < KEPT:
                    known[failure.case] = before
                self._seen(failure, is_expected=entry.info.xfail is not None)

    def _held_reference(self, test: str, done: CasesDone) -> tuple[str, ...]:
        """Return the candidate that stands for PyTorch, if a part held it against what the test expects."""
        names = {name for name, tally in done.pairs.items() if tally.aligned}
        names |= {failure.candidate for failure in done.failures}
        if REFERENCE_CANDIDATE not in names:
            return ()
        self.pairs.setdefault((test, REFERENCE_CANDIDATE), PairEntry())
        return (REFERENCE_CANDIDATE,)

    @property
    def holds_reference(self) -> bool:
        """Whether a test held PyTorch against what it expects."""
        return any(name == REFERENCE_CANDIDATE for _, name in self.pairs)

    def _seen(self, failure: CaseFailure, *, is_expected: bool) -> None:
        verdict = failure.verdict
        if verdict.outcome == "misaligned":
            # What only a probe shows is dropped as often as confirmed, so it is counted when it is a finding.
            is_of_probe = verdict.is_no_case and verdict.kind == "stateful"
            self._suspect(
                Seen(failure.candidate, verdict.operator, verdict.target, verdict.kind or ""),
                is_excused=is_expected or is_of_probe or is_tolerated(verdict),
            )
            self._done += not verdict.is_no_case and failure.candidate != REFERENCE_CANDIDATE

    def _suspect(self, seen: Seen, *, is_excused: bool) -> None:
        """Note an identity: it counts if any of its cases does, and no row of ``known`` accepts it."""
        identity = Identity(seen.candidate, seen.operator, seen.kind)
        counts = not is_excused and not any(matches(row, seen) for row in self._known)
        self._identities[identity] = self._identities.get(identity, False) or counts

    def lost(self, lost: LostCase) -> None:
        """Count a case that ended its worker; if the reference does that alone, the test is broken."""
        if lost.candidate is None and lost.repeats == "history":
            self.ended_after.append(lost)
        elif lost.candidate is None and lost.repeats != "alone":
            self.cut.append(_ended_once(lost))
        elif lost.candidate is None:
            entry = self.tests[lost.task.test.id]
            entry.broken = f"the reference ended its process in case {lost.case}: it {lost.error.reason}"
            entry.broken_traceback = lost.error.output
        else:
            self._done += 1
            test = lost.task.test.id
            seen = Seen(lost.candidate, test, test, "timeout" if lost.error.timed_out else "crash")
            self._suspect(seen, is_excused=False)
            self.pairs[lost.task.test.id, lost.candidate].lost.append(lost)

    def changed(self, test: str, left: Sequence[Left]) -> None:
        """Note the changes that a test left in its process."""
        for one in left:
            known = self.left.setdefault((test, one.candidate), {})
            known |= {(", ".join(one.operators), change.what): None for change in one.changes}

    def broken(self, test: str, message: str, traceback: str) -> None:
        """Note that a test cannot be run."""
        self.tests[test].broken = message
        self.tests[test].broken_traceback = traceback

    @property
    def done(self) -> int:
        """Number of cases run so far, on all candidates."""
        return self._done

    @property
    def is_complete(self) -> bool:
        """Whether every planned case was run, or skipped because its test ended a worker or broke."""
        return all(
            (pair := self.pairs[test, name]).done + entry.tally.empty + entry.tally.skipped >= len(entry.cases)
            or pair.is_left_alone
            or entry.broken
            for test, entry in self.tests.items()
            for name in entry.candidates
        )

    @property
    def has_suspects(self) -> bool:
        """Whether an identity was seen."""
        return bool(self._identities)

    @property
    def suspected(self) -> int:
        """Number of identities seen so far that would count against the run."""
        return sum(self._identities.values())

    def suspects(self) -> list[Suspect]:
        """Return each identity's first failing case by test and case, which is the same for any number of workers."""
        found = []
        for identity, groups in sorted(self._grouped().items()):
            failures = self._in_order(groups)
            test, first = failures[0]
            verdict = self._with_pattern(test, first, groups)
            ids = tuple(sorted({test for test, _ in failures}))
            found.append(
                Suspect(
                    self.tests[test].info, identity.candidate, first.case, first.attempt, verdict, first.profile,
                    sum(hits.count for _, _, hits in groups),
                    sum(self._run_of(name, identity.candidate) for name in ids), ids,
                    others=self._others(failures),
                    before=self._before.get((test, identity.candidate), {}).get(first.case, ()),
                    histories={
                        (name, case): before
                        for name in ids
                        for case, before in self._before.get((name, identity.candidate), {}).items()
                    },
                    hits=tuple(self._hit(name, identity.candidate, groups) for name in ids),
                )
            )  # fmt: skip
        return found + self._lost()

    def _in_order(self, groups: list[tuple[str, bool, Hits]]) -> list[tuple[str, CaseFailure]]:
        """Return the kept failures; those that the candidate is to blame for come first and represent the finding."""
        kept = [(is_tolerated, test, item) for test, is_tolerated, hits in groups for item in hits.first]
        kept.sort(key=lambda entry: (entry[0], entry[1], entry[2].case))
        return [(test, item) for _, test, item in kept]

    @staticmethod
    def _with_pattern(test: str, first: CaseFailure, groups: list[tuple[str, bool, Hits]]) -> Verdict:
        """Return the verdict on a case with the pattern of the case of its test that tells most of the same tensor."""
        verdict = first.verdict
        at = verdict.misalignment
        what = "" if at is None else at.what
        telling = [hits.telling[what] for name, _, hits in groups if name == test and what in hits.telling]
        if not telling:
            return verdict
        _, pattern = max(telling, key=lambda item: item[0])
        if pattern.case == first.case:
            return verdict
        return msgspec.structs.replace(verdict, pattern=pattern)

    def _others(self, failures: list[tuple[str, CaseFailure]]) -> tuple[tuple[int, int, TestInfo], ...]:
        first = failures[0][0]
        firsts: dict[str, CaseFailure] = {}
        for name, item in failures:
            firsts.setdefault(name, item)
        chosen = [*failures[1:KEPT], *((name, item) for name, item in firsts.items() if name != first)]
        unique = {(name, item.case): item for name, item in chosen}
        return tuple((item.case, item.attempt, self.tests[name].info) for (name, _), item in unique.items())

    def _run_of(self, test: str, candidate: str) -> int:
        """Return how many cases of a test were run on a candidate; fewer than planned if the run was ended."""
        entry = self.tests[test]
        return min(len(entry.cases), self.pairs[test, candidate].done + entry.tally.empty)

    def _hit(self, test: str, candidate: str, groups: list[tuple[str, bool, Hits]]) -> Hit:
        own = [hits for name, _, hits in groups if name == test]
        cases = sorted(case for hits in own for case in hits.cases)
        return Hit(
            test=test, cases=tuple(cases[:HITS_LISTED]), count=sum(hits.count for hits in own),
            of_cases=self._run_of(test, candidate),
        )  # fmt: skip

    def _grouped(self) -> dict[Identity, list[tuple[str, bool, Hits]]]:
        """Return the failing tests by identity, whether the failure is tolerated there, and the cases."""
        grouped: dict[Identity, list[tuple[str, bool, Hits]]] = {}
        for (test, name), pair in self.pairs.items():
            for group, hits in pair.failures.items():
                if group.outcome == "misaligned":
                    identity = Identity(name, group.operator, group.kind)
                    grouped.setdefault(identity, []).append((test, group.is_tolerated, hits))
        return grouped

    def _lost(self) -> list[Suspect]:
        found = []
        for (test, name), pair in sorted(self.pairs.items(), key=lambda item: item[0]):
            groups: dict[tuple[bool, str], list[LostCase]] = {}
            for item in sorted(pair.lost, key=lambda item: item.case):
                groups.setdefault((item.error.timed_out, item.repeats), []).append(item)
            for _, lost in sorted(groups.items(), key=lambda group: group[0]):
                first, entry = lost[0], self.tests[test]
                cases, run = tuple(item.case for item in lost[:HITS_LISTED]), self._run_of(test, name)
                found.append(
                    Suspect(
                        entry.info, name, first.case, first.error.spot.attempt, None, "ordinary",
                        len(lost), run, (test,), first.error, history=first.history, repeats=first.repeats,
                        before=first.before,
                        hits=(Hit(test=test, cases=cases, count=len(lost), of_cases=run),),
                        others=tuple((item.case, item.error.spot.attempt, entry.info) for item in lost[1:_LOCATED]),
                    )
                )  # fmt: skip
        return found


def _ended_once(lost: LostCase) -> str:
    """Return the note about a process that was lost once while the reference ran."""
    more = (
        "the run ended before that was investigated"
        if lost.repeats == "unknown"
        else "it does not repeat, neither alone nor after the cases that ran before it, and that result counts"
    )
    return f"{lost.task.test.id}: its worker {lost.error.reason} while the reference ran case {lost.case}; {more}"
