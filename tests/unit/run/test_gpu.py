"""A GPU that answers with errors is given up, told from one that works or was never used."""

from __future__ import annotations

import pytest

from ci_autotest.run.worker.gpu import retire_if_spoiled
from ci_autotest.run.worker_loss import RETIRED


class FakeCuda:
    """Stand in for ``torch.cuda``.

    Args:
        is_used: Whether it was initialized.
        error: What synchronising raises.
    """

    def __init__(self, is_used: bool, error: Exception | None = None) -> None:
        self.is_used = is_used
        self.error = error

    def is_initialized(self) -> bool:
        return self.is_used

    def synchronize(self) -> None:
        if not self.is_used:
            pytest.fail("a GPU that nobody used was initialized")
        if self.error is not None:
            raise self.error


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
