"""The pool: tasks to workers, answers to events. A worker that is lost costs the case in flight; the run goes on."""

from __future__ import annotations

import selectors
import time
from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from ci_autotest.errors import ConfigError, UnavailableError
from ci_autotest.run.messages import Broken, CasesDone, Discover, Discovered, Ready, RunCases
from ci_autotest.run.process import WorkerLostError, WorkerProcess

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from ci_autotest.run.messages import FromWorker, Hello, Message, TestInfo, Tried

_POLL_S: Final = 0.2


class Task(NamedTuple):
    """Cases of one test for one worker."""

    test: TestInfo
    cases: tuple[int, ...]
    candidates: tuple[str, ...]


class Part(NamedTuple):
    """Say what came of some cases of a task."""

    task: Task
    done: CasesDone


class Lost(NamedTuple):
    """Say that a worker was lost in a case; ``candidate`` is ``None`` while the reference ran."""

    task: Task
    case: int
    candidate: str | None
    error: WorkerLostError


class Wrong(NamedTuple):
    """Say that a test cannot run: its file, its body or its declaration is wrong."""

    task: Task
    broken: Broken


Event: TypeAlias = Part | Lost | Wrong


class Pool:
    """Hold the workers of a run.

    Args:
        start: Starts a worker.
        hello: What each is told first.
        count: Workers.
    """

    def __init__(self, start: Callable[[], WorkerProcess], hello: Hello, count: int) -> None:
        """Start the workers; they import while the parent goes on."""
        self._start = start
        self._hello = hello
        self._idle: list[WorkerProcess] = []
        self._busy: dict[WorkerProcess, tuple[Task, set[int]]] = {}
        for _ in range(count):
            self._idle.append(self._new())
        self._ready: Ready | None = None

    def _new(self) -> WorkerProcess:
        worker = self._start()
        try:
            worker.send(self._hello)
        except WorkerLostError as error:
            raise _unavailable(error) from error
        return worker

    def ready(self) -> Ready:
        """Return what the first worker found.

        Raises:
            UnavailableError: It died before it could say so.
        """
        if self._ready is None:
            try:
                answer = _wait(self._idle[0])
            except WorkerLostError as error:
                raise _unavailable(error) from error
            if not isinstance(answer, Ready):
                told = answer.message if isinstance(answer, Broken) else "a worker answered out of turn"
                is_refused = isinstance(answer, Broken) and answer.is_refusal
                raise (ConfigError if is_refused else UnavailableError)(told)
            self._ready = answer
        return self._ready

    def discover(self, file: str) -> list[TestInfo] | Broken:
        """Return the tests of a file, or why it cannot be imported; a file that ends its process costs only itself."""
        self.ready()
        worker = self._idle[0]
        try:
            answer = worker.ask(Discover(file))
        except WorkerLostError as error:
            worker.close()
            self._idle[0] = self._new()
            _wait(self._idle[0])
            return Broken(message=f"importing it, the process {error.reason}", traceback=error.output)
        if isinstance(answer, Discovered):
            return answer.tests
        return answer if isinstance(answer, Broken) else Broken(message="no answer", traceback="")

    @property
    def torch(self) -> str:
        """Version of torch that the workers import; empty where none answered."""
        return self._ready.torch if self._ready is not None else ""

    def run(
        self,
        tasks: Iterable[Task],
        deadline: float | None,
        still_wanted: Callable[[Task], Task | None],
    ) -> Iterator[Event]:
        """Run tasks and yield what comes of them.

        Args:
            tasks: In the order in which they are begun.
            deadline: Monotonic seconds after which no task is begun; ``None``: never.
            still_wanted: Returns what is left of a task before it is begun, ``None`` for nothing.
        """
        waiting = deque(tasks)
        with selectors.DefaultSelector() as selector:
            while waiting or self._busy:
                if deadline is not None and time.monotonic() > deadline:
                    waiting.clear()
                yield from self._hand_out(waiting, selector, still_wanted)
                for key, _ in selector.select(_POLL_S):
                    yield from self._hear(key.data, waiting, selector)
                for worker in list(self._busy):
                    try:
                        worker.check()
                    except WorkerLostError as error:
                        yield from self._replace(worker, error, waiting, selector)

    def _hand_out(
        self,
        waiting: deque[Task],
        selector: selectors.BaseSelector,
        still_wanted: Callable[[Task], Task | None],
    ) -> Iterator[Event]:
        while waiting and self._idle:
            task = still_wanted(waiting.popleft())
            if task is None:
                continue
            worker = self._idle.pop(0)
            self._busy[worker] = (task, set(task.cases))
            selector.register(worker.fd, selectors.EVENT_READ, worker)
            worker.place.reset()
            try:
                worker.send(RunCases(test=task.test, cases=list(task.cases), candidates=list(task.candidates)))
            except WorkerLostError as error:
                yield from self._replace(worker, error, waiting, selector)

    def _hear(self, worker: WorkerProcess, waiting: deque[Task], selector: selectors.BaseSelector) -> Iterator[Event]:
        try:
            message = worker.receive()
            while message is not None:
                yield from self._take(worker, message, selector)
                message = worker.buffered() if worker in self._busy else None
        except WorkerLostError as error:
            yield from self._replace(worker, error, waiting, selector)

    def _take(self, worker: WorkerProcess, message: FromWorker, selector: selectors.BaseSelector) -> Iterator[Event]:
        task, left = self._busy[worker]
        match message:
            case CasesDone():
                left.difference_update(message.done)
                yield Part(task, message)
                finished = message.last
            case Broken():
                yield Wrong(task, message)
                finished = True
            case _:
                finished = False  # A worker that was started beside the first answers `Hello` now.
        if finished:
            selector.unregister(worker.fd)
            del self._busy[worker]
            self._idle.append(worker)

    def _replace(
        self,
        worker: WorkerProcess,
        error: WorkerLostError,
        waiting: deque[Task],
        selector: selectors.BaseSelector,
    ) -> Iterator[Event]:
        task, left = self._busy.pop(worker)
        selector.unregister(worker.fd)
        worker.close()
        self._idle.append(self._new())
        case = error.spot.case if error.spot.case in left else -1
        if case < 0:
            yield Wrong(
                task,
                Broken(message=f"its worker {error.reason} before a case began", traceback=error.output),
            )
            return
        position = error.spot.candidate
        candidate = task.candidates[position] if 0 <= position < len(task.candidates) else None
        rest = tuple(sorted(left - {case}))
        others = tuple(name for name in task.candidates if name != candidate)
        if candidate is not None and others:
            waiting.appendleft(Task(task.test, (case,), others))
        if rest:
            waiting.appendleft(task._replace(cases=rest))
        yield Lost(task, case, candidate, error)

    def close(self) -> None:
        """End every worker."""
        for worker in (*self._idle, *self._busy):
            worker.close()
        self._idle, self._busy = [], {}


