"""The exit status, row by row of the README's table from the top; and the worst outcome of a test."""

from __future__ import annotations

import itertools

import pytest

from ci_autotest.commands.exit_status import settled
from ci_autotest.errors import UnsupportedReason
from ci_autotest.host.frameworks import protocol
from ci_autotest.values.result import (
    CandidateInfo,
    CaseCounts,
    Environment,
    RunResult,
    Summary,
    UnsupportedCases,
    worst,
)
from ci_autotest.values.speed import Ratio, SpeedResult
from tests import report_samples as samples

ALIGNED = samples.outcome()
IDLE = samples.outcome("autotests/b.py::idle", outcome="not_run", cases=CaseCounts(not_run=20))
#: What a user's exception may say: our own words for each reason, torch's, or none of them.
HOSTILE = (
    "device 'npu' has no kernel of aten::tanh.out", "no call was replaced: torch.exp did not occur", "no exp here",
    protocol.STEP_BY_STEP, protocol.NOT_COMPILED, "", "\n", "Could not run 'aten::exp' with arguments from the 'CPU' backend",
)  # fmt: skip
EXCUSED = {
    UnsupportedReason.NO_COUNTERPART, UnsupportedReason.NO_KERNEL, UnsupportedReason.NOT_REPLACED,
    UnsupportedReason.OUT_OF_SCOPE,
    UnsupportedReason.RANKS, UnsupportedReason.OTHER_API,
    UnsupportedReason.CONSTANT, UnsupportedReason.NO_SHARDING_RULE, UnsupportedReason.PLACEMENT_REFUSED,
    UnsupportedReason.NOT_SIMULATED, UnsupportedReason.NO_PARAMETERS, UnsupportedReason.BATCH,
    UnsupportedReason.NOT_DELEGATED,
}  # fmt: skip


def lacking(*reasons, text="no exp here", test="autotests/b.py::other"):
    return samples.outcome(
        test, outcome="unsupported", cases=CaseCounts(unsupported=20 * len(reasons)), reason=text,
        unsupported=tuple(UnsupportedCases(reason=reason, cases=20, details=(text,)) for reason in reasons),
    )  # fmt: skip


UNSUPPORTED = lacking(UnsupportedReason.NOT_IMPLEMENTED)
NO_COUNTERPART = lacking(UnsupportedReason.NO_COUNTERPART)
NOT_REPLACED = lacking(UnsupportedReason.NOT_REPLACED)
MOSTLY_LACKING = (ALIGNED, *(lacking(UnsupportedReason.NO_COUNTERPART, test=f"autotests/b.py::t{i}") for i in range(2)))
MOSTLY_LEFT = (ALIGNED, *(lacking(UnsupportedReason.NOT_DELEGATED, test=f"autotests/b.py::t{i}") for i in range(2)))
BUILTIN = tuple(lacking(UnsupportedReason.NO_COUNTERPART, test=f"builtin:suite/pooling::t{i}") for i in range(9))
RAISES_ON_SLICE = lacking(UnsupportedReason.SLICE)
NO_BATCH = lacking(UnsupportedReason.BATCH)
FINDING = samples.finding()
FLAKY = samples.finding(outcome="flaky", confirmed=False)
MISALIGNED = samples.failed()


def code(results=(ALIGNED,), findings=(), *, broken=(), new=None, **told) -> int:
    replaces = told.get("replaces", ())
    result = RunResult(
        seed=0, environment=Environment(ci_autotest="0", python="3", platform="x"),
        candidates=(CandidateInfo(name="kernels", backend=told.get("backend", "substitute"), replaces=replaces),),
        results=tuple(results), findings=tuple(findings), summary=Summary(), broken=tuple(broken), new=new,
        interrupted=told.get("interrupted", False), is_partial=told.get("is_partial", False),
    )  # fmt: skip
    return settled(result, told.get("fail_on", "misaligned")).exit_code


