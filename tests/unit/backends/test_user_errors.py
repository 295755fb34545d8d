"""What kernels raise is their outcome, a Ctrl-C is not."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

from ci_autotest import random_tensor, torch
from tests.engine import judged, record, substitute, tried

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def _as_in_a_worker() -> Iterator[None]:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def _as_at_a_terminal() -> Iterator[None]:
    # What runs in the background of a shell's script ignores the signal.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def raising(error: type[BaseException]):
    def kernel(value):
        raise error

    return substitute(exp=kernel)


@pytest.mark.usefixtures("_as_in_a_worker")
@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, ValueError])
def test_kernel__raises_in_a_worker__is_its_outcome(error: type[BaseException]):
    verdict = tried(lambda: torch.exp(random_tensor()), raising(error))
    assert (verdict.outcome, verdict.kind, verdict.blame) == ("misaligned", "error", "candidate")


@pytest.mark.usefixtures("_as_at_a_terminal")
def test_kernel__interrupted_at_a_terminal__is_passed_on():
    attempt = record(lambda: torch.exp(random_tensor()))
    with pytest.raises(KeyboardInterrupt):
        judged(attempt, raising(KeyboardInterrupt))


@pytest.mark.usefixtures("_as_at_a_terminal")
def test_body__interrupted_at_a_terminal__is_passed_on():
    def body() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        record(body)