class Fresh:
    """A worker for one question at a time, started anew after each loss: what confirms, records and shrinks.

    Args:
        start: Starts a worker.
        hello: What it is told first.
    """

    def __init__(self, start: Callable[[], WorkerProcess], hello: Hello) -> None:
        """Start nothing yet."""
        self._start = start
        self._hello = hello
        self._worker: WorkerProcess | None = None

    def ask(self, message: Message) -> Tried | Broken | WorkerLostError:
        """Return the answer, or how the worker was lost."""
        try:
            if self._worker is None:
                self._worker = self._start()
                said = self._worker.ask(self._hello)
                candidate = getattr(message, "candidate", "")
                for info in said.candidates if isinstance(said, Ready) else ():
                    if info.name == candidate and not info.available:
                        self.close()
                        return Broken(message=f"candidate '{candidate}' is not available: {info.reason}", traceback="")
                if isinstance(said, Broken):
                    self.close()
                    return said
            answer = self._worker.ask(message)
        except WorkerLostError as error:
            self.close()
            return error
        return answer  # type: ignore[return-value]

    def close(self) -> None:
        """End the worker; the next question starts another."""
        if self._worker is not None:
            self._worker.close()
            self._worker = None


def _wait(worker: WorkerProcess) -> FromWorker:
    with selectors.DefaultSelector() as selector:
        selector.register(worker.fd, selectors.EVENT_READ)
        while True:
            answer = worker.receive() if selector.select(_POLL_S) else None
            if answer is not None:
                return answer
            worker.check()


def _unavailable(error: WorkerLostError) -> UnavailableError:
    last = error.output.strip().splitlines()[-1:] or ["it printed nothing"]
    message = f"a worker {error.reason} while it was set up: {last[0]}. Install torch into this environment."
    return UnavailableError(message)
