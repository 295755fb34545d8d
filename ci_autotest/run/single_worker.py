"""A worker for one question at a time, started again after a crash: used to confirm and shrink findings."""

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
    from ci_autotest.run.messages import Hello, Message

_SPENT: Final = Broken(message="the budget was spent", traceback="")
#: Times that a question is put whose worker is ended from outside.
_TRIES: Final = 4


class SingleWorker:
    """Hold a worker for one question at a time.

    Args:
        start: Starts a worker.
        hello: What it is told first.
        deadline: Monotonic seconds after which no question is put; ``None``: never.
    """

    def __init__(self, start: Callable[[], Worker], hello: Hello, deadline: float | None = None) -> None:
        self._start = start
        self._hello = hello
        self._deadline = deadline
        self._worker: Worker | None = None
        self._candidate = ""
        #: Candidates and tests of which float64 has ended a worker: it is not asked again.
        self._ended_by_float64: set[tuple[str, str]] = set()

    @property
    def is_over(self) -> bool:
        """Whether no question is put any longer."""
        return self._deadline is not None and time.monotonic() > self._deadline

    def ask(self, message: Message) -> Tried | Broken | WorkerLostError:
        """Return the answer, or how the worker was lost; again where it was ended from outside, or in float64."""
        answer: Tried | Broken | WorkerLostError = Broken(message="", traceback="")
        for _ in range(_TRIES):
            answer = self._asked(_without_float64(message) if _about(message) in self._ended_by_float64 else message)
            if not isinstance(answer, WorkerLostError):
                break
            if answer.spot.step == IN_FLOAT64:
                self._ended_by_float64.add(_about(message))
            elif not answer.is_killed:
                break
        return answer

    def _asked(self, message: Message) -> Tried | Broken | WorkerLostError:
        if self.is_over:
            return _SPENT
        candidate = getattr(message, "candidate", "")
        if candidate != self._candidate:
            self.close()
        try:
            if self._worker is None:
                self._worker = self._start()
                self._candidate = candidate
                said = self._worker.ask(_only(self._hello, candidate), self._deadline)
                for info in said.candidates if isinstance(said, Ready) else ():
                    if info.name == candidate and not info.available:
                        self.close()
                        return Broken(message=f"candidate '{candidate}' is not available: {info.reason}", traceback="")
                if isinstance(said, Broken):
                    self.close()
                    return said
            self._worker.begin()
            answer = self._worker.ask(message, self._deadline)
        except WorkerLostError as error:
            self.close()
            return error
        except OutOfTimeError:
            self.close()
            return _SPENT
        if getattr(answer, "is_changed", False):
            self.close()  # What the next question is about must not see it.
        return answer  # type: ignore[return-value]

    def close(self) -> None:
        """End the worker; the next question starts another."""
        if self._worker is not None:
            self._worker.close()
            self._worker = None


def _about(message: Message) -> tuple[str, str]:
    """Return the candidate and the test that a question is about."""
    test = message.runs[-1].test if isinstance(message, Replay) else getattr(message, "test", None)
    return getattr(message, "candidate", ""), test.id if test is not None else ""


def _without_float64(message: Message) -> Message:
    """Return a question in which float64 is not asked."""
    if isinstance(message, Replay):
        runs = [msgspec.structs.replace(run, asks_float64=False) for run in message.runs]
        return msgspec.structs.replace(message, runs=runs)
    if isinstance(message, Confirm | TryProgram):
        return msgspec.structs.replace(message, asks_float64=False)
    return message


def _only(hello: Hello, candidate: str) -> Hello:
    """Return what a worker is told that is asked of one candidate: starting another's interpreter takes seconds."""
    wanted = [each for each in hello.candidates if each.name == candidate]
    return msgspec.structs.replace(hello, candidates=wanted) if wanted else hello
