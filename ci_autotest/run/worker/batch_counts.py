"""Counts of the batches since the last message: kept in the worker, sent to the parent as one message."""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

import msgspec

from ci_autotest.backends.operator_usage import operators_of, placed_calls
from ci_autotest.errors import UnsupportedReason
from ci_autotest.run.messages import CaseFailure, CasesDone, Left
from ci_autotest.run.worker.batch import is_aligned
from ci_autotest.values.aligned_error import joined_errors
from ci_autotest.values.coverage_values import Exercised
from ci_autotest.values.delegation import DelegationCounts
from ci_autotest.values.result import UnsupportedCases, joined_unsupported
from ci_autotest.values.size_classes import joined_sizes, sizes_of
from ci_autotest.values.tally import PairTally, TestTally, UsageTally, add
from ci_autotest.values.verdict import unsupported_verdict

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ci_autotest.alignment.cases import Accepted
    from ci_autotest.backends.operator_usage import OperatorUsage
    from ci_autotest.backends.trace import Attempt, Trace
    from ci_autotest.kinds import AnyCandidate
    from ci_autotest.run.worker.batch import Batch, BatchVerdicts
    from ci_autotest.values.probes import ProbeCounts
    from ci_autotest.values.result import NoProfile
    from ci_autotest.values.tally import Cost
    from ci_autotest.values.verdict import Verdict

#: What is said of a test whose body uses a class of torch of which nothing is tested.
_REMARKS: Final = {
    "DataLoader": (
        "the batches of its DataLoader are inputs of both sides, and nothing of the loader was tested; @loadertest "
        "tests it"
    ),
    "DataParallel": "DataParallel(module) was run as the module, because it needs several GPUs to do more",
    "DistributedDataParallel": (
        "DistributedDataParallel(module) was run as the module, because a test body is one process"
    ),
}


