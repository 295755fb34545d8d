"""The verdict never says aligned where something was not compared."""

from __future__ import annotations

import pytest

from ci_autotest.commands.exit_status import ended_by
from ci_autotest.errors import UnsupportedReason
from ci_autotest.report.document import plain_line
from ci_autotest.report.verdict_line import headline, in_reading_order, is_wholly_aligned, marks, verdict
from ci_autotest.values.result import CandidateInfo, CaseCounts, RunError, UnsupportedCases
from tests import report_samples as samples

IDLE = samples.outcome(outcome="not_run", cases=CaseCounts(not_run=20))
LACKING = samples.outcome(
    outcome="unsupported", cases=CaseCounts(unsupported=20),
    unsupported=(UnsupportedCases(reason=UnsupportedReason.NOT_REPLACED, cases=20, details=("no exp here",)),),
)  # fmt: skip
FLAKY = samples.outcome(outcome="flaky", cases=CaseCounts(aligned=19, flaky=1))
LAYER_NORM = "torch.nn.functional.layer_norm on kernels"


@pytest.mark.parametrize(
    ("result", "sentence"),
    [
        pytest.param(samples.run(), "✓ aligned: 1 test on 2 candidates, 40 cases", id="aligned"),
        pytest.param(
            samples.run(shard=(2, 4)),
            "✓ aligned: 1 test on 2 candidates, 40 cases (shard 2 of 4 only)",
            id="one shard",
        ),
        pytest.param(samples.misaligned(), f"✗ 1 operator misaligned: {LAYER_NORM}", id="misaligned"),
        pytest.param(
            samples.misaligned(exit_code=0, fail_on="never"),
            f"⚠ still misaligned: 1 test on 2 candidates, 40 cases; 1 operator misaligned: {LAYER_NORM}, not counted",
            id="misaligned, fail-on never",
        ),
        pytest.param(
            samples.misaligned(exit_code=0, new=(), fail_on="new"),
            "⚠ still misaligned: 1 test on 2 candidates, 40 cases; 1 finding also in the baseline, none new",
            id="misaligned, fail-on new",
        ),
        pytest.param(
            samples.misaligned(exit_code=1, new=()), f"✗ 1 operator misaligned: {LAYER_NORM}", id="old, and counted"
        ),
        pytest.param(
            samples.misaligned(exit_code=0, findings=(samples.finding(known="x"),)),
            "✓ aligned: 1 test on 2 candidates, 40 cases; 1 known difference",
            id="known",
        ),
        pytest.param(
            samples.misaligned(findings=()), "✗ 1 test failed without a finding", id="failed without a finding"
        ),
        pytest.param(
            samples.run(broken=(samples.broken(),)), "✗ 1 test broken: autotests/autotest_pool.py", id="broken"
        ),
        pytest.param(samples.run(results=()), "✗ nothing was compared", id="no test"),
        pytest.param(samples.run(results=(IDLE,)), "✗ nothing was compared", id="nothing compared"),
        pytest.param(
            samples.run(results=(IDLE, samples.outcome()), exit_code=3),
            "✗ nothing was compared for 1 of 2 pairs of test and candidate",
            id="one compared nothing",
        ),
        pytest.param(
            samples.run(results=(LACKING, samples.outcome())),
            "⚠ aligned where compared: 1 test on 1 candidate, 20 cases; "
            "nothing was compared for 1 of 2 pairs of test and candidate",
            id="one compared nothing, as expected",
        ),
        pytest.param(
            ended_by(samples.run(), RunError("no node is left", 4)), "✗ no node is left", id="ended by an error"
        ),
        pytest.param(samples.run(interrupted=True), "✗ interrupted after 40 cases", id="interrupted"),
        pytest.param(
            samples.run(results=(FLAKY,)),
            "⚠ aligned where compared: 1 test on 1 candidate, 20 cases; 1 test flaky",
            id="flaky",
        ),
        pytest.param(
            samples.run(results=(FLAKY,), findings=(samples.finding(outcome="flaky"),), exit_code=1, fail_on="flaky"),
            f"✗ 1 operator flaky: {LAYER_NORM}",
            id="flaky, and counted",
        ),
        pytest.param(samples.run(exit_code=2), "✗ the command ended with status 2", id="status without a reason"),
    ],
)
def test_verdict__run__is_one_sentence(result, sentence):
    assert verdict(result) == sentence


