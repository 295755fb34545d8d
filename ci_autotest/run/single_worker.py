"""A worker for one request at a time, used to confirm and shrink findings; a crash ends it, and another starts."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

import msgspec

from ci_autotest.run.messages import Broken, Confirm, Ready, Replay, Tried, TryProgram
from ci_autotest.run.progress_beacon import IN_FLOAT64
from ci_autotest.run.worker_loss import OutOfTimeError, WorkerLostError

if TYPE_CHECKING:
    from collections.abc import Callable

    from ci_autotest.run.executor import Worker
    from ci_autotest.run.messages import Hello, Measure, Measured, Message

_SPENT: Final = Broken(message="the time for findings was used up", traceback="")
#: Times that a request is sent if its worker is killed from outside.
_TRIES: Final = 4


class SingleWorker:
    """One worker after another, for one request at a time.

    Args:
        start: Starts a worker.
        hello: Its first message.
        deadline: Monotonic seconds after which no request is sent; ``None``: never.
    """

    def __init__(self, start: Callable[[], Worker], hello: Hello, deadline: float | None = None) -> None:
        self._start = start
        self._hello = hello
        self._deadline = deadline
        self._worker: Worker | None = None
        self._candidate = ""
        #: The end of what user code printed during the last request that was answered.
        self.printed = ""
        #: Candidates and tests for which the float64 oracle has ended a worker: their requests go without it.
        self._ended_by_float64: set[tuple[str, str]] = set()

    @property
    def is_over(self) -> bool:
        """Whether the deadline has passed."""
        return self._deadline is not None and time.monotonic() > self._deadline

    def ask(self, message: Message) -> Tried | Broken | WorkerLostError:
        """Return the answer, or how the worker was lost.

        The request is sent again if its worker was killed from outside, or was lost in the float64 oracle.
        """
        answer: Tried | Broken | WorkerLostError = Broken(message="", traceback="")
        for _ in range(_TRIES):
            is_without = _subject(message) in self._ended_by_float64
            answer = self._ask_once(_without_float64(message) if is_without else message)
            if not isinstance(answer, WorkerLostError):
                break
            if answer.spot.step == IN_FLOAT64:
                self._ended_by_float64.add(_subject(message))
            elif not answer.is_killed:
                break
        return answer

    def measure(self, message: Measure) -> Measured | Broken | WorkerLostError:
        """Return the times of a case, or how the worker was lost."""
        return self.ask(message)  # type: ignore[return-value]

    def _ask_once(self, message: Message) -> Tried | Broken | WorkerLostError:
        if self.is_over:
            return _SPENT
        candidate = getattr(message, "candidate", "")
        # A worker knows one candidate only (`_hello_for`).
        if candidate != self._candidate:
            self.close()
        try:
            if self._worker is None:
                self._worker = self._start()
                self._candidate = candidate
                ready = self._worker.ask(_hello_for(self._hello, candidate), self._deadline)
                for info in ready.candidates if isinstance(ready, Ready) else ():
                    if info.name == candidate and not info.available:
                        self.close()
                        return Broken(message=f"candidate '{candidate}' is not available: {info.reason}", traceback="")
                if isinstance(ready, Broken):
                    self.close()
                    return ready
            self._worker.begin()
            answer = self._worker.ask(message, self._deadline)
            self.printed = self._worker.printed()
        except WorkerLostError as error:
            self.close()
            return error
        except OutOfTimeError:
            self.close()
            return _SPENT
        if getattr(answer, "is_changed", False):
            self.close()  # The next request must not see what this one has changed.
        return answer  # type: ignore[return-value]

    def close(self) -> None:
        """End the worker; the next request starts another."""
        if self._worker is not None:
            self._worker.close()
            self._worker = None


def _subject(message: Message) -> tuple[str, str]:
    """Return the candidate and the test of a request."""
    test = message.runs[-1].test if isinstance(message, Replay) else getattr(message, "test", None)
    return getattr(message, "candidate", ""), test.id if test is not None else ""


def _without_float64(message: Message) -> Message:
    if isinstance(message, Replay):
        runs = [msgspec.structs.replace(run, asks_float64=False) for run in message.runs]
        return msgspec.structs.replace(message, runs=runs)
    if isinstance(message, Confirm | TryProgram):
        return msgspec.structs.replace(message, asks_float64=False)
    return message


def _hello_for(hello: Hello, candidate: str) -> Hello:
    """Return a ``Hello`` with one candidate only, because starting another's interpreter takes seconds."""
    wanted = [each for each in hello.candidates if each.name == candidate]
    return msgspec.structs.replace(hello, candidates=wanted) if wanted else hello
