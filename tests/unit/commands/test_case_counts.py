"""Counts of one (test, candidate)."""

from __future__ import annotations

from ci_autotest.commands.case_counts import PairEntry
from ci_autotest.values.probes import ProbeCounts

RUN = ProbeCounts(planned=1, run=1)


def left_out(reason) -> ProbeCounts:
    return ProbeCounts(planned=1, left_out={reason: 1})


def test_count_probes__cases_of_windows_in_messages_of_their_own__are_one_probe_for_each_window():
    alone, together = PairEntry(), PairEntry()
    for case, counts in ((1, left_out("not_aligned")), (2, RUN), (3, left_out("too_large")), (11, left_out("empty"))):
        alone.count_probes([case], counts)
    alone.count_probes([12], left_out("not_aligned"))
    together.count_probes([], ProbeCounts())  # Before its last part a message says nothing of probes.
    together.count_probes([1, 2, 3, 11, 12], ProbeCounts(planned=2, run=1, left_out={"empty": 1}))
    together.count_probes([12], RUN)  # Once more alone, after a process was changed.

    assert alone.probes == together.probes == ProbeCounts(planned=2, run=1, left_out={"empty": 1})
