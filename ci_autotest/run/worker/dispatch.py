"""Dispatch a message to the part of the worker that answers it. Frameworks are imported here and below."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import torch

from ci_autotest.backends.operator_support import standing
from ci_autotest.run.messages import (
    CasesDone,
    Confirm,
    Discover,
    Discovered,
    Examine,
    Examined,
    Hello,
    Ready,
    Record,
    Replay,
    Replayed,
    RunCases,
    Tried,
    TryProgram,
)
from ci_autotest.run.worker.case_runner import CaseRunner
from ci_autotest.run.worker.context import REFERENCE, WorkerContext
from ci_autotest.run.worker.finding_requests import FindingRequests
from ci_autotest.run.worker.process_state import ProcessState

if TYPE_CHECKING:
    from collections.abc import Callable

    from ci_autotest.run.messages import Change, FromWorker, ToWorker
    from ci_autotest.run.progress_beacon import ProgressBeacon


class Dispatcher:
    """Answer the parent's messages.

    Args:
        place: Where the case in flight is told.
        send: Sends a part of an answer before the answer is complete.

    Attributes:
        equipment: What ``Hello`` set up.
    """

    def __init__(self, place: ProgressBeacon, send: Callable[[CasesDone], None]) -> None:
        self._place = place
        self._send = send
        self.worker_context: WorkerContext
        self._state: ProcessState | None = None
        self._files: set[str] = set()
        self._case_runner: CaseRunner
        self._questions: FindingRequests

    def answer(self, message: ToWorker) -> FromWorker:
        """Return the answer to a message; one to a question says whether this process is what it was before."""
        self._import(message)
        answer = self._answer(message)
        if isinstance(answer, Tried):
            # Of what the questions about one suspect are put to, a candidate's habits are part.
            return msgspec.structs.replace(
                answer, is_changed=not all(change.is_recurring for change in self._changes())
            )
        return answer

    def is_changed(self) -> bool:
        """Whether this process is no longer what it was when it was last looked at."""
        return bool(self._changes())

    def _changes(self) -> list[Change]:
        return self._state.changes() if self._state is not None else []

    def _import(self, message: ToWorker) -> None:
        """Import the file of a message's test: what that changes is no kernel's doing."""
        test = getattr(message, "test", None)
        if test is not None and self._state is not None and test.file not in self._files:
            self._place.enter(REFERENCE, REFERENCE)
            self.worker_context.test(test)
            self._files.add(test.file)
            self._state.renew()

    def _answer(self, message: ToWorker) -> FromWorker:
        match message:
            case Hello():
                return self._set_up(message)
            case Discover(file):
                return self._discovered(file)
            case RunCases():
                return self._case_runner.run(message)
            case Confirm():
                return self._questions.confirm(message)
            case Record():
                return self._questions.record(message)
            case Replay(runs=runs):
                return self._replayed(runs)
            case TryProgram():
                return self._questions.tried(message)
            case Examine(candidate=name, operators=operators):
                return Examined(**standing(self.worker_context.backends[name], operators)._asdict())

    def _discovered(self, file: str) -> Discovered:
        assert self._state is not None  # noqa: S101 - the parent says hello first
        self._place.enter(REFERENCE, REFERENCE)
        found = Discovered(self.worker_context.library.tests(file))
        self._state.renew()
        return found

    def _replayed(self, runs: list[RunCases]) -> Replayed:
        """Run cases again, in order; nothing is sent before all have run."""
        parts: list[CasesDone] = []
        assert self._state is not None  # noqa: S101 - the parent says hello first
        case_runner = CaseRunner(self.worker_context, self._place, self._state, parts.append)
        failures = []
        for run in runs:
            parts.append(case_runner.run(run))
            failures += [(run.test.id, failure) for part in parts for failure in part.failures]
            parts.clear()
        return Replayed(failures=failures)

    def _set_up(self, hello: Hello) -> Ready:
        worker_context = self.worker_context = WorkerContext(hello, self._place)
        self._state = ProcessState()
        self._case_runner = CaseRunner(worker_context, self._place, self._state, self._send)
        self._questions = FindingRequests(worker_context, self._place)
        return Ready(torch=str(torch.__version__), candidates=worker_context.infos)
