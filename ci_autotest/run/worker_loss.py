"""How a worker was lost: by which signal, timeout or limit."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ci_autotest.run.progress_beacon import Spot

#: Exit status of a worker that gives its device up.
RETIRED: Final = 86


class WorkerLostError(Exception):
    """Say that a worker is gone: it died, was silent for too long, took too much, or sent what is no message.

    Attributes:
        reason: For the reader, ``ended by signal 11 (SIGSEGV)``.
        timed_out: Whether it was ended for silence.
        spot: Where it was.
        output: The end of what it printed since its task began, with the fault handler's stack.
        is_killed: Whether it was ended by SIGKILL, and not by us: by the system, or by another process.
    """

    def __init__(
        self, reason: str, spot: Spot, output: str, *, timed_out: bool = False, is_killed: bool = False
    ) -> None:
        super().__init__(reason)
        self.reason = reason
        self.spot = spot
        self.output = output
        self.timed_out = timed_out
        self.is_killed = is_killed


class OutOfTimeError(Exception):
    """Say that an answer was not waited for any longer."""


def ending(code: int) -> str:
    """Return how a process ended, from its exit status as ``subprocess`` gives it."""
    if code == RETIRED:
        return "retired itself: its GPU answers every call with an error"
    if code >= 0:
        return f"ended with status {code}"
    try:
        return f"ended by signal {-code} ({signal.Signals(-code).name})"
    except ValueError:
        return f"ended by signal {-code}"
