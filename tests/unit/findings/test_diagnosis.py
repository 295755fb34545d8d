"""What is said of a case whose second run shows something else."""

from __future__ import annotations

import pytest

from ci_autotest.findings.diagnosis import flaky
from ci_autotest.run.messages import Tried
from ci_autotest.values.verdict import Call, Kind, Misalignment, Verdict
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