ROWS = [
    # a framework has not all of torch; a graph that is none is no such thing
    ("framework lacks it", {"results": (ALIGNED, NO_COUNTERPART), "backend": "module"}, 0),
    ("framework lacks most of the tests in files", {"results": MOSTLY_LACKING, "backend": "module"}, 3),
    ("compiler leaves most of the tests in files to PyTorch", {"results": MOSTLY_LEFT, "backend": "torch.compile"}, 3),
    ("the same, of a part of the tests", {"results": MOSTLY_LACKING, "is_partial": True}, 0),
    ("framework lacks most of a built-in source", {"results": (ALIGNED, *BUILTIN), "backend": "module"}, 0),
    ("framework lacks all", {"results": (NO_COUNTERPART,), "backend": "module"}, 3),
    # 130
    ("interrupted", {"interrupted": True}, 130),
    ("interrupted, with a finding", {"interrupted": True, "results": [MISALIGNED], "findings": [FINDING]}, 130),
    ("interrupted before anything ran", {"interrupted": True, "results": []}, 130),
    # 1
    ("misaligned", {"results": [MISALIGNED], "findings": [FINDING]}, 1),
    ("misaligned, and nothing compared elsewhere", {"results": [MISALIGNED, IDLE], "findings": [FINDING]}, 1),
    ("gradient", {"results": [MISALIGNED], "findings": [samples.finding(kind="gradient")]}, 1),
    ("crashed", {"results": [MISALIGNED], "findings": [samples.finding(kind="crash", outcome="crashed", blame="unknown")]}, 1),
    ("timed out", {"results": [MISALIGNED], "findings": [samples.finding(kind="timeout", outcome="timed_out", blame="unknown")]}, 1),
    ("blame unknown", {"results": [MISALIGNED], "findings": [samples.finding(blame="unknown")]}, 1),
    ("blame both", {"results": [MISALIGNED], "findings": [samples.finding(blame="both")]}, 1),
    ("a file that does not import", {"broken": [samples.broken()]}, 1),
    ("a file that does not import, nothing else", {"broken": [samples.broken()], "results": []}, 1),
    ("flaky, asked for", {"findings": [FLAKY], "fail_on": "flaky"}, 1),
    ("misaligned, flaky asked for", {"results": [MISALIGNED], "findings": [FINDING], "fail_on": "flaky"}, 1),
    ("new, no baseline", {"results": [MISALIGNED], "findings": [FINDING], "fail_on": "new"}, 1),
    ("new", {"results": [MISALIGNED], "findings": [FINDING], "fail_on": "new", "new": (FINDING.id,)}, 1),
    ("one known, one not", {"results": [MISALIGNED], "findings": [samples.finding(known="x"), samples.numbered(1)]}, 1),
    # 3
    ("no test", {"results": []}, 3),
    ("a pair without a compared case", {"results": [ALIGNED, IDLE]}, 3),
    ("all rejected", {"results": [samples.rejected()]}, 3),
    ("unsupported", {"results": [ALIGNED, UNSUPPORTED]}, 3),
    ("nothing replaced anywhere", {"results": [NOT_REPLACED]}, 3),
    ("a replacement never called", {"replaces": ("torch.exp",)}, 3),
    ("unsupported, never failing", {"results": [UNSUPPORTED], "fail_on": "never"}, 3),
    ("reference to blame, nothing else compared", {"results": [MISALIGNED, IDLE], "findings": [samples.finding(blame="reference")]}, 3),
    ("the body raises on a part of its batch", {"results": (ALIGNED, RAISES_ON_SLICE), "backend": "ddp"}, 3),
    # 0
    ("ranks cannot share a batch", {"results": (ALIGNED, NO_BATCH), "backend": "ddp"}, 0),
    ("aligned", {}, 0),
    ("never", {"results": [MISALIGNED], "findings": [FINDING], "fail_on": "never"}, 0),
    ("leniency", {"findings": [samples.finding(kind="leniency")]}, 0),
    ("leniency, asked for", {"findings": [samples.finding(kind="leniency")], "fail_on": "leniency"}, 1),
    ("misaligned, leniency asked for", {"results": [MISALIGNED], "findings": [FINDING], "fail_on": "leniency"}, 1),
    ("a known leniency, leniency asked for", {"findings": [samples.finding(kind="leniency", known="x")], "fail_on": "leniency"}, 0),
    ("leniency where the author wrote raises", {"findings": [samples.finding(kind="leniency", demanded=True)]}, 1),
    ("blame of the reference", {"results": [MISALIGNED], "findings": [samples.finding(blame="reference")]}, 0),
    ("ill-conditioned", {"results": [MISALIGNED], "findings": [samples.finding(blame="ill_conditioned")]}, 0),
    ("flaky", {"results": [samples.outcome(outcome="flaky", cases=CaseCounts(aligned=19, flaky=1))], "findings": [FLAKY]}, 0),
    ("known", {"results": [MISALIGNED], "findings": [samples.finding(known="int32 indices")]}, 0),
    ("a known flaky one, flaky asked for", {"findings": [samples.finding(outcome="flaky", known="x")], "fail_on": "flaky"}, 0),
    ("old", {"results": [MISALIGNED], "findings": [FINDING], "fail_on": "new", "new": ()}, 0),
    ("no test of this substitute, another is", {"results": [ALIGNED, NOT_REPLACED]}, 0),
]  # fmt: skip


