"""Counts of one (test, candidate)."""

from __future__ import annotations

from ci_autotest.commands.case_counts import PairEntry
from ci_autotest.values.probes import ProbeCounts
from ci_autotest.values.tally import PairTally

RUN = ProbeCounts(planned=1, run=1)


def left_out(reason) -> ProbeCounts:
    return ProbeCounts(planned=1, left_out={reason: 1})


def test_count__cases_of_windows_in_messages_of_their_own__are_one_probe_for_each_window():
    alone, together = PairEntry(), PairEntry()
    for case, counts in ((1, left_out("not_aligned")), (2, RUN), (3, left_out("too_large")), (11, left_out("empty"))):
        alone.count([case], PairTally(probes=counts))
    alone.count([12], PairTally(probes=left_out("not_aligned")))
    together.count([], PairTally(probes=ProbeCounts()))  # Before its last part a message says nothing of probes.
    together.count([1, 2, 3, 11, 12], PairTally(probes=ProbeCounts(planned=2, run=1, left_out={"empty": 1})))
    together.count([12], PairTally(probes=RUN))  # Once more alone, after a process was changed.

    assert alone.tally.probes == together.tally.probes == ProbeCounts(planned=2, run=1, left_out={"empty": 1})
