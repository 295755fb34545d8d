"""The cases of the shipped suite come out the same in batches of any size."""

from __future__ import annotations

import re

import msgspec
import pytest
import torch as real

from ci_autotest.discovery import families
from ci_autotest.kinds import TorchCandidate
from ci_autotest.run.messages import Discover, Hello, RunCases
from ci_autotest.run.progress_beacon import ProgressBeacon
from ci_autotest.run.worker import case_runner, memory
from ci_autotest.run.worker.dispatch import Dispatcher
from ci_autotest.run.worker.tests import SUITE
from tests.engine import substitute
from tests.tables import thinned


def told(family: str, size: int, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return what a bench says of 32 cases of each test of a family in batches of a size, what is measured aside."""
    monkeypatch.setattr(memory, "BATCH", size)
    monkeypatch.setattr(case_runner, "_PART_S", float("inf"))
    dispatcher = Dispatcher(ProgressBeacon.create(), lambda _: None)
    candidates = [TorchCandidate(name="torch"), TorchCandidate(name="off")]
    dispatcher.answer(
        Hello(
            root=".", folders=[], seed=0, strictness="tolerance", reference_device="cpu", candidates=candidates,
            tolerances=[],
        )
    )  # fmt: skip
    dispatcher.worker_context.backends["off"] = substitute(
        exp=lambda value: real.Tensor.exp(value) * 1.01, mul=real.Tensor.mul, sum=real.Tensor.sum
    )
    found = dispatcher.answer(Discover(f"{SUITE}{family}"))
    done = [
        dispatcher.answer(RunCases(test=test, cases=list(range(32)), candidates=["torch", "off"]))
        for test in found.tests
    ]
    # MKL's least squares depend on where its memory lies, so their errors are no two times the same.
    measured = r'"(\w*_s|watched|kept_bytes)":[0-9.e+-]+|\{"operator":"torch.linalg.lstsq"[^}]*\}'
    return [re.sub(measured, "", msgspec.json.encode(one).decode()) for one in done]


@pytest.mark.filterwarnings("ignore")  # torch warns once in a process: one of the two runs only
@pytest.mark.parametrize("family", thinned(families(), 12))
def test_the_suite__in_batches_of_1_and_of_16__comes_out_the_same(family, monkeypatch):
    # oneDNN's convolutions in bfloat16 read memory that nothing wrote to where a result is one element wide and the
    # stride is above 1 (torch 2.13 with AVX-512): they are no two times the same, whatever the batches.
    with real.backends.mkldnn.flags(enabled=False):
        assert told(family, 1, monkeypatch) == told(family, 16, monkeypatch)
