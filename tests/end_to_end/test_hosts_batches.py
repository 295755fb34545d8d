"""Cases in a host by the batch: while it runs one the next is begun, and nothing that is told depends on it."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from ci_autotest.backends.framework.backend import Channel
from ci_autotest.errors import AuthorError
from ci_autotest.kinds import ModuleCandidate, TorchCandidate
from ci_autotest.run.messages import CasesDone, Discover, Discovered, Hello, RunCases
from ci_autotest.run.progress_beacon import ProgressBeacon
from ci_autotest.run.worker import case_runner, memory
from ci_autotest.run.worker.dispatch import Dispatcher
from tests.projects import Project

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.heavy

#: Torch, with functions that are wrong for some inputs alone.
FRAMEWORK = """
import os
import torch

globals().update({name: value for name, value in vars(torch).items() if not name.startswith("__")})
__version__ = "0.1-lookalike"


def exp(input):
    return torch.exp(input) + (input > 0.9) * 0.01


def sinh(input):
    return torch.sinh(input) * (1 + 2e-7)


def abs(input):
    if tuple(input.shape) == (5, 7):
        ENDS
    return torch.abs(input)
"""
BODIES = """
@autotest()
def sometimes_wrong():
    return torch.exp(random_tensor(2, random(1, 9), random(1, 9)))

@autotest()
def told_by_a_digest():
    return torch.exp(random_tensor(2, 70, random(70, 80)))

@autotest()
def near():
    return torch.sinh(random_tensor(2, random(1, 9), random(1, 9)))

@autotest()
def in_place():
    y = random_tensor(2) * 2
    y.add_(1)
    return torch.exp(y).mul_(2)

@autotest()
def rejected_sometimes():
    return torch.matmul(random_tensor(2, 3, random(3, 5)), torch.exp(random_tensor(2, random(3, 5), 2)))

@autotest()
def hooked():
    y = torch.exp(random_tensor(2))
    y.register_hook(lambda gradient: gradient * 2)
    return y

@autotest()
def module():
    return torch.nn.Linear(3, 2)(random_tensor(2, random(1, 9), 3))
"""
HOST = {"name": "lookalike", "module": "lookalike", "python": sys.executable}


def bench_of(folder: Path, place: ProgressBeacon) -> Dispatcher:
    """Return a bench with both candidates."""
    dispatcher = Dispatcher(place, lambda _: None)
    candidates = [ModuleCandidate(**HOST), TorchCandidate(name="torch")]
    dispatcher.answer(
        Hello(
            root=str(folder), folders=[str(folder)], seed=0, strictness="tolerance", reference_device="cpu",
            candidates=candidates, tolerances=[],
        )
    )  # fmt: skip
    return dispatcher


def said(folder: Path, size: int, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return all that a bench says of 40 cases of each test, in batches of a size, what is measured aside."""
    monkeypatch.setattr(memory, "BATCH", size)
    monkeypatch.setattr(case_runner, "_PART_S", float("inf"))
    dispatcher = bench_of(folder, ProgressBeacon.create())
    found: Any = dispatcher.answer(Discover("autotests/autotest_all.py"))
    assert isinstance(found, Discovered), found
    told = []
    for test in found.tests:
        done = dispatcher.answer(RunCases(test=test, cases=list(range(40)), candidates=["torch", "lookalike"]))
        assert isinstance(done, CasesDone), done
        told.append(re.sub(r'"(\w*_s|watched)":[0-9.e+-]+', "", msgspec.json.encode(done).decode()))
    dispatcher.worker_context.backends["lookalike"].close()
    return told


def test_cases__in_batches_of_1_7_and_32__come_out_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    project = Project(tmp_path)
    project.write("lookalike.py", FRAMEWORK.replace("ENDS", "pass"))
    project.tests(BODIES)
    one, seven, many = (said(tmp_path, size, monkeypatch) for size in (1, 7, 32))
    assert one == seven == many
    wrong = dict(zip(re.findall(r"def (\w+)", BODIES), one, strict=True))
    assert '"kind":"value"' in wrong["sometimes_wrong"], "a fault in some cases of a batch is seen"
    assert '"failures":[]' in wrong["near"], "what is near is aligned"


ENDS = "@autotest(n=200, profiles=[])\ndef one_shape():\n    return torch.abs(random_tensor(2, random(1, 9), random(1, 9)))\n"


def test_run__host_ends_in_a_later_batch__the_cases_are_those_that_would_raise(tmp_path: Path):
    told = []
    for number, ends in enumerate(("raise ValueError('five by seven')", "os.abort()")):
        project = Project(tmp_path / str(number))
        project.configure(candidates=[{**HOST, "backend": "module"}], case_timeout="20s")
        project.write("lookalike.py", FRAMEWORK.replace("ENDS", ends))
        project.tests(ENDS)
        done = project.run()
        report = project.report()
        (result,), (finding,) = report["results"], report["findings"]
        counts = result["cases"]
        bad = counts["misaligned"] + counts["crashed"]
        assert counts["aligned"] + bad == 200, done.said
        told.append((bad, finding["case"]))
    assert told[0] == told[1]
    assert told[0][0] > 0


#: Slow, so that a host is waited for and asked where it is.
SLOW = (
    FRAMEWORK.replace("ENDS", "pass")
    + """

def narrow(input, dim, start, length):
    time.sleep(0.01)
    return torch.narrow(input, dim, start, length)
""".replace("time", "__import__('time')")
)
REFUSED = """
@autotest(profiles=[])
def refused_sometimes():
    return torch.narrow(random_tensor(2, random(1, 9)), 0, 0, 2)
"""
BROKEN = """
LEFT = [40]

@autotest(profiles=[])
def broken_later():
    LEFT[0] -= 1
    if not LEFT[0]:
        raise ValueError("of the author")
    return torch.narrow(random_tensor(2, random(2, 9)), 0, 0, 2)
"""


def begun(folder: Path, bodies: str) -> tuple[Dispatcher, ProgressBeacon, Any]:
    project = Project(folder)
    project.write("lookalike.py", SLOW)
    project.tests(bodies)
    place = ProgressBeacon.create()
    dispatcher = bench_of(folder, place)
    found: Any = dispatcher.answer(Discover("autotests/autotest_all.py"))
    return dispatcher, place, found.tests[0]


def test_program_that_runs_alone__after_a_batch_was_waited_for__is_of_the_case_in_flight(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    dispatcher, place, test = begun(tmp_path, REFUSED)
    refused = {
        case for case in range(100) if dispatcher.answer(RunCases(test=test, cases=[case], candidates=[])).test.rejected
    }
    seen, ask = set(), Channel.send
    monkeypatch.setattr(
        Channel,
        "send",
        lambda self, message, at=None: (seen.add(place.read().case) if at is None else None, ask(self, message, at)),
    )
    dispatcher.answer(RunCases(test=test, cases=list(range(100)), candidates=["lookalike"]))
    dispatcher.worker_context.backends["lookalike"].close()
    assert seen == refused
    assert len(refused) > 3


def test_body_that_raises__while_a_host_runs_a_batch__leaves_nothing_to_the_next_test(tmp_path: Path):
    dispatcher, _, test = begun(tmp_path, BROKEN)
    with pytest.raises(AuthorError):
        dispatcher.answer(RunCases(test=test, cases=list(range(100)), candidates=["lookalike"]))
    backend = dispatcher.worker_context.backends["lookalike"]
    owed = list(backend._outstanding.traces)
    backend.close()
    assert owed == []
