"""The finding that represents all of one identity."""

from __future__ import annotations

from itertools import permutations

from ci_autotest.values.finding import representative
from tests import report_samples as samples


def test_representative__one_with_a_repro__is_preferred_to_a_lower_case_without():
    with_repro = samples.finding(case=29, repro="findings/exp-1/repro.py", no_program="candidate")
    without = samples.finding(case=20, repro=None, program="", no_program="unrecorded")
    assert [representative(order) for order in permutations([with_repro, without])] == [with_repro] * 2
