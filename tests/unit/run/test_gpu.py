"""A GPU that answers with errors is given up, told from one that works or was never used."""

from __future__ import annotations

import pytest

from ci_autotest.run.worker.gpu import retire_if_spoiled
from ci_autotest.run.worker_loss import RETIRED
from tests.fakes.cuda import FakeCuda


class Bare:
    """A device's module that has nothing to ask."""


@pytest.mark.parametrize(
    ("cuda", "left"),
    [
        pytest.param(FakeCuda(False), [], id="never used"),
        pytest.param(FakeCuda(True), [], id="works"),
        pytest.param(FakeCuda(True, RuntimeError("CUDA error: an illegal memory access")), [RETIRED], id="spoiled"),
        pytest.param(Bare(), [], id="cannot be waited for"),
    ],
)
def test_retire_if_spoiled__gpu__is_given_up_when_it_answers_with_errors(cuda, left):
    said: list[int] = []
    retire_if_spoiled([cuda], said.append)
    assert said == left
