"""What a test does not show in a process of its own joins no finding: it is flaky, and said so."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from ci_autotest.commands.run_result import Circumstances, make_result
from ci_autotest.commands.run_statistics import Ledger
from ci_autotest.findings.own_tests import Unrepeated, repeated_alone, unrepeated_by, unrepeated_notes
from ci_autotest.findings.tools import Tools
from ci_autotest.findings.triage import Triage
from ci_autotest.run.messages import Confirm, RunCases, Tried
from ci_autotest.values.result import CandidateInfo, Environment
from tests.fakes.asked_worker import HELLO, AskedWorker
from tests.verdict_samples import FIRST, OFF, SECOND, done

if TYPE_CHECKING:
    from pathlib import Path

BEFORE = tuple(RunCases(test=test, cases=[0, 1], candidates=["here"]) for test in (FIRST, SECOND))
SPOILED = Unrepeated(SECOND.id, "here", "torch.exp", "value")


def answered(message: Any) -> Tried:
    """Only the first test is misaligned in a process of its own."""
    assert isinstance(message, Confirm)
    is_first = message.test == FIRST
    return Tried(verdict=OFF if is_first else msgspec.structs.replace(OFF, outcome="aligned", kind=None))


def ledger() -> Ledger:
    held = Ledger([(FIRST, range(2)), (SECOND, range(2))], ("here",))
    for test in (FIRST, SECOND):
        held.part(test.id, done([0, 1]), BEFORE)
    return held


def tools(folder: Path) -> Tools:
    return Tools(lambda: AskedWorker(answered), None, HELLO, folder, (), 0, {})  # type: ignore[arg-type, return-value]


def test_repeated_alone__one_test_is_aligned_in_its_own_process__is_no_part_of_the_suspect(tmp_path: Path):
    (suspect,) = ledger().suspects()
    kept = repeated_alone(suspect, tools(tmp_path))
    assert (suspect.tests, kept.tests, kept.cases) == ((FIRST.id, SECOND.id), (FIRST.id,), 2)
    assert unrepeated_by(suspect, kept) == [SPOILED]


def test_make_result__failures_that_a_test_does_not_show_alone__are_flaky(tmp_path: Path):
    held = ledger()
    (suspect,) = held.suspects()
    triage = Triage(left=[repeated_alone(suspect, tools(tmp_path))], unrepeated={SPOILED})
    triage.tell_as_seen(tools(tmp_path))
    told = Circumstances(
        seed=0, environment=Environment(ci_autotest="0", python="3", platform="x"),
        candidates=(CandidateInfo(name="here", backend="torch"),), shard=(1, 1), shapes=0, interrupted=False, notes=(),
        broken=(), baseline=None, fail_on="misaligned", is_partial=False, duration_s=0.0,
        unrepeated=frozenset(triage.unrepeated),
    )  # fmt: skip
    result = make_result(held, tuple(triage.findings), told)
    assert [(item.outcome, item.cases.misaligned, item.cases.flaky) for item in result.results] == [
        ("misaligned", 2, 0), ("flaky", 0, 2),
    ]  # fmt: skip


def test_unrepeated_notes__failure__names_test_candidate_operator_and_kind():
    (note,) = unrepeated_notes({SPOILED})
    assert all(word in note for word in SPOILED)
