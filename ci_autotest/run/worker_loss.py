"""The loss of a worker: by which signal, exit status, timeout or limit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from ci_autotest.values.process_end import exit_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ci_autotest.run.progress_beacon import Spot
    from ci_autotest.values.schedule import CandidateCall

#: Exit status of a worker that ends itself because its device only returns errors.
RETIRED: Final = 86


Limit: TypeAlias = Literal["", "time", "memory"]


class WorkerLostError(Exception):
    """Raised if a worker is gone: it died, made no progress, exceeded a limit, or sent something other than a message.

    Attributes:
        reason: Text for the reader, for example ``ended by signal 11 (SIGSEGV)``.
        spot: Its last position.
        output: The end of what it printed during its task, with the fault handler's stack.
        is_killed: Whether the system or another process killed it with SIGKILL; ci-autotest did not.
        limit: The limit for which ci-autotest ended it, if it did: it made no progress, or held too much memory.
        calls: The last calls of its candidates.
    """

    def __init__(
        self,
        reason: str,
        spot: Spot,
        output: str,
        *,
        is_killed: bool = False,
        limit: Limit = "",
        calls: Sequence[CandidateCall] = (),
    ) -> None:
        super().__init__(reason)
        self.reason = reason
        self.spot = spot
        self.output = output
        self.limit = limit
        self.is_killed = is_killed
        self.calls = calls

    @property
    def timed_out(self) -> bool:
        """Whether it was ended because it made no progress."""
        return self.limit == "time"


class OutOfTimeError(Exception):
    """Raised if an answer did not arrive in time."""


def silence_text(limit_s: float, ranks: Sequence[int]) -> str:
    """Return as text that a worker made no progress, and which ranks it was waiting for."""
    if not ranks:
        return f"made no progress for {limit_s:g} s and was ended"
    *others, last = map(str, ranks)
    awaited = f"ranks {', '.join(others)} and {last}" if others else f"rank {last}"
    return f"made no progress for {limit_s:g} s ({awaited} did not answer) and was ended"


def ending(code: int) -> str:
    """Return as text how a process ended, from its exit status as ``subprocess`` reports it."""
    if code == RETIRED:
        return "ended itself because its GPU returns an error for every call"
    return exit_text(code)
