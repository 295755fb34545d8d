"""What is said of a case whose second run shows something else."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest

from ci_autotest.findings.diagnosis import Diagnosis, Doubt, Route, RunAgain, flaky, rendered
from ci_autotest.findings.tools import Tools
from ci_autotest.findings.unconfirmed import as_seen
from ci_autotest.report.finding_program import program_or_reason
from ci_autotest.run.messages import Tried
from ci_autotest.run.progress_beacon import Spot
from ci_autotest.run.worker_loss import WorkerLostError
from ci_autotest.shrink.shrinker import ShownTrial
from ci_autotest.values.verdict import Call, Kind, Misalignment, Verdict
from tests import program_samples
from tests.fakes.asked_worker import HELLO
from tests.finding_words import missing_words
from tests.verdict_samples import SUSPECT

_LOST = "rank 1 was lost with its node, rank 0 went on"


@pytest.mark.parametrize(
    ("kind", "seen", "detail", "said"),
    [
        ("rank", _LOST, "", f" (rank), {_LOST}"),
        ("nondeterminism", "returns", f"the candidate differs from itself. {_LOST}", f"differs from itself. {_LOST}"),
        ("error", "raises ValueError at 0x7f", "", " (error)"),
    ],
    ids=["rank", "nondeterminism", "error"],
)
def test_flaky__kind_of_a_first_run__says_what_ranks_did(kind: Kind, seen: str, detail: str, said: str):
    found = Misalignment(kind=kind, step=0, at=Call(name="exp"), candidate=seen, reference="", detail=detail)
    first = Verdict(outcome="misaligned", operator="torch.exp", kind=kind, misalignment=found)

    diagnosis = flaky(SUSPECT._replace(verdict=first), Tried(verdict=Verdict(outcome="aligned")))

    assert diagnosis.detail is not None
    assert diagnosis.detail.startswith("first run: misaligned, torch.exp")
    assert diagnosis.detail.endswith(f"{said}; in a fresh process: aligned")


TOOLS = Tools(lambda: None, None, HELLO, Path("report"), (), 0, {})  # type: ignore[arg-type, return-value]
BACKENDS = {
    "kernels": {"backend": "substitute", "renames": {program_samples.OPERATOR: "mine.norm"},
                "spellings": {"mine.norm": [program_samples.OPERATOR]}},
    "ranks": {"backend": "dtensor"},
    "compiler": {"backend": "torch.compile", "options": {}},
}  # fmt: skip
#: What stages leave of a finding.
STATES: dict[str, dict[str, Any]] = {
    "shrunk": {"is_confirmed": True, "is_shrunk": True, "run_again": RunAgain.SCRIPT},
    "whole": {"is_confirmed": True, "run_again": RunAgain.SCRIPT},
    "passes": {"is_confirmed": True, "is_shrunk": True, "no_program": "passes"},
    "stops": {"is_confirmed": True, "is_shrunk": True, "no_program": "stops"},
    "after cases": {
        "is_confirmed": True,
        "no_program": "cases",
        "detail": "right alone, and wrong after 2 other cases",
    },
    "unconfirmed": {},
    **{
        doubt.name: {"doubt": doubt, "detail": "first run: misaligned; second: aligned"}
        for doubt in Doubt
        if doubt.value
    },
}


@pytest.mark.parametrize("kind", get_args(Kind))
def test_rendered__finding_of_any_kind_and_state__has_a_title_and_its_reasons(kind: Kind):
    seen = {"candidate": "float32[2] on cpu", "reference": "float32[3] on cpu"}
    outcome = {"crash": "crashed", "timeout": "timed_out"}.get(kind, "misaligned")
    found = Misalignment(kind=kind, step=3, at=Call(name="y"), **seen)
    verdict = Verdict(outcome=outcome, operator=program_samples.OPERATOR, kind=kind, step=3, misalignment=found)  # type: ignore[arg-type]
    suspect = SUSPECT._replace(verdict=verdict)
    bare = SUSPECT._replace(verdict=msgspec.structs.replace(verdict, misalignment=None))
    shown = [None, *(ShownTrial(verdict, program_samples.recording(note=note)) for note in BACKENDS.values())]
    diagnoses = [
        *(Diagnosis(suspect, verdict, Route.SETTLED, shown=one, **state) for one in shown for state in STATES.values()),
        as_seen(suspect),
        as_seen(bare),
    ]
    for diagnosis in diagnoses:
        finding = rendered(diagnosis, TOOLS)
        assert (missing_words(finding), bool(program_or_reason(finding))) == ([], True), finding


def test_rendered__worker_was_killed_before_it_printed_its_stack__has_that_of_its_second_loss():
    verdict = Verdict(outcome="timed_out", operator="torch.exp", kind="timeout")
    first, again = (
        WorkerLostError("made no progress for 6 s", Spot(0, 0, 0, 0, 1), text, limit="time")
        for text in ("", "in exp\n")
    )
    diagnosis = Diagnosis(SUSPECT._replace(lost=first), verdict, Route.SETTLED, lost=again)
    assert rendered(diagnosis, TOOLS).output == "in exp"
