"""A suspect is a finding or is left: a signal at any moment loses none and tells none twice."""

from __future__ import annotations

import io
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from ci_autotest.result import CandidateInfo, Environment
from ci_autotest.run.inquiry import Lost, Task
from ci_autotest.run.lost import WorkerLostError
from ci_autotest.run.place import Spot
from ci_autotest.session.findings import CONFIRMED_AT_MOST
from ci_autotest.session.ledger import Ledger
from ci_autotest.session.looking import look_at, tell_as_seen
from ci_autotest.session.made import Allowance, Workshop
from ci_autotest.session.results import Circumstances, make_result
from ci_autotest.session.signals import Signals
from tests.verdict_samples import FIRST, OFF, done

if TYPE_CHECKING:
    from ci_autotest.result import Finding

CIRCUMSTANCES = Circumstances(
    seed=0, environment=Environment(ci_autotest="0", python="3", platform="x"),
    candidates=(CandidateInfo(name="here", backend="torch"),), shard=(1, 1), shapes=0, interrupted=False, notes=(),
    broken=(), baseline=None, fail_on="misaligned", is_partial=False, duration_s=0.0,
)  # fmt: skip
OPERATORS = ("torch.cos", "torch.exp", "torch.sin")


class Stopping(io.StringIO):
    """A terminal at which Ctrl-C is pressed when a line of the operator is written."""

    def __init__(self, operator: str) -> None:
        super().__init__()
        self._operator = operator

    def write(self, text: str) -> int:
        if self._operator in text:
            os.kill(os.getpid(), signal.SIGINT)
        return super().write(text)


@pytest.mark.parametrize("operator", OPERATORS)
def test_look_at__stopped_while_a_finding_is_told__each_suspect_is_told_once(operator: str):
    ledger = Ledger([(FIRST, range(9))], ("here",))
    for case, name in enumerate(OPERATORS):
        ledger.part(FIRST.id, done([case], msgspec.structs.replace(OFF, operator=name)))
    # Nothing is left to spend: each is told as it was seen, and no worker is asked.
    workshop: Any = Workshop(None, None, None, Path(), (), 0, {}, allowance=Allowance(0.0))  # type: ignore[arg-type]
    found: list[Finding] = []
    left, signals = ledger.suspects(), Signals()
    with signals.installed(), pytest.raises(KeyboardInterrupt):
        look_at(left, workshop, Stopping(operator), found, signals, set())
    tell_as_seen(left, workshop, found)
    assert [(item.operator, item.cases) for item in found] == [(name, 1) for name in OPERATORS]


def test_look_at__findings_that_are_confirmed__are_as_many_as_the_docs_say():
    docs = Path(__file__).parents[3] / "docs" / "large_runs.md"
    assert f"The first {CONFIRMED_AT_MOST} are confirmed and shrunk" in docs.read_text(encoding="utf-8")


@pytest.mark.parametrize("others", [0, 3])
@pytest.mark.parametrize(
    ("timed_out", "outcome", "status"), [(True, "flaky", (3, 0)), (False, "crashed", (1, 1))], ids=["timeout", "crash"]
)
def test_look_at__lost_once_and_the_run_ended__a_timeout_is_nobodys_finding(timed_out, outcome, status, others):
    ledger = Ledger([(FIRST, range(1 + others))], ("here",))
    for case in range(1, 1 + others):
        ledger.part(FIRST.id, msgspec.structs.replace(done([]), done=[case], aligned={"here": 1}))
    error = WorkerLostError("did not move for 60 s and was ended", Spot(0, 0, 0, 0, 0), "", timed_out=timed_out)
    ledger.lost(Lost(Task(FIRST, (0,), ("here",)), 0, "here", error, "unknown"))
    workshop: Any = Workshop(None, None, None, Path(), (), 0, {}, allowance=Allowance(0.0))  # type: ignore[arg-type]
    found: list[Finding] = []
    look_at(ledger.suspects(), workshop, io.StringIO(), found, Signals(), set())
    (finding,) = found
    result = make_result(ledger, tuple(found), CIRCUMSTANCES)
    (item,) = result.results
    assert (finding.outcome, finding.confirmed) == (outcome, False)
    assert "seen once: the run was ended before it was run again" in finding.detail
    assert (item.cases.aligned, item.cases.not_run) == (others, int(timed_out))
    assert result.exit_code == status[others > 0]
