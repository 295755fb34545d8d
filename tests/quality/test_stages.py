"""What is done with a suspect goes by the table: each kind comes to its finding, and what is told lies in its folder."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from ci_autotest import random_tensor, torch
from ci_autotest.findings.diagnosis import Route, rendered
from ci_autotest.findings.stages import STAGES, diagnosed
from ci_autotest.findings.tools import Tools
from ci_autotest.findings.unconfirmed import as_seen
from ci_autotest.findings.writer import verify, write
from ci_autotest.program.serialize import decode, encode_program, encode_tensors
from ci_autotest.run.messages import Broken, Confirm, Record, Tried, TryProgram
from ci_autotest.run.progress_beacon import Spot
from ci_autotest.run.worker_loss import WorkerLostError
from tests.engine import recorded
from tests.fakes.asked_worker import HELLO, AskedWorker
from tests.finding_words import missing_words
from tests.verdict_samples import BAD, GOOD, SUSPECT, TEST

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from ci_autotest.findings.suspect import Suspect

LOST = WorkerLostError("ended by signal 11 (SIGSEGV)", Spot(0, 0, 1, 0, 0), "")
HUNG = WorkerLostError("made no progress for 60 s and was ended", Spot(0, 0, 1, 0, 0), "", limit="time")
CRASHED = SUSPECT._replace(verdict=None, lost=LOST)
UNSTEADY = msgspec.structs.replace(BAD, kind="nondeterminism")
REJECTED = SUSPECT._replace(verdict=msgspec.structs.replace(BAD, kind="leniency", is_of_a_rejected_attempt=True))


PROGRAM = recorded(lambda: torch.exp(random_tensor(ndim=1, dim0=3, requires_grad=False)))


def tried(verdict: Any) -> Tried:
    program, tensors = encode_program(PROGRAM), encode_tensors(PROGRAM)
    return Tried(verdict=verdict, program=program, tensors=tensors, whole_program=program, whole_tensors=tensors)


RECORDED = tried(msgspec.structs.replace(GOOD, outcome="not_run", operator="torch.exp", target="torch.exp", step=1))


class ForkClient:
    """Every script ends with 1: it shows what it is about."""

    def run_script(self, *_: Any, **__: Any) -> int:
        return 1


def listed(answers: dict[type, list[Any]]) -> Callable[[Any], Any]:
    """Return what answers each kind of question with what is listed for it, the last again and again."""
    asked: defaultdict[type, int] = defaultdict(int)

    def answer(message: Any) -> Any:
        asked[type(message)] += 1
        own = answers[type(message)]
        return own[min(asked[type(message)], len(own)) - 1]

    return answer


def looked_at(suspect: Suspect, answers: dict[type, list[Any]], folder: Path, confirmed: Any = ()) -> Any:
    worker = AskedWorker(listed(answers))
    tools = Tools(lambda: worker, ForkClient(), HELLO, folder, (), 0, {})  # type: ignore[arg-type, return-value]
    return rendered(diagnosed(suspect, tools, confirmed), tools)


@pytest.mark.parametrize(
    ("suspect", "answers", "outcome", "kind", "is_confirmed", "is_shrunk"),
    [
        pytest.param(SUSPECT, {Confirm: [tried(BAD)], TryProgram: [tried(BAD)]}, "misaligned", "value", True, True, id="repeats"),
        pytest.param(SUSPECT, {Confirm: [tried(GOOD)]}, "flaky", "value", False, False, id="aligned again"),
        pytest.param(SUSPECT, {Confirm: [Broken(message="m", traceback="")]}, "misaligned", "value", False, False, id="not asked"),
        pytest.param(SUSPECT, {Confirm: [LOST], Record: [RECORDED], TryProgram: [LOST]}, "crashed", "crash", True, True, id="ends a fresh worker"),
        pytest.param(SUSPECT, {Confirm: [HUNG, Broken(message="m", traceback="")], Record: [RECORDED]}, "misaligned", "value", False, False, id="hangs once"),
        pytest.param(SUSPECT._replace(others=((3, 0, TEST),)), {Confirm: [tried(GOOD), tried(BAD)], TryProgram: [tried(BAD)]}, "misaligned", "value", True, True, id="another case repeats"),
        pytest.param(REJECTED, {Confirm: [tried(GOOD)]}, "misaligned", "leniency", False, False, id="rejected and not lenient again"),
        pytest.param(CRASHED, {Confirm: [LOST], Record: [RECORDED], TryProgram: [LOST]}, "crashed", "crash", True, True, id="crashes"),
        pytest.param(CRASHED, {Confirm: [LOST], Record: [RECORDED], TryProgram: [tried(GOOD)]}, "crashed", "crash", True, False, id="crashes as a whole only"),
        pytest.param(CRASHED, {Confirm: [tried(BAD)], Record: [RECORDED]}, "misaligned", "value", True, False, id="misaligned when watched"),
        pytest.param(CRASHED, {Confirm: [tried(GOOD)], Record: [RECORDED], TryProgram: [tried(GOOD)]}, "crashed", "crash", True, False, id="aligned when watched"),
        pytest.param(CRASHED._replace(repeats="unknown"), {Confirm: [tried(GOOD)], Record: [RECORDED], TryProgram: [tried(GOOD)]}, "crashed", "crash", False, False, id="seen once"),
        pytest.param(CRASHED._replace(repeats="never"), {Record: [RECORDED]}, "flaky", "crash", False, False, id="never again"),
        pytest.param(CRASHED._replace(repeats="history", history="case 1"), {Record: [RECORDED]}, "crashed", "crash", True, False, id="after others"),
    ],
)  # fmt: skip
def test_diagnosed__suspect__comes_to_its_finding(suspect, answers, outcome, kind, is_confirmed, is_shrunk, tmp_path):
    finding = looked_at(suspect, answers, tmp_path)
    assert (finding.outcome, finding.kind, finding.confirmed, finding.shrunk) == (
        outcome,
        kind,
        is_confirmed,
        is_shrunk,
    )
    assert missing_words(finding) == []
    assert finding.repro_verified is (finding.repro is not None)
    folder = tmp_path / "findings" / finding.id
    assert (folder / "repro.py").is_file() is finding.repro_verified
    if finding.program:  # What is told is what lies in its folder.
        assert [path.name for path in folder.parent.iterdir()] == [finding.id]
        assert finding.program in (folder / "README.md").read_text("utf-8")
        assert decode((folder / "program.json").read_bytes(), (folder / "tensors.safetensors").read_bytes())


@pytest.mark.parametrize(
    ("suspect", "answers"),
    [
        pytest.param(CRASHED, {Confirm: [LOST], Record: [RECORDED], TryProgram: [LOST]}, id="crash"),
        pytest.param(SUSPECT, {Confirm: [tried(BAD)], TryProgram: [tried(BAD)]}, id="misaligned"),
        pytest.param(
            SUSPECT, {Confirm: [tried(UNSTEADY)], Record: [Broken(message="", traceback="")]}, id="differs from itself"
        ),
    ],
)
def test_diagnosed__confirmed_before__is_not_written_down_again(suspect, answers, tmp_path: Path):
    # Two suspects may come to one finding: its folder is that of the first, as the report says.
    first = looked_at(suspect, answers, tmp_path / "first")
    again = looked_at(suspect, answers, tmp_path / "again", [first.id])
    assert (again.identity, again.confirmed, again.program, again.repro) == (first.identity, True, "", None)
    assert not (tmp_path / "again").exists()


@pytest.mark.parametrize(
    ("repeats", "begins"), [("never", "flaky: torch.exp on "), ("history", "crashed: torch.exp on ")]
)
def test_diagnosed__does_not_end_its_worker_alone__offers_nothing_that_runs_it_again(repeats, begins, tmp_path):
    # Its program by itself shows nothing, and there is no script: no line may send a reader to one.
    finding = looked_at(CRASHED._replace(repeats=repeats, history="case 1"), {Record: [RECORDED]}, tmp_path)
    assert (finding.repro, finding.replay, "replay:" in finding.message) == (None, "", False)
    assert finding.message.startswith(begins)
    assert finding.detail in finding.message


def test_as_seen__each_suspect__says_that_nobody_looked_again(tmp_path: Path):
    tools: Any = Tools(None, None, HELLO, tmp_path, (), 0, {})  # type: ignore[arg-type]
    told = [rendered(as_seen(suspect), tools) for suspect in (SUSPECT, CRASHED, CRASHED._replace(repeats="unknown"))]
    assert [(item.outcome, item.confirmed) for item in told] == [
        ("misaligned", False),
        ("crashed", False),
        ("crashed", False),
    ]
    assert [item.message.splitlines()[-1] for item in told] == [
        "  not confirmed: it was not run again in a fresh process",
        "  blame: candidate: the reference was not run alone",
        "  not confirmed, seen once: the run ended before it could run again with what ran before it",
    ]  # fmt: skip


def test_stages__every_route__has_its_row_and_verifies_last_what_it_has_written():
    assert set(STAGES) == set(Route)
    for stages in STAGES.values():
        assert verify not in stages or stages[-2:] == (write, verify)
