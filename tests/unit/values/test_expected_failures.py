"""Tests that are expected to fail, and candidates of which everything was skipped."""

from __future__ import annotations

from ci_autotest.commands.selected_tests import failed_after
from ci_autotest.values.expected_failures import unexpected_passes
from ci_autotest.values.judgement import FINE, NOTHING, causes, status_of
from ci_autotest.values.result import CaseCounts, XFail
from ci_autotest.values.speed import SpeedResult
from tests import report_samples as samples

EXPECTED = samples.outcome("t.py::one", xfail=XFail(reason="issue 3", is_strict=True))
SKIPPED = samples.outcome("t.py::two", "torch", outcome="skipped", cases=CaseCounts(), skip_reason="no board")
WRONG = SpeedResult(test="t.py::one", candidate="kernels", case=0, phase="forward", verdict="misaligned", kind="value")


def test_unexpected_passes__wrong_at_larger_sizes_or_with_a_finding__has_not_passed():
    found = samples.outcome("t.py::one", xfail=EXPECTED.xfail, findings=("tanh-123456",))
    assert unexpected_passes(samples.run(results=(EXPECTED,))) == [EXPECTED]
    assert unexpected_passes(samples.run(results=(EXPECTED,), speed=(WRONG,))) == []
    assert unexpected_passes(samples.run(results=(found,))) == []


def test_failed_after__strict_pass_or_wrong_at_larger_sizes__runs_again():
    plain = samples.outcome("t.py::one")
    assert failed_after(samples.run(results=(EXPECTED,)), (), has_all_candidates=True) == ["t.py::one"]
    assert failed_after(samples.run(results=(plain,), speed=(WRONG,)), (), has_all_candidates=True) == ["t.py::one"]
    assert failed_after(samples.run(results=(plain,)), ("t.py::one",), has_all_candidates=True) == []


def test_exit_code__a_candidate_whose_tests_were_all_skipped__is_nothing_compared():
    other = samples.outcome("t.py::loader", "loader")
    assert status_of(causes(samples.run(results=(other, SKIPPED)))) == NOTHING
    compared = samples.outcome("t.py::three", "torch")
    assert status_of(causes(samples.run(results=(other, SKIPPED, compared)))) == FINE
