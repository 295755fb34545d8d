"""A finding that is written down says what its repro came to when it was run alone, on its page too."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from ci_autotest import random_tensor, torch
from ci_autotest.findings.crash import crash_verdict
from ci_autotest.findings.diagnosis import Diagnosis, Route, RunAgain, rendered
from ci_autotest.findings.stages import followed
from ci_autotest.findings.tools import Allowance, Inspection, Tools
from ci_autotest.findings.writer import _needs_package
from ci_autotest.kinds import DTensorCandidate
from ci_autotest.program.note import note_of
from ci_autotest.run.messages import Broken, Tried, TryProgram
from ci_autotest.run.progress_beacon import Spot
from ci_autotest.run.worker_loss import WorkerLostError
from ci_autotest.shrink.shrinker import ShownTrial
from ci_autotest.values.verdict import Verdict
from tests.engine import recorded
from tests.fakes.asked_worker import HELLO, AskedWorker
from tests.verdict_samples import BAD, GOOD, SUSPECT, TEST

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from ci_autotest.values.finding import Finding


class Ended:
    """A nursery in which every script ends with one status."""

    def __init__(self, status: int | None) -> None:
        self._status = status

    def run_script(
        self, _script: Path, _paths: Sequence[str], _timeout_s: float, *, needs_package: bool = False
    ) -> int | None:
        return self._status


def confirmed() -> Diagnosis:
    recording = recorded(lambda: torch.exp(random_tensor(ndim=1, dim0=3, requires_grad=False)))
    return Diagnosis(SUSPECT, BAD, Route.WHOLE, shown=ShownTrial(BAD, recording), is_confirmed=True)


class OfRanks:
    """A nursery in which a script ends with 1 if it starts its ranks, and with one status if it simulates them."""

    def __init__(self, simulated: int) -> None:
        self._simulated = simulated
        self.scripts: list[str] = []

    def run_script(self, script: Path, _paths: Sequence[str], _timeout_s: float, *, needs_package: bool = False) -> int:
        assert not needs_package
        starts = "be_rank" in script.read_text("utf-8")
        self.scripts.append("processes" if starts else "simulated")
        return 1 if starts else self._simulated


def written(diagnosis: Diagnosis, tools: Tools) -> Finding:
    return rendered(followed(diagnosis, Inspection(tools, tools.fresh())), tools)


@pytest.mark.parametrize(
    ("answer", "outcome", "said"),
    [
        (Tried(verdict=Verdict(outcome="misaligned", kind="value")), "misaligned", "the fault is in the script that"),
        (
            WorkerLostError("ended by signal 11 (SIGSEGV)", Spot(0, 0, 0, 0, 0), ""),
            "misaligned",
            "the fault is in the script that",
        ),
        (Tried(verdict=Verdict(outcome="aligned")), "flaky", "in a fresh process its saved program is aligned"),
        (
            Broken(message="the time for findings was used up", traceback=""),
            "misaligned",
            "run alone it ended with status 0",
        ),
    ],
    ids=["misaligned", "lost", "aligned", "not asked"],
)
def test_written__repro_says_that_all_is_well__saved_program_decides(
    answer: Tried | Broken | WorkerLostError, outcome: str, said: str, tmp_path: Path
):
    worker, fork_client = AskedWorker(lambda _: answer), Ended(0)
    tools = Tools(lambda: worker, fork_client, HELLO, tmp_path, (), 0, {})  # type: ignore[arg-type, return-value]
    finding = written(confirmed(), tools)
    folder = tmp_path / "findings" / finding.id
    assert (finding.outcome, finding.repro_verified) == (outcome, False)
    assert finding.confirmed is (outcome != "flaky")
    assert said in finding.message.splitlines()[-1]
    assert said in (folder / "README.md").read_text("utf-8")
    assert worker.is_closed
    (asked,) = worker.asked
    assert isinstance(asked, TryProgram)
    assert (asked.program, asked.test) == ((folder / "program.json").read_bytes(), TEST)


@pytest.mark.parametrize(
    ("status", "repros_s", "said"),
    [
        (1, 300.0, ""),
        (2, 300.0, "repro not verified: run alone it ended with status 2"),
        (None, 300.0, "repro not verified: it did not finish in the time left"),
        (1, 0.0, "repro not verified: it did not finish in the time left"),
    ],
    ids=["shows it", "cannot run", "takes too long", "nothing left"],
)
def test_written__repro_run_alone__message_and_page_say_what_it_came_to(
    status: int | None, repros_s: float, said: str, tmp_path: Path
):
    fork_client: Any = Ended(status)
    tools = Tools(None, fork_client, HELLO, tmp_path, (), 0, {}, allowance=Allowance(repros_s=repros_s))  # type: ignore[arg-type]
    finding = written(confirmed(), tools)
    page = (tmp_path / "findings" / finding.id / "README.md").read_text("utf-8")
    assert finding.repro_verified is not bool(said)
    assert finding.message.splitlines()[-1].strip() == said if said else "not verified" not in finding.message
    assert (said in page) if said else ("not verified" not in page)


OF_PROCESSES = DTensorCandidate(name=SUSPECT.candidate, ranks=2, processes=True)


@pytest.mark.parametrize(
    ("status", "seen", "scripts"),
    [
        (0, GOOD, ["simulated", "processes"]),
        (1, BAD, ["simulated"]),
        (1, Verdict(outcome="misaligned", operator=BAD.operator, kind="error"), ["simulated", "processes"]),
    ],
    ids=["shows nothing", "shows it", "raises an error of its own"],
)
def test_written__finding_of_processes__script_starts_the_ranks_unless_the_simulation_shows_it(
    status: int, seen: Verdict, scripts: list[str], tmp_path: Path
):
    plain, fork_client = confirmed(), OfRanks(status)
    assert plain.shown is not None
    of_ranks = replace(plain.shown.recording, note=note_of({"backend": "dtensor"}))
    diagnosis = replace(plain, shown=replace(plain.shown, recording=of_ranks))
    hello = msgspec.structs.replace(HELLO, candidates=[OF_PROCESSES])
    tools = Tools(lambda: AskedWorker(lambda _: Tried(verdict=seen)), fork_client, hello, tmp_path, (), 0, {})  # type: ignore[arg-type, return-value]
    finding = written(diagnosis, tools)

    assert fork_client.scripts == scripts
    assert (finding.outcome, finding.repro_verified) == ("misaligned", True)


@pytest.mark.parametrize(
    ("verdict", "reference", "said"),
    [
        (Verdict(outcome="crashed", target="its test"), "unknown", "the reference was not run alone"),
        (Verdict(outcome="not_run", operator="torch.exp", target="torch.exp"), "returns",
         "the reference runs the same program to its end"),
    ],
    ids=["nobody asked", "recorded alone"],
)  # fmt: skip
def test_crash__says_of_the_reference_what_was_asked_of_it(verdict: Verdict, reference: str, said: str, tmp_path: Path):
    tools = Tools(None, None, None, tmp_path, (), 0, {})  # type: ignore[arg-type]
    lost = WorkerLostError("ended by signal 11 (SIGSEGV)", Spot(0, 0, -1, 0, 1), "")
    finding = rendered(Diagnosis(SUSPECT, crash_verdict(verdict, lost), Route.SETTLED), tools)
    assert (finding.reference_seen, finding.oracle) == (reference, said)
    assert f"blame: candidate: {said}" in finding.message


@pytest.mark.parametrize(
    ("run_again", "said"),
    [
        (RunAgain.SCRIPT, ["  replay: python autotest-report/findings/{}/repro.py"]),
        (RunAgain.COMMAND, ["  replay: ci-autotest replay autotest-report/findings/{}"]),
        (RunAgain.NOTHING, []),
    ],
)
def test_rendered__program__is_run_again_by_what_is_there(run_again: RunAgain, said: list[str], tmp_path: Path):
    tools = Tools(None, None, None, tmp_path, (), 0, {})  # type: ignore[arg-type]
    finding = rendered(replace(confirmed(), run_again=run_again), tools)
    lines = [line for line in finding.message.splitlines() if line.startswith("  replay: ")]
    assert lines == [line.format(finding.id) for line in said]
    assert (finding.repro is not None, bool(finding.replay)) == (run_again is RunAgain.SCRIPT, bool(said))


@pytest.mark.parametrize(
    ("text", "is_needed"), [("import torch\n", False), ("from ci_autotest import operator\nimport torch\n", True)]
)
def test_needs_package__module_of_kernels_that_declares_operators__does(tmp_path: Path, text: str, is_needed: bool):
    (tmp_path / "kernels").mkdir()
    (tmp_path / "kernels" / "fast.py").write_text(text, "utf-8")
    recording = recorded(lambda: torch.exp(random_tensor(ndim=1, dim0=3, requires_grad=False)))
    noted = replace(
        recording, note=note_of({"backend": "substitute", "spellings": {"kernels.fast.exp": ["torch.exp"]}})
    )
    tools = Tools(AskedWorker, Ended(1), HELLO, tmp_path, (tmp_path,), 0, {})
    assert _needs_package(noted, tools) is is_needed
