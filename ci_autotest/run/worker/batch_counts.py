"""Counts of the batches since the last message: kept in the worker, sent to the parent as one message."""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING, Final

import msgspec

from ci_autotest.backends.operator_usage import placed_calls
from ci_autotest.run.messages import CaseFailure, CasesDone, Cost, Left, added
from ci_autotest.run.worker.batch import is_aligned
from ci_autotest.values.aligned_error import joined_errors
from ci_autotest.values.coverage_values import Exercised, joined
from ci_autotest.values.result import UnsupportedCases, joined_unsupported
from ci_autotest.values.size_classes import joined_sizes, sizes_of
from ci_autotest.values.verdict import unsupported_verdict

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ci_autotest.alignment.cases import Accepted
    from ci_autotest.backends.operator_usage import OperatorUsage
    from ci_autotest.backends.trace import Attempt, Trace
    from ci_autotest.config import Candidate
    from ci_autotest.run.worker.batch import Batch, BatchVerdicts
    from ci_autotest.values.aligned_error import AlignedError
    from ci_autotest.values.probes import ProbeCounts
    from ci_autotest.values.result import NoProfile
    from ci_autotest.values.size_classes import ReachedSizes
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
        self, usage: OperatorUsage, candidates: Mapping[str, Candidate], examples: int = 0, grid: int = 0
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
        self._aligned: dict[str, int] = {}
        self._unsupported: dict[str, tuple[UnsupportedCases, ...]] = {}
        self._profiles: dict[str, int] = {}
        self._unfit: dict[str, NoProfile] = {}
        self._sizes: ReachedSizes = {}
        self._seen: dict[str, dict[str, int]] = {}
        self._left_out: dict[str, set[str]] = {}
        self._values_only: Counter[str] = Counter()
        self._errors: dict[str, tuple[AlignedError, ...]] = {}
        self._accepted = self._rejected = self._ordinary_rejected = self._empty = 0
        self._undefined = self._outside = self._skipped = 0
        self._skip_reason = ""
        self._remarks: set[str] = set()
        self._per_slice: set[str] = set()
        self._notes: list[str] = []
        self._refusal = ""
        self._costs: dict[str, Cost] = {}
        self._probes: dict[str, tuple[ProbeCounts, list[str]]] = {}
        self._placements: dict[str, dict[str, set[str]]] = {}

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
        self._empty += len(batch.cases) - len(attempts) - given_up
        self._accepted += len(attempts)
        for profile, count in Counter(attempt.profile for attempt in attempts).items():
            self._profiles[profile] = self._profiles.get(profile, 0) + count
        self._unfit |= dict(attempt.unfit for attempt in attempts if attempt.unfit is not None)
        self._sizes = joined_sizes((self._sizes, *(sizes_of(attempt.dimensions) for attempt in attempts)))
        self._cover("", forms, [True] * len(forms))
        self._undefined += len(batch.undefined.intersection(counted))
        self._outside += sum(attempt.has_outside for attempt in attempts)
        self._remarks.update(*(attempt.remarks for attempt in attempts))
        for name, one in judged.items():
            for position in counted:
                self._count_case(name, batch, position, one)
            # Cases that the fast path is sure of have no verdict.
            self._count_aligned(name, len(one.sure & {*counted}))
            self._cover(name, forms, [is_aligned(one.verdicts.get(position)) for position in counted])
            self._count_traces(name, [one.traces[position] for position in counted])
            self._place(name, batch, counted, one)
            errors = [error for position in counted for error in one.errors.get(position, ())]
            self._errors[name] = joined_errors((*self._errors.get(name, ()), *errors))
            self._values_only[name] += sum(_is_of_values_only(batch, position, one) for position in counted)

    def _count_rejected(self, case: int, found: Accepted) -> None:
        self._rejected += found.rejected
        # A point of a grid is one input, however often it is tried.
        is_one = self._grid > 0 and found.attempt is None
        self._ordinary_rejected += min(found.ordinary_rejected, 1) if is_one else found.ordinary_rejected
        if note := found.untested(case, self._examples, self._grid):
            self._notes.append(note)
        self._skipped += bool(found.skipped)
        self._skip_reason = min(filter(None, (found.skipped, self._skip_reason)), default="")
        # The least of them, so that the message does not depend on the order of the cases.
        self._refusal = min(filter(None, (found.refusal, self._refusal)), default="")
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
        side = ("", "") if row is None else (row.backend, row.device)
        known = "" if row is None else background.known(*side, verdict)
        return msgspec.structs.replace(verdict, notes=(*attempt.notes, *background.notes(*side, verdict)), known=known)

    def _count_verdict(self, candidate: str, verdict: Verdict) -> None:
        """Count a verdict; a misaligned one is counted by its failure."""
        if verdict.outcome == "aligned":
            self._count_aligned(candidate, 1)
        elif verdict.reason is not None:
            one = UnsupportedCases(reason=verdict.reason, cases=1, details=(verdict.oracle,))
            self._unsupported[candidate] = joined_unsupported((*self._unsupported.get(candidate, ()), one))

    def _count_aligned(self, candidate: str, count: int) -> None:
        if count:
            self._aligned[candidate] = self._aligned.get(candidate, 0) + count

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

    def _count_traces(self, candidate: str, traces: Iterable[Trace]) -> None:
        """Count the replaced calls of a candidate's runs, and collect what its modules lack."""
        for trace in traces:
            if trace.expectation is not None:
                self._per_slice.add(f"on {candidate}, {trace.expectation.sentence}")
            if trace.left_out:
                self._left_out.setdefault(candidate, set()).update(trace.left_out)
            for operator, count in trace.calls.items():
                counts = self._seen.setdefault(candidate, {})
                counts[operator] = counts.get(operator, 0) + count

    def cost(self, candidate: str, cost: Cost) -> None:
        """Add the cost of a batch on a candidate."""
        self._costs[candidate] = added(self._costs.get(candidate, Cost()), cost)

    def count_probes(self, probes: Mapping[str, tuple[ProbeCounts, list[str]]]) -> None:
        """Add the counts of probes and the operators that they called, by candidate."""
        self._probes = dict(probes)

    def message(self, *, last: bool) -> CasesDone:
        """Return the counts as a message, sorted so that they do not depend on how cases are batched."""
        seen = {name: dict(sorted(counts.items())) for name, counts in self._seen.items()}
        return CasesDone(
            done=self._done, aligned=self._aligned, unsupported=self._unsupported, failures=self._failures,
            accepted=self._accepted, rejected=self._rejected,
            ordinary_accepted=self._profiles.get("ordinary", 0), ordinary_rejected=self._ordinary_rejected,
            empty=self._empty, undefined=self._undefined, outside=self._outside,
            refusal=self._refusal, skipped=self._skipped, skip_reason=self._skip_reason,
            profiles=self._profiles, unfit=dict(sorted(self._unfit.items())), sizes=self._sizes, seen=seen,
            errors={name: errors for name, errors in self._errors.items() if errors},
            values_only={name: count for name, count in self._values_only.items() if count},
            left_out={name: sorted(names) for name, names in self._left_out.items()},
            covered={name: self._exercised(name, counts) for name, counts in self._covered.items()},
            probes={name: counts for name, (counts, _) in self._probes.items()},
            probed={name: operators for name, (_, operators) in self._probes.items() if operators},
            costs=self._costs, duration_s=self.duration_s, last=last,
            left=self.left, again=self.again,
            notes=[*self._notes, *(_REMARKS[name] for name in sorted(self._remarks)), *sorted(self._per_slice)],
        )  # fmt: skip

    def _exercised(self, name: str, counts: dict[int, list[int]]) -> dict[str, Exercised]:
        found: dict[str, Exercised] = {}
        placed = self._placements.get(name, {})
        for form, (cases, aligned) in counts.items():
            for use in self._usage.uses[form]:
                one = Exercised(cases=cases, aligned=aligned, arguments=use.arguments, dtypes=use.dtypes)
                before = found.get(use.operator)
                found[use.operator] = one if before is None else joined(before, one)
        for operator in found.keys() & placed.keys():
            found[operator] = joined(found[operator], Exercised(placements=tuple(placed[operator])))
        return dict(sorted(found.items()))


def _is_of_values_only(batch: Batch, position: int, judged: BatchVerdicts) -> bool:
    """Whether a case has gradients on the reference and was compared without them, for the candidate has none."""
    has_backward = judged.traces[position].has_backward or not batch.attempts[position].cotangents
    return not has_backward and is_aligned(judged.verdicts.get(position)) is not None


def _failure(case: int, attempt: int, candidate: str, verdict: Verdict, profile: str) -> CaseFailure:
    return CaseFailure(case=case, attempt=attempt, candidate=candidate, verdict=verdict, profile=profile)
