"""What nothing compares is said in notes: time, memory that is kept, the generator. None of it is a finding."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ci_autotest.commands.case_counts import uncompared
from ci_autotest.values.tally import Cost
from tests.projects import Project

if TYPE_CHECKING:
    from pathlib import Path

KERNELS = """
import torch
from torch.nn import functional as F

kept, calls = [], []
dropped = F.dropout
generator = torch.Generator().manual_seed(3)


def slow(x):
    for _ in range(40000):
        torch.tanh(x)
    return torch.tanh(x)


def keeping(x):
    kept.append(torch.zeros(1 << 21))
    return torch.tanh(x)


def keeping_once(x):
    calls.append(1)
    if len(calls) == 5:
        kept.append(torch.zeros(1 << 25))
    return torch.tanh(x)


def own(x, p=0.5, training=True, inplace=False):
    return x * (torch.rand(x.shape, generator=generator) >= p).to(x.dtype) / (1 - p)


def other(x, p=0.5, training=True, inplace=False):
    torch.rand(3)
    return dropped(x, p, training)


def right(x, p=0.5, training=True, inplace=False):
    return dropped(x, p, training)
"""
TESTS = """
@autotest()
def tanh():
    return torch.tanh(random_tensor(2, 3, 4))


@autotest(profiles=[])
def dropout():
    return torch.nn.functional.dropout(random_tensor(2, 3, 4))
"""
REPLACED = {"slow": "tanh", "keeping": "tanh", "keeping_once": "tanh"} | dict.fromkeys(
    ("own", "other", "right"), "nn.functional.dropout"
)


@pytest.mark.heavy
def test_run__kernels_that_are_right_and_odd__are_told_in_notes(tmp_path: Path):
    project = Project(tmp_path)
    project.write("kernels.py", KERNELS)
    project.tests(TESTS)
    candidates = [
        {"name": name, "backend": "substitute", "replace": {f"torch.{operator}": f"kernels.{name}"}}
        for name, operator in REPLACED.items()
    ]
    project.configure(candidates=candidates)
    done = project.run()
    assert done.status == 0, done.said
    report = project.report()
    assert report["findings"] == []
    # A dropout draws numbers, so that its calls are not repeated, and a note says that too.
    told = [note for note in report["notes"] if "several times in a row" not in note]
    notes = {note.partition(": ")[0].rpartition(" ")[2]: note.partition(": ")[2] for note in told}
    assert sorted(notes) == ["keeping", "other", "own", "slow"]
    assert "times as long" in notes["slow"]
    assert "MiB were allocated in 10 cases" in notes["keeping"]
    assert "the candidate does not use it" in notes["own"]
    assert "another number of draws" in notes["other"]


@pytest.mark.parametrize(
    ("cost", "count"),
    [
        pytest.param(Cost(), 0, id="nothing seen"),
        pytest.param(Cost(cases=19, candidate_s=0.9, reference_s=0.01), 0, id="90 times slower"),
        pytest.param(Cost(cases=19, candidate_s=0.04, reference_s=0.0001), 0, id="a few milliseconds"),
        pytest.param(Cost(cases=19, candidate_s=1.1, reference_s=0.01), 1, id="110 times slower"),
        pytest.param(Cost(cases=19, watched=10, kept_bytes=23 << 20), 0, id="little is kept"),
        pytest.param(Cost(cases=19, watched=10, kept_bytes=10 << 23), 1, id="8 MiB a case"),
        pytest.param(Cost(cases=19, drawn="nothing"), 1, id="no draws"),
    ],
)
def test_uncompared__orders_of_magnitude__are_told(cost: Cost, count: int):
    assert len(uncompared(cost)) == count
