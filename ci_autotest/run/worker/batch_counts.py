"""Counts of a batch of cases: made in the worker, sent as one message."""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING

from ci_autotest.run.messages import CaseFailure, CasesDone, Cost, Left, added
from ci_autotest.values.coverage_values import Exercised, joined
from ci_autotest.values.result import UnsupportedCases, joined_unsupported

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ci_autotest.alignment.cases import Accepted
    from ci_autotest.backends.operator_usage import OperatorUsage
    from ci_autotest.backends.trace import Trace
    from ci_autotest.values.verdict import Verdict


class BatchCounts:
    """Count outcomes until they are sent.

    Args:
        census: Knows the forms of programs.
    """

    def __init__(self, usage: OperatorUsage) -> None:
        self._usage = usage
        #: Forms of the batch's accepted attempts, in order; by candidate and form the cases compared and aligned.
        self._forms: list[int] = []
        self._covered: dict[str, dict[int, list[int]]] = {}
        self.failures: list[CaseFailure] = []
        #: What this process is no longer, and the cases that are to be run again for it.
        self.left: list[Left] = []
        self.again: list[int] = []
        self.undefined = self.outside = 0
        self._begun = time.perf_counter()
        self._done: list[int] = []
        self._aligned: dict[str, int] = {}
        self._unsupported: dict[str, tuple[UnsupportedCases, ...]] = {}
        self._profiles: dict[str, int] = {}
        self._seen: dict[str, dict[str, int]] = {}
        self._left_out: dict[str, set[str]] = {}
        self._accepted = self._rejected = self._ordinary_rejected = self._empty = 0
        self._refusal = ""
        self._costs: dict[str, Cost] = {}

    @property
    def duration_s(self) -> float:
        """Seconds since the tally began."""
        return time.perf_counter() - self._begun

    def accepted(self, cases: Sequence[int], profiles: Sequence[str], forms: list[int]) -> None:
        """Count a batch's cases.

        Args:
            cases: The batch's.
            profiles: What each of those that have an accepted attempt is about.
            forms: Of the programs of those.
        """
        self._done += cases
        self._empty += len(cases) - len(forms)
        self._accepted += len(forms)
        for profile, count in Counter(profiles).items():
            self._profiles[profile] = self._profiles.get(profile, 0) + count
        self._forms = forms
        self._cover("", [True] * len(forms))

    def covered(self, candidate: str, outcomes: Sequence[bool | None]) -> None:
        """Count what a candidate compared of the batch's attempts: whether each is aligned, ``None``: not compared."""
        self._cover(candidate, outcomes)

    def _cover(self, name: str, outcomes: Sequence[bool | None]) -> None:
        counts = self._covered.setdefault(name, {})
        for (form, is_aligned), cases in Counter(zip(self._forms, outcomes, strict=True)).items():
            if is_aligned is None:
                continue
            count = counts.get(form)
            if count is None:
                count = counts[form] = [0, 0]
            count[0] += cases
            count[1] += cases * is_aligned

    def rejected(self, found: Accepted) -> None:
        """Count the attempts at one case that the reference rejected."""
        self._rejected += found.rejected
        self._ordinary_rejected += found.ordinary_rejected
        self._refusal = min(filter(None, (found.refusal, self._refusal)), default="")  # whatever order they come in

    def aligned(self, candidate: str, count: int) -> None:
        """Count aligned cases."""
        if count:
            self._aligned[candidate] = self._aligned.get(candidate, 0) + count

    def judged(self, candidate: str, verdict: Verdict) -> None:
        """Count a verdict; misaligned ones are counted by their failures."""
        if verdict.outcome == "aligned":
            self.aligned(candidate, 1)
        elif verdict.reason is not None:
            one = UnsupportedCases(reason=verdict.reason, cases=1, details=(verdict.oracle,))
            self._unsupported[candidate] = joined_unsupported((*self._unsupported.get(candidate, ()), one))

    def saw(self, candidate: str, traces: Sequence[Trace]) -> None:
        """Add what was counted in the runs of a candidate: calls, and what its modules lack."""
        for trace in traces:
            if trace.left_out:
                self._left_out.setdefault(candidate, set()).update(trace.left_out)
            for operator, count in trace.calls.items():
                counts = self._seen.setdefault(candidate, {})
                counts[operator] = counts.get(operator, 0) + count

    def cost(self, candidate: str, cost: Cost) -> None:
        """Add what a batch cost on a candidate."""
        self._costs[candidate] = added(self._costs.get(candidate, Cost()), cost)

    def message(self, *, last: bool) -> CasesDone:
        """Return what is sent; counters in an order that no batch changes."""
        seen = {name: dict(sorted(counts.items())) for name, counts in self._seen.items()}
        return CasesDone(
            done=self._done, aligned=self._aligned, unsupported=self._unsupported, failures=self.failures,
            accepted=self._accepted, rejected=self._rejected,
            ordinary_accepted=self._profiles.get("ordinary", 0), ordinary_rejected=self._ordinary_rejected,
            empty=self._empty, undefined=self.undefined, outside=self.outside,
            refusal=self._refusal, profiles=self._profiles, seen=seen,
            left_out={name: sorted(names) for name, names in self._left_out.items()},
            covered={name: self._exercised(counts) for name, counts in self._covered.items()},
            costs=self._costs, duration_s=self.duration_s, last=last,
            left=self.left, again=self.again,
        )  # fmt: skip

    def _exercised(self, counts: dict[int, list[int]]) -> dict[str, Exercised]:
        """Return by operator what forms of programs exercise."""
        found: dict[str, Exercised] = {}
        for form, (cases, aligned) in counts.items():
            for use in self._usage.uses[form]:
                one = Exercised(cases=cases, aligned=aligned, arguments=use.arguments, dtypes=use.dtypes)
                before = found.get(use.operator)
                found[use.operator] = one if before is None else joined(before, one)
        return dict(sorted(found.items()))