def test_verdict__many_operators__names_three_of_each_candidate():
    found = (*map(samples.numbered, range(5)), samples.numbered(9, candidate="compiled"))

    assert verdict(samples.run(findings=found)) == (
        "✗ 6 operators misaligned: torch.op00009 on compiled, "
        "torch.op00000, torch.op00001, torch.op00002 and 2 more on kernels"
    )


def test_in_reading_order__all_sorts__what_must_be_repaired_comes_first():
    found = (
        samples.numbered(0, known="x", outcome="crashed"),
        samples.numbered(1, outcome="flaky"),
        samples.numbered(2),
        samples.numbered(3, outcome="crashed"),
        samples.numbered(4),
    )

    ordered = in_reading_order(samples.run(findings=found, new=("op00004-0000",)))

    assert [item.operator[-1] for item in ordered] == ["4", "3", "2", "1", "0"]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({}, []),
        ({"shrunk": False}, ["not shrunk"]),
        ({"repro_verified": False}, ["repro not verified"]),
        ({"repro": None, "repro_verified": False}, []),
        ({"confirmed": False}, ["not confirmed: not repeated in a fresh process"]),
        ({"outcome": "flaky"}, ["flaky: seen once, but not in a second run"]),
        ({"blame": "ill_conditioned"}, ["not the candidate's fault"]),
        ({"kind": "leniency"}, ["the candidate accepts what the reference rejects"]),
        (
            {"accumulated": True},
            ["accumulated error: each step is aligned when it gets the reference's inputs"],
        ),
    ],
    ids=str,
)
def test_marks__finding__tells_what_is_not_as_it_should_be(change, told):
    assert list(map(plain_line, marks(samples.finding(**change)))) == told


def test_headline__finding_without_one__is_made_up():
    assert headline(samples.finding(headline="")) == f"{LAYER_NORM}: misaligned (value of layer_norm)"


def test_verdict__note_says_what_we_say_of_replacements__is_not_taken_for_it():
    idle = samples.outcome("autotests/b.py::idle", outcome="not_run", cases=CaseCounts(not_run=20))
    told = samples.run(
        results=(samples.outcome(), idle), exit_code=3, notes=("the queen was never called. Not at all",)
    )
    assert verdict(told) == "✗ nothing was compared for 1 of 2 pairs of test and candidate"


def test_verdict__replacement_never_called__is_named_whatever_the_notes_say():
    kernels = CandidateInfo(name="kernels", backend="substitute", replaces=("torch.exp",))
    told = samples.run(candidates=(kernels,), results=(samples.outcome(),), exit_code=3)
    assert verdict(told) == "✗ candidate 'kernels': the replacement of torch.exp was never called"


def test_is_wholly_aligned__some_cases_unsupported__is_not():
    lacking = UnsupportedCases(reason=UnsupportedReason.NO_KERNEL, cases=3, details=("### ✓ aligned",))
    part = samples.outcome(cases=CaseCounts(aligned=17, unsupported=3), unsupported=(lacking,))
    assert is_wholly_aligned(samples.run(results=(samples.outcome(),)))
    assert not is_wholly_aligned(samples.run(results=(part,)))
    assert verdict(samples.run(results=(part,))).endswith("; 3 cases unsupported")


def test_verdict__rejected_cases__are_not_those_that_did_not_run():
    part = samples.outcome(cases=CaseCounts(aligned=17, not_run=3), rejected_cases=2)
    assert verdict(samples.run(results=(part,))).endswith("; the inputs of 2 cases rejected; 1 case not run")


def test_verdict__shard_with_skipped_tests_alone__is_no_fault():
    skipped = samples.outcome(outcome="skipped", cases=CaseCounts(), skip_reason="no board")
    assert verdict(samples.run(results=(skipped,), shard=(1, 3))).startswith(
        "⚠ nothing was compared in shard 1 of 3; 1"
    )
    assert verdict(samples.run(results=(skipped,))).startswith("✗ nothing was compared")
