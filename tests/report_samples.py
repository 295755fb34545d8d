"""Samples of a run's result, small and large, harmless and hostile."""

from __future__ import annotations

from typing import Any

from ci_autotest.values.finding import Finding, Location
from ci_autotest.values.result import (
    AttemptCounts,
    BrokenTest,
    CandidateInfo,
    CaseCounts,
    Environment,
    RunResult,
    TestResult,
)
from ci_autotest.values.verdict import Difference
from tests.places import place_of

FILE = "autotests/autotest_norms.py"
TEST = f"{FILE}::layer_norm"
OPERATOR = "torch.nn.functional.layer_norm"

PROGRAM = """\
import torch

x = torch.tensor([[1.0, -1.0]])
y = torch.nn.functional.layer_norm(x, (2,), eps=1e-05)"""

MESSAGE = f"""\
misaligned: {OPERATOR}, step 1 of {TEST}, case 7, seed 1729
  mismatched elements: 1 / 2 (50 %), greatest absolute difference 0.0041 at (0, 1) (up to 1e-05 allowed), 34,359 ULP"""

#: What somebody may write into a name, a message or an exception to get out of the place that it is shown in.
HOSTILE = {
    "html": "</details><img src=x onerror=1>",
    "backticks": "`" * 50,
    "comment": "<!-- marker -->",
    "mention": "@org/team",
    "issue": "fixes #1 and GH-2",
    "bidi": "a\u202eb\u2066c",
    "ansi": "\x1b[31mred\x1b[0m\x1b]8;;http://evil.example\x07link\x1b]8;;\x07",
    "command": "::error::x\n::stop-commands::y",
    "emoji": "\N{FIRE}" * 70_000,
    "link": "[a](http://evil.example) ![b](https://evil.example/b.png) www.evil.example a@evil.example",
    "table": "a | b \\| c\n|---|\n| d |",
    "heading": "# x\n## y",
    "list": "1. x\n- y",
    "surrogate": "x\udc80y\x00z",
    "encoded": "%0A::add-mask::x%0D%0A::set-output name=a::b",
    "expression": "${{ secrets.X }} and ${{ github.token }}",
    "math": "$\\color{red}x$ *a* _b_ ~~c~~",
}


def difference(**changes: Any) -> Difference:
    values = {
        "mismatched": 1,
        "total": 2,
        "greatest_absolute": 0.0041,
        "greatest_relative": 0.0041,
        "greatest_ulp": 34_359,
        "greatest_index": (0, 1),
        "first_index": (0, 1),
        "first_pair": ("-0x1.fde6ae0000000p-1", "-0x1.fffeb00000000p-1"),
        "first_pair_decimal": ("-0.9959006", "-0.9999900"),
        "rtol": 1.3e-06,
        "atol": 1e-05,
    }
    return Difference(**{**values, **changes})


def finding(**changes: Any) -> Finding:
    values = {
        "id": "layer_norm-3f2a",
        "candidate": "kernels",
        "operator": OPERATOR,
        "target": "torch.nn.LayerNorm",
        "kind": "value",
        "blame": "candidate",
        "outcome": "misaligned",
        "test": TEST,
        "case": 7,
        "seed": 1729,
        "steps": 2,
        "dims_max": 2,
        "greatest_absolute_difference": 0.0041,
        "greatest_relative_difference": 0.0041,
        "greatest_ulp_difference": 34_359,
        "first_index": (0, 1),
        "first_pair": ("-0x1.fde6ae0000000p-1", "-0x1.fffeb00000000p-1"),
        "message": MESSAGE,
        "confirmed": True,
        "shrunk": True,
        "repro": "findings/layer_norm-3f2a/repro.py",
        "repro_verified": True,
        "where": "value of layer_norm",
        "headline": f"{OPERATOR} on kernels: the value is off by up to 0.0041",
        "candidate_seen": "float32[1, 2] on cuda:0",
        "reference_seen": "float32[1, 2] on cpu",
        "difference": difference(),
        "oracle": "in float64 the candidate is 1,300 times farther from the truth than the reference",
        "oracle_value": "-0x1.fffeb07466ee3p-1",
        "program": PROGRAM,
        "cases": 3,
        "of_cases": 20,
        "tests": (TEST,),
        "location": Location(file=FILE, line=12),
        "replay": "ci-autotest replay autotest-report/findings/layer_norm-3f2a",
    }
    chosen = {**values, **changes}
    return Finding(**{"at": place_of(chosen["where"]), **chosen})


def numbered(index: int, **changes: Any) -> Finding:
    """Return a finding that differs from all others in identity."""
    name = f"torch.op{index:05}"
    values = {
        "id": f"op{index:05}-0000",
        "operator": name,
        "target": name,
        "case": index,
        "headline": f"{name} on kernels: the value is off",
        "repro": f"findings/op{index:05}-0000/repro.py",
    }
    return finding(**{**values, **changes})