class BatchCounts:
    """Count results until they are sent.

    Args:
        usage: Maps a program to its form, which says how it exercises each operator.
        candidates: The configured candidates, by name.
        examples: Number of the test's first cases that have named draws.
        grid: Number of the points of its grid.
    """

    def __init__(
        self, usage: OperatorUsage, candidates: Mapping[str, AnyCandidate], examples: int = 0, grid: int = 0
    ) -> None:
        self._usage, self._candidates = usage, candidates
        self._examples, self._grid = examples, grid
        #: By candidate and form of program: the cases compared, and those aligned.
        self._covered: dict[str, dict[int, list[int]]] = {}
        #: What the cases have changed in this process, and the cases that must run again because of it.
        self.left: list[Left] = []
        self.again: list[int] = []
        self._begun = time.perf_counter()
        self._failures: list[CaseFailure] = []
        self._done: list[int] = []
        self._test = TestTally()
        self._pairs: dict[str, PairTally] = {}
        self._aligned: Counter[str] = Counter()
        self._unsupported: dict[str, list[UnsupportedCases]] = {}
        self._calls: dict[str, Counter[str]] = {}
        self._left_out: dict[str, set[str]] = {}
        self._remarks: set[str] = set()
        self._per_slice: set[str] = set()
        self._fallbacks: set[str] = set()
        self._notes: list[str] = []
        self._probed: dict[str, list[str]] = {}
        self._placements: dict[str, dict[str, set[str]]] = {}
        self._delegated: dict[str, dict[str, int]] = {}

    @property
    def duration_s(self) -> float:
        """Seconds since the counting began."""
        return time.perf_counter() - self._begun

    def count(self, batch: Batch, counted: Sequence[int], judged: Mapping[str, BatchVerdicts]) -> None:
        """Count the cases of a batch.

        Args:
            batch: All of its ``cases`` and ``refused`` cases count.
            counted: Positions of its accepted attempts that count.
            judged: What the batch shows on each candidate.
        """
        for case, found in batch.refused:
            self._count_rejected(case, found)
            if found.unsupported is not None:
                for name in judged:
                    self._count_verdict(name, unsupported_verdict(found.unsupported))
        attempts = [batch.attempts[position] for position in counted]
        forms = list(map(self._usage.form, attempts))
        self._done += batch.cases
        given_up = sum(bool(found.skipped or found.unsupported) for _, found in batch.refused)
        profiles = Counter(attempt.profile for attempt in attempts)
        self._test += TestTally(
            accepted=len(attempts), ordinary_accepted=profiles["ordinary"], profiles=dict(profiles),
            empty=len(batch.cases) - len(attempts) - given_up, undefined=len(batch.undefined.intersection(counted)),
            outside=sum(attempt.has_outside for attempt in attempts),
            unfit=unfit_of(attempts),
            sizes=joined_sizes(sizes_of(attempt.dimensions) for attempt in attempts),
        )  # fmt: skip
        self._cover("", forms, [True] * len(forms))
        self._remarks.update(*(attempt.remarks for attempt in attempts))
        for name, one in judged.items():
            for position in counted:
                self._count_case(name, batch, position, one)
            errors = [error for position in counted for error in one.errors.get(position, ())]
            self._add(
                name,
                # Cases that the fast path is sure of have no verdict.
                aligned=len(one.sure & {*counted}),
                errors=joined_errors(errors),
                values_only=sum(_is_of_values_only(batch, position, one) for position in counted),
            )
            self._cover(name, forms, [is_aligned(one.verdicts.get(position)) for position in counted])
            self._count_traces(name, [one.traces[position] for position in counted])
            self._place(name, batch, counted, one)
            self._delegate(name, batch, counted, one)

    def _count_rejected(self, case: int, found: Accepted) -> None:
        # A point of a grid is one input, however often it is tried.
        is_one = self._grid > 0 and found.attempt is None
        self._test += TestTally(
            rejected=found.rejected, refusal=found.refusal, skipped=int(bool(found.skipped)), skip_reason=found.skipped,
            ordinary_rejected=min(found.ordinary_rejected, 1) if is_one else found.ordinary_rejected,
        )  # fmt: skip
        if note := found.untested(case, self._examples, self._grid):
            self._notes.append(note)
        has_outcome = found.attempt is not None or bool(found.given_up)
        for name, lenient in found.lenient.items():
            verdict = msgspec.structs.replace(lenient.judged.verdict, is_of_a_rejected_attempt=has_outcome)
            self._failures.append(_failure(case, lenient.number, name, verdict, lenient.profile))
            self._count_traces(name, filter(None, [lenient.judged.trace]))
        for name, judged in found.refused.items():
            self._count_traces(name, filter(None, [judged.trace]))
            if not has_outcome and name not in found.lenient:
                self._count_verdict(name, judged.verdict)

    def _count_case(self, candidate: str, batch: Batch, position: int, judged: BatchVerdicts) -> None:
        verdict, attempt = judged.verdicts.get(position), batch.attempts[position]
        # Cases without a verdict are counted together, as those that the fast path is sure of.
        if verdict is not None:
            self._count_verdict(candidate, verdict)
        beside = () if verdict is None else verdict.accepted
        for shown in (verdict, *beside, judged.suspected.get(position)):
            if shown is not None and shown.kind is not None:
                noted = self._noted(candidate, shown, attempt)
                self._failures.append(_failure(*batch.spots[position], candidate, noted, attempt.profile))

    def _noted(self, candidate: str, verdict: Verdict, attempt: Attempt) -> Verdict:
        """Return a verdict with what the body and the source of the test know about the case."""
        background = attempt.background
        # What is beside it is a failure of its own.
        verdict = msgspec.structs.replace(verdict, accepted=())
        if background is None:
            return msgspec.structs.replace(verdict, notes=attempt.notes)
        row = self._candidates.get(candidate)
        if row is None:
            return msgspec.structs.replace(verdict, notes=attempt.notes)
        notes = (*attempt.notes, *background.notes(row, verdict))
        return msgspec.structs.replace(verdict, notes=notes, known=background.known(row, verdict))

    def _count_verdict(self, candidate: str, verdict: Verdict) -> None:
        """Count a verdict; a misaligned one is counted by its failure."""
        if verdict.outcome == "aligned":
            self._aligned[candidate] += 1
        elif verdict.reason is not None:
            one = UnsupportedCases(reason=verdict.reason, cases=1, details=(verdict.oracle,))
            self._unsupported.setdefault(candidate, []).append(one)

    def _add(self, candidate: str, **counts: Any) -> None:
        add(self._pairs, {candidate: PairTally(**counts)})

    def _cover(self, name: str, forms: Sequence[int], outcomes: Sequence[bool | None]) -> None:
        """Count compared cases by the form of their program; the name ``""`` stands for what was recorded.

        An outcome is ``None`` if the case was not compared.
        """
        counts = self._covered.setdefault(name, {})
        for (form, is_case_aligned), cases in Counter(zip(forms, outcomes, strict=True)).items():
            if is_case_aligned is None:
                continue
            count = counts.setdefault(form, [0, 0])
            count[0] += cases
            count[1] += cases * is_case_aligned

    def _place(self, name: str, batch: Batch, counted: Sequence[int], judged: BatchVerdicts) -> None:
        """Collect how the arguments of each operator lay on the ranks of a group, in the cases that were compared."""
        for position in counted:
            lay = judged.traces[position].distributions
            if lay and is_aligned(judged.verdicts.get(position)) is not None:
                steps = batch.attempts[position].program.steps
                for operator, text in placed_calls(steps, lay):
                    self._placements.setdefault(name, {}).setdefault(operator, set()).add(text)

    def _delegate(self, name: str, batch: Batch, counted: Sequence[int], judged: BatchVerdicts) -> None:
        """Count the cases by how much of them a compiler ran itself, and for each operator those that it ran."""
        for position in counted:
            seen, verdict = judged.traces[position].delegation, judged.verdicts.get(position)
            is_left = verdict is not None and verdict.reason is UnsupportedReason.NOT_DELEGATED
            if seen is None or not (is_left or is_aligned(verdict) is not None):
                continue
            self._add(name, delegation=DelegationCounts(**{seen.part: 1}))
            self._fallbacks.update(f"on {name}, {note}" for note in seen.notes)
            steps = batch.attempts[position].program.steps
            left = set(operators_of(steps, seen.left))
            for operator in {*operators_of(steps, seen.own), *left}:
                found = self._delegated.setdefault(name, {})
                found[operator] = found.get(operator, 0) + (operator not in left)

    def _count_traces(self, candidate: str, traces: Iterable[Trace]) -> None:
        """Count the replaced calls of a candidate's runs, and collect what its modules lack."""
        for trace in traces:
            if trace.expectation is not None:
                self._per_slice.add(f"on {candidate}, {trace.expectation.sentence}")
            if trace.left_out:
                self._left_out.setdefault(candidate, set()).update(trace.left_out)
            if trace.calls:
                self._calls.setdefault(candidate, Counter()).update(trace.calls)

    def cost(self, candidate: str, cost: Cost) -> None:
        """Add the cost of a batch on a candidate."""
        self._add(candidate, cost=cost)

    def compiled(self, candidate: str, seconds: float) -> None:
        """Add the seconds that a candidate spent compiling."""
        self._add(candidate, compile_s=seconds)

    def count_probes(self, probes: Mapping[str, tuple[ProbeCounts, list[str]]]) -> None:
        """Add the counts of probes and the operators that they called, by candidate."""
        for name, (counts, operators) in probes.items():
            self._add(name, probes=counts)
            self._probed[name] = operators

    def message(self, *, last: bool) -> CasesDone:
        """Return the counts as a message."""
        for name in {*self._aligned, *self._unsupported}:
            self._add(
                name, aligned=self._aligned[name], unsupported=joined_unsupported(self._unsupported.get(name, ()))
            )
        names = [*self._calls, *self._probed, *self._left_out, *self._covered]
        return CasesDone(
            done=self._done, failures=self._failures, test=self._test + TestTally(duration_s=self.duration_s),
            pairs=self._pairs, usage={name: self._usage_of(name) for name in dict.fromkeys(names)}, last=last,
            left=self.left, again=self.again,
            notes=[
                *self._notes, *(_REMARKS[name] for name in sorted(self._remarks)), *sorted(self._per_slice),
                *sorted(self._fallbacks),
            ],
        )  # fmt: skip

    def _usage_of(self, name: str) -> UsageTally:
        return UsageTally(
            calls=dict(sorted(self._calls.get(name, {}).items())), probed=tuple(sorted(self._probed.get(name, ()))),
            left_out=tuple(sorted(self._left_out.get(name, ()))),
            exercised=self._exercised(name, self._covered.get(name, {})),
        )  # fmt: skip

    def _exercised(self, name: str, counts: dict[int, list[int]]) -> dict[str, Exercised]:
        found: dict[str, Exercised] = {}
        placed = self._placements.get(name, {})
        for form, (cases, aligned) in counts.items():
            for use in self._usage.uses[form]:
                one = Exercised(cases=cases, aligned=aligned, arguments=use.arguments, dtypes=use.dtypes)
                add(found, {use.operator: one})
        for operator in found.keys() & placed.keys():
            found[operator] += Exercised(placements=tuple(placed[operator]))
        for operator, cases in self._delegated.get(name, {}).items():
            add(found, {operator: Exercised(delegated=cases)})
        return dict(sorted(found.items()))


def unfit_of(attempts: Iterable[Attempt]) -> dict[str, NoProfile]:
    """Return why attempts are ordinary, by the profile that they were to have; of several reasons the first one."""
    found: dict[str, NoProfile] = {}
    for attempt in attempts:
        if attempt.unfit is not None:
            profile, why = attempt.unfit
            found[profile] = min(why, found.get(profile, why))
    return found


def _is_of_values_only(batch: Batch, position: int, judged: BatchVerdicts) -> bool:
    """Whether a case has gradients on the reference and was compared without them, for the candidate has none."""
    has_backward = judged.traces[position].has_backward or not batch.attempts[position].cotangents
    return not has_backward and is_aligned(judged.verdicts.get(position)) is not None


def _failure(case: int, attempt: int, candidate: str, verdict: Verdict, profile: str) -> CaseFailure:
    return CaseFailure(case=case, attempt=attempt, candidate=candidate, verdict=verdict, profile=profile)
