"""What a finding says of its operator: the reference's faults and rounding are never called misaligned."""

from __future__ import annotations

import pytest

from ci_autotest.report.coverage import counted
from ci_autotest.report.finding_message import headline, message_lines
from ci_autotest.report.standing import state_of, word_of
from ci_autotest.values.coverage_values import Exercised, OperatorCoverage
from tests import report_samples as samples


@pytest.mark.parametrize(
    ("changes", "state", "word"),
    [
        ({}, "misaligned", "misaligned"),
        ({"blame": "both"}, "misaligned", "misaligned"),
        ({"blame": "reference"}, "reference_off", "reference off"),
        ({"blame": "ill_conditioned"}, "rounding", "rounding"),
        ({"blame": "reference", "known": "as documented"}, "known", "accepted"),
        ({"outcome": "crashed", "kind": "crash"}, "crashed", "crashed"),
        ({"outcome": "flaky"}, "flaky", "flaky"),
    ],
)
def test_word_of__who_is_off__is_the_first_word(changes, state, word):
    finding = samples.finding(**changes)
    assert (state_of(finding), word_of(finding)) == (state, word)
    if finding.outcome == "misaligned":
        assert message_lines(finding)[0].startswith(f"{word}: ")


def test_message_lines__blame_of_the_reference__says_why_it_fails_no_run():
    finding = samples.finding(blame="reference")
    assert "  accepted: the reference is off, so this fails no run" in message_lines(finding)
    assert headline(finding).startswith(f"{samples.OPERATOR} on kernels: the reference's value of layer_norm is off by")
    rounded = message_lines(samples.finding(blame="ill_conditioned"))
    assert "  accepted: both sides round as they may, so this fails no run" in rounded


def test_counted__operator_of_which_the_reference_is_off__is_in_a_column_of_its_own():
    seen = Exercised(cases=1)
    own = OperatorCoverage(operator=samples.OPERATOR, family="", recorded=seen, candidates={"kernels": seen})
    (found,) = counted([own], [samples.finding(blame="reference")], ["kernels"])
    assert (found.counts.misaligned, found.counts.reference_off, found.counts.aligned) == (0, 1, 0)
    (found,) = counted([own], [samples.finding(blame="reference"), samples.finding()], ["kernels"])
    assert (found.counts.misaligned, found.counts.reference_off) == (1, 0)