@pytest.mark.parametrize(("how", "status"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS])
def test_exit_code__row__holds(how, status):
    assert code(**how) == status


@pytest.mark.parametrize("backend", ["substitute", "torch", "module", "onnxruntime", "fx"])
@pytest.mark.parametrize("reason", UnsupportedReason, ids=lambda reason: reason.value)
def test_exit_code__unsupported__goes_by_the_reason_whatever_is_said(reason, backend):
    beside = {text: code((ALIGNED, lacking(reason, text=text)), backend=backend) for text in HOSTILE}
    alone = {text: code((lacking(reason, text=text),), backend=backend) for text in HOSTILE}
    assert beside == dict.fromkeys(HOSTILE, 0 if reason in EXCUSED else 3)
    assert alone == dict.fromkeys(HOSTILE, 3)


def test_exit_code__some_cases_unsupported_for_what_is_no_excuse__is_not_green():
    both = lacking(UnsupportedReason.NO_KERNEL, UnsupportedReason.NOT_IMPLEMENTED)
    assert code((ALIGNED, both)) == 3


def test_exit_code__interrupted__is_above_everything():
    for how in itertools.chain(row[1] for row in ROWS):
        assert code(**{**how, "interrupted": True}) == 130


def test_exit_code__misaligned_that_could_not_be_confirmed__is_not_green():
    # The budget ended, or the worker was lost, before it was run again.
    assert code([MISALIGNED], [samples.finding(confirmed=False)]) != 0


def test_exit_code__misaligned_without_a_finding__is_not_green():
    assert code([MISALIGNED], []) != 0


@pytest.mark.parametrize(
    ("counts", "outcome"),
    [
        (CaseCounts(), "not_run"),
        (CaseCounts(aligned=1), "aligned"),
        (CaseCounts(aligned=1, not_run=5), "aligned"),
        (CaseCounts(aligned=1, unsupported=5), "aligned"),
        (CaseCounts(unsupported=5), "unsupported"),
        (CaseCounts(unsupported=5, not_run=5), "unsupported"),
        (CaseCounts(not_run=5), "not_run"),
        (CaseCounts(aligned=9, flaky=1), "flaky"),
        (CaseCounts(aligned=9, flaky=1, misaligned=1), "misaligned"),
        (CaseCounts(aligned=9, misaligned=1, timed_out=1), "timed_out"),
        (CaseCounts(aligned=9, misaligned=1, timed_out=1, crashed=1), "crashed"),
    ],
    ids=str,
)
def test_worst__counts__is_the_worst_that_happened(counts, outcome):
    assert worst(counts) == outcome


def timed(verdict: str, low: float = 1.4, **changes) -> SpeedResult:
    ratio = Ratio(low=low, median=low, high=2.0, pairs=41)
    return SpeedResult(
        test="a", candidate="kernels", case=0, phase="forward", verdict=verdict, ratio=ratio, factor=1.1, **changes
    )


@pytest.mark.parametrize(
    ("speed", "fail_on", "status"),
    [
        pytest.param(timed("slower"), "misaligned", 0, id="slower, not asked for"),
        pytest.param(timed("slower"), "slower", 1, id="slower"),
        pytest.param(timed("slower", low=1.05), "slower", 0, id="slower, not surely by the factor"),
        pytest.param(timed("cannot_tell"), "slower", 0, id="cannot tell"),
        pytest.param(timed("slower", change="same"), "slower", 0, id="as the baseline"),
        pytest.param(timed("misaligned"), "misaligned", 1, id="misaligned at larger sizes"),
        pytest.param(timed("crashed"), "new", 1, id="crashed at larger sizes"),
        pytest.param(timed("misaligned"), "never", 0, id="misaligned at larger sizes, never"),
        pytest.param(timed("misaligned", known="rounds up"), "misaligned", 0, id="accepted at larger sizes"),
        pytest.param(timed("misaligned", known="rounds up"), "slower", 0, id="accepted at larger sizes, slower"),
        pytest.param(timed("misaligned", new=False), "new", 0, id="misaligned at larger sizes, old"),
        pytest.param(
            timed("misaligned", new=False), "misaligned", 1, id="misaligned at larger sizes, old, not asked for"
        ),
        pytest.param(timed("misaligned", new=True), "new", 1, id="misaligned at larger sizes, new"),
    ],
)
def test_settled__a_timed_call__decides(speed: SpeedResult, fail_on: str, status: int):
    result = RunResult(
        seed=0, environment=Environment(ci_autotest="0", python="3", platform="x"), candidates=(), results=(ALIGNED,),
        findings=(), summary=Summary(), speed=(speed,),
    )  # fmt: skip
    assert settled(result, fail_on).exit_code == status
