"""The dispatcher: it gives each message to the part of the worker that answers it.

Frameworks are imported here and below, not in ``main``.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
import torch

from ci_autotest.backends.operator_support import standing
from ci_autotest.extensions import REQUESTS, RUNNERS, part
from ci_autotest.run.messages import (
    CasesDone,
    Confirm,
    Discover,
    Discovered,
    Examine,
    Examined,
    Hello,
    Measure,
    Measured,
    Ready,
    Record,
    Replay,
    Replayed,
    RunCases,
    Tried,
    TryMutants,
    TryProgram,
)
from ci_autotest.run.worker.case_runner import CaseRunner
from ci_autotest.run.worker.context import REFERENCE, WorkerContext
from ci_autotest.run.worker.finding_requests import FindingRequests
from ci_autotest.run.worker.process_state import ProcessState

if TYPE_CHECKING:
    from collections.abc import Callable

    from ci_autotest.run.messages import Broken, Change, FromWorker, TestInfo, ToWorker
    from ci_autotest.run.progress_beacon import ProgressBeacon


class TestRunner(Protocol):
    """What runs tests that are no programs; it is made of a ``WorkerContext`` and a ``ProgressBeacon``."""

    def run(self, test: TestInfo) -> CasesDone | Broken:
        """Run a test."""
        ...

    def confirm(self, test: TestInfo) -> Tried | Broken:
        """Run a test again, in another process than before."""
        ...


class Dispatcher:
    """Answer the parent's messages.

    Args:
        beacon: Where the worker reports the case in flight.
        send: Sends a part of an answer before the answer is complete.

        is_fresh: Whether this is a process of its own that has run nothing.

    Attributes:
        worker_context: Everything that ``Hello`` has set up.
    """

    def __init__(self, beacon: ProgressBeacon, send: Callable[[CasesDone], None], *, is_fresh: bool = False) -> None:
        self._is_fresh = is_fresh
        self._beacon = beacon
        self._send = send
        self.worker_context: WorkerContext
        self._state: ProcessState | None = None
        self._files: set[str] = set()
        self._case_runner: CaseRunner
        self._finding_requests: FindingRequests
        self._parts: dict[str, Any] = {}

    def answer(self, message: ToWorker) -> FromWorker:
        """Return the answer to a message; some also say whether the request has changed this process."""
        self._import(message)
        answer = self._answer(message)
        if isinstance(answer, Tried | Measured):
            # Recurring changes do not count: every process that confirms a suspect of this candidate has them.
            return msgspec.structs.replace(
                answer, is_changed=not all(change.is_recurring for change in self._changes())
            )
        return answer

    def is_changed(self) -> bool:
        """Whether this process has changed since it was last checked."""
        return bool(self._changes())

    def _changes(self) -> list[Change]:
        return self._state.changes() if self._state is not None else []

    def _import(self, message: ToWorker) -> None:
        """Import the file of a message's test first, so that its changes to the process are not blamed on a kernel."""
        test = getattr(message, "test", None)
        # A loader's file runs in a process of its own.
        if test is not None and not test.candidate and self._state is not None and test.file not in self._files:
            self._beacon.enter(REFERENCE, REFERENCE)
            self.worker_context.test(test)
            self._files.add(test.file)
            self._state.renew()

    def _answer(self, message: ToWorker) -> FromWorker:
        match message:
            case Hello():
                return self._set_up(message)
            case Discover():
                return self._discover(message)
            case RunCases(test=test):
                return self._runner(test).run(test) if test.candidate else self._case_runner.run(message)
            case Confirm() | Record() | TryProgram():
                return self._answer_about_finding(message)
            case Replay(runs=runs):
                return self._replay(runs)
            case Measure() | TryMutants():
                answer: FromWorker = self._part(REQUESTS[type(message).__name__]).answer(message)
                return answer
            case Examine(candidate=name, operators=operators):
                return Examined(**standing(self.worker_context.backends[name], operators)._asdict())

    def _runner(self, test: TestInfo) -> TestRunner:
        """Return what runs a test that is no program."""
        runner: TestRunner = self._part(RUNNERS[test.candidate])
        return runner

    def _part(self, path: str) -> Any:
        """Return an optional part, which is made of this worker's tests when it is first asked for."""
        if path not in self._parts:
            self._parts[path] = part(path)(self.worker_context, self._beacon)
        return self._parts[path]

    def _answer_about_finding(self, message: Confirm | Record | TryProgram) -> FromWorker:
        match message:
            case Confirm(test=test) if test.candidate:
                return self._runner(test).confirm(test)
            case Confirm():
                return self._finding_requests.confirm(message)
            case Record():
                return self._finding_requests.record(message)
            case TryProgram():
                return self._finding_requests.try_program(message)

    def _discover(self, message: Discover) -> Discovered:
        assert self._state is not None  # noqa: S101 - the parent says hello first
        self._beacon.enter(REFERENCE, REFERENCE)
        # What the import of a file changes is not the doing of a kernel.
        context = self.worker_context
        library, file = context.library, message.file
        enter = partial(self._beacon.enter, REFERENCE, REFERENCE)
        tests = list(map(context.with_grid, library.tests(file, message.wanted, message.cases, enter)))
        found = Discovered(tests=tests, lost=library.lost(file), foreign=library.foreign(file))
        self._state.renew()
        return found

    def _replay(self, runs: list[RunCases]) -> Replayed:
        """Run cases again, in order, and return the failures of all of them at the end."""
        parts: list[CasesDone] = []
        assert self._state is not None  # noqa: S101 - the parent says hello first
        self._beacon.journal.clear()
        # A new one, because which cases are probed and repeated depends on what a runner has seen.
        case_runner = CaseRunner(self.worker_context, self._beacon, self._state, parts.append)
        failures = []
        for run in runs:
            parts.append(case_runner.run(run))
            failures += [(run.test.id, failure) for part in parts for failure in part.failures]
            parts.clear()
        return Replayed(failures=failures, calls=self._beacon.calls())

    def _set_up(self, hello: Hello) -> Ready:
        worker_context = self.worker_context = WorkerContext(hello, self._beacon, is_fresh=self._is_fresh)
        self._is_fresh = False
        self._state = ProcessState()
        self._case_runner = CaseRunner(worker_context, self._beacon, self._state, self._send)
        self._finding_requests = FindingRequests(worker_context, self._beacon)
        self._parts.clear()
        return Ready(torch=str(torch.__version__), candidates=worker_context.infos)
