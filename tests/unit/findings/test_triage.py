"""A suspect is a finding or is left: a signal at any moment loses none and tells none twice."""

from __future__ import annotations

import io
import os
import signal
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ci_autotest.commands.progress import Progress
from ci_autotest.commands.run_result import Circumstances, make_result
from ci_autotest.commands.run_statistics import Ledger
from ci_autotest.commands.signals import Signals
from ci_autotest.findings.tools import Allowance, Tools
from ci_autotest.findings.triage import CONFIRMED_AT_MOST, Triage, look_at
from ci_autotest.run.events import LostCase, Task
from ci_autotest.run.progress_beacon import Spot
from ci_autotest.run.worker_loss import WorkerLostError
from ci_autotest.values.result import CandidateInfo, Environment
from ci_autotest.values.tally import PairTally
from tests.verdict_samples import FIRST, OFF, done

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
    tools: Any = Tools(None, None, None, Path(), (), 0, {}, allowance=Allowance(0.0))  # type: ignore[arg-type]
    triage, signals = Triage(left=ledger.suspects()), Signals()
    with signals.installed(), pytest.raises(KeyboardInterrupt):
        look_at(triage, tools, Progress(Stopping(operator), is_live=False).say, signals.held)
    triage.tell_as_seen(tools)
    assert [(item.operator, item.cases) for item in triage.findings] == [(name, 1) for name in OPERATORS]


def test_look_at__findings_that_are_confirmed__are_as_many_as_the_docs_say():
    docs = Path(__file__).parents[3] / "docs" / "how-to" / "large-runs.md"
    assert f"The first {CONFIRMED_AT_MOST} are confirmed and shrunk" in docs.read_text(encoding="utf-8")


@pytest.mark.parametrize("others", [0, 3])
@pytest.mark.parametrize(
    ("timed_out", "outcome", "status"), [(True, "flaky", (3, 0)), (False, "crashed", (1, 1))], ids=["timeout", "crash"]
)
def test_look_at__lost_once_and_the_run_ended__a_timeout_is_nobodys_finding(timed_out, outcome, status, others):
    ledger = Ledger([(FIRST, range(1 + others))], ("here",))
    for case in range(1, 1 + others):
        ledger.part(FIRST.id, msgspec.structs.replace(done([]), done=[case], pairs={"here": PairTally(aligned=1)}))
    error = WorkerLostError(
        "made no progress for 60 s and was ended", Spot(0, 0, 0, 0, 0), "", limit="time" if timed_out else ""
    )
    ledger.lost(LostCase(Task(FIRST, (0,), ("here",)), 0, "here", error, "unknown"))
    tools: Any = Tools(None, None, None, Path(), (), 0, {}, allowance=Allowance(0.0))  # type: ignore[arg-type]
    triage = Triage(left=ledger.suspects())
    look_at(triage, tools, lambda _: None, Signals().held)
    (finding,) = triage.findings
    result = make_result(ledger, tuple(triage.findings), CIRCUMSTANCES)
    (item,) = result.results
    assert (finding.outcome, finding.confirmed) == (outcome, False)
    assert "seen once: the run ended before it could run again" in finding.detail
    assert (item.cases.aligned, item.cases.not_run) == (others, int(timed_out))
    assert result.exit_code == status[others > 0]
