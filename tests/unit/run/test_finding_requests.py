"""The rules of a saved program: what its note says of tolerances holds, and only numbers do."""

from __future__ import annotations

import pytest

from ci_autotest import random_tensor, torch
from ci_autotest.alignment.recordings import to_recording
from ci_autotest.alignment.verdict import live_of
from ci_autotest.errors import ProgramError
from ci_autotest.program.note import note_of
from ci_autotest.run.worker.finding_requests import _declared
from tests.engine import record


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        ({"rtol": 0.1, "atol": 0.2}, (0.1, 0.2)),
        ({"rtol": 0.1, "atol": None}, (0.1, None)),
        ({"rtol": None, "atol": 0.2}, (None, 0.2)),
        ({}, (None, None)),
    ],
    ids=["both", "rtol alone", "atol alone", "no bounds"],
)
def test_declared__note_of_a_program__gives_its_tolerances(rules, expected):
    recording = to_recording(live_of(record(lambda: torch.exp(random_tensor(1)))), note_of({"rules": rules}))
    found = _declared(recording)
    assert found is not None
    assert (found.rtol, found.atol) == expected


@pytest.mark.parametrize("rules", [{"rtol": "loose"}, {"atol": -1.0}, ["all"]], ids=["text", "negative", "list"])
def test_note_of__rules_that_cannot_be__are_refused(rules):
    with pytest.raises(ProgramError, match="the note of the program"):
        note_of({"rules": rules})