def outcome(test: str = TEST, candidate: str = "kernels", **changes: Any) -> TestResult:
    values = {
        "test": test,
        "candidate": candidate,
        "outcome": "aligned",
        "cases": CaseCounts(aligned=20),
        "attempts": AttemptCounts(accepted=20, rejected=2),
        "profiles": {"ordinary": 10, "zero_dim": 10},
        "duration_s": 1.5,
        "location": Location(file=FILE, line=12),
    }
    return TestResult(**{**values, **changes})


def failed(**changes: Any) -> TestResult:
    values = {
        "outcome": "misaligned",
        "cases": CaseCounts(aligned=17, misaligned=3),
        "findings": ("layer_norm-3f2a",),
    }
    return outcome(**{**values, **changes})


def rejected(test: str = TEST, candidate: str = "compiled") -> TestResult:
    """Return a test whose every attempt the reference rejected."""
    return outcome(
        test,
        candidate,
        outcome="not_run",
        cases=CaseCounts(),
        attempts=AttemptCounts(rejected=400),
        profiles={},
        weak=True,
    )


def broken(**changes: Any) -> BrokenTest:
    values = {
        "test": "autotests/autotest_pool.py",
        "message": "autotests/autotest_pool.py cannot be imported: No module named 'mypool'.",
        "traceback": "Traceback (most recent call last):\n  ...\nModuleNotFoundError: No module named 'mypool'",
        "location": Location(file="autotests/autotest_pool.py", line=3),
    }
    return BrokenTest(**{**values, **changes})


KERNELS = CandidateInfo(name="kernels", backend="substitute", version="1.2.0", device="cuda:0")
COMPILED = CandidateInfo(name="compiled", backend="torch.compile", version="2.13.0")


def run(**changes: Any) -> RunResult:
    """Return a run of two aligned tests, with the summary that its results make."""
    from ci_autotest.report.merge import summarize  # noqa: PLC0415 - a sample must not stop the import of all tests

    values: dict[str, Any] = {
        "seed": 1729,
        "environment": Environment(
            ci_autotest="0.1.0", python="3.11.9", platform="Linux x86_64", torch="2.13.0", commit="0123456789abcdef" * 2
        ),
        "candidates": (KERNELS, COMPILED),
        "results": (outcome(), outcome(candidate="compiled")),
        "findings": (),
        "duration_s": 12.3,
    }
    values |= changes
    values.setdefault("summary", summarize(values["results"], values["findings"], values.get("broken", ())))
    return RunResult(**values)


def misaligned(**changes: Any) -> RunResult:
    """Return a run with one misaligned layer_norm."""
    values = {
        "results": (failed(), outcome(candidate="compiled")),
        "findings": (finding(),),
        "exit_code": 1,
    }
    return run(**{**values, **changes})


def everything() -> RunResult:
    """Return a run in which everything happened that a page can tell."""
    softmax, cumsum, argsort = "autotests/autotest_x.py::softmax", "autotests/autotest_x.py::cumsum", "argsort-11aa"
    crash = finding(
        id="cumsum-77aa",
        operator="torch.cumsum",
        target="torch.cumsum",
        kind="crash",
        outcome="crashed",
        blame="unknown",
        test=cumsum,
        case=8,
        tests=(cumsum, TEST),
        headline="torch.cumsum on compiled: the worker ended by signal 11 (SIGSEGV)",
        candidate="compiled",
        where="step 2, torch.cumsum",
        difference=None,
        greatest_absolute_difference=None,
        greatest_relative_difference=None,
        greatest_ulp_difference=None,
        first_index=None,
        first_pair=None,
        oracle="",
        oracle_value=None,
        candidate_seen="",
        reference_seen="",
        message="crashed: the worker ended by signal 11 (SIGSEGV) in step 2, torch.cumsum",
        shrunk=False,
        repro="findings/cumsum-77aa/repro.py",
        repro_verified=False,
        replay="ci-autotest replay autotest-report/findings/cumsum-77aa",
    )
    accepted = finding(
        id=argsort, operator="torch.argsort", target="torch.argsort", kind="dtype", known="int32 indices", case=1,
    )  # fmt: skip
    crashed = failed(
        test=cumsum,
        candidate="compiled",
        outcome="crashed",
        cases=CaseCounts(aligned=4, crashed=1),
        findings=("cumsum-77aa",),
    )
    unused = outcome(
        test=softmax,
        outcome="unsupported",
        cases=CaseCounts(unsupported=20),
        reason="the replacement of torch.softmax was never called",
    )
    return misaligned(
        candidates=(
            KERNELS,
            COMPILED,
            CandidateInfo(name="oneflow", backend="module", available=False, reason="libx.so is missing"),
        ),
        results=(failed(), outcome(candidate="compiled"), crashed, unused, rejected(softmax)),
        findings=(finding(), crash, accepted),
        broken=(broken(),),
        notes=("The rule for torch.conv2d matched nothing.",),
        new=("layer_norm-3f2a",),
        fixed=("kernels torch.softmax value",),
    )
