"""The pool of workers: sends tasks, receives events. A lost worker costs the case in flight and nothing else."""

from __future__ import annotations

import selectors
from collections import deque
from typing import TYPE_CHECKING, Final

from ci_autotest.errors import ConfigError, UnavailableError
from ci_autotest.run.messages import Broken, Discover, Discovered, Ready
from ci_autotest.run.recurring_changes import RecurringChanges
from ci_autotest.run.slot import Slot
from ci_autotest.run.worker_loss import WorkerLostError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from ci_autotest.run.events import Event, Task
    from ci_autotest.run.executor import Executor
    from ci_autotest.run.messages import FromWorker, Hello, Message, TestInfo

_POLL_S: Final = 0.05
#: Times that a worker is started that is ended from outside before it is ready.
_STARTS: Final = 4
#: Cases of a test that run in one process: the first ones, as many as a test has by default.
TOGETHER: Final = 20


class Pool:
    """Hold the workers of a run.

    Args:
        executor: Starts them, one a slot.
        hello: What each is told first.
    """

    def __init__(self, executor: Executor, hello: Hello) -> None:
        """Start the workers; they import while the parent goes on."""
        self._slots: list[Slot] = []
        self._owners: dict[str, int] = {}
        self._kept: list[deque[Task]] = []
        self._ready: Ready | None = None
        recurring_changes = RecurringChanges()
        try:
            for number in range(executor.slots):
                self._slots.append(Slot(executor, number, hello, recurring_changes))
        except BaseException:
            self.close()
            raise

    def ready(self) -> Ready:
        """Return what the first worker found.

        Raises:
            ConfigError: It refuses what it was told.
            UnavailableError: It died before it could say so.
        """
        if self._ready is None:
            slot = self._slots[0]
            answer = self._first_word(slot)
            if not isinstance(answer, Ready):
                told = answer.message if isinstance(answer, Broken) else "a worker answered out of turn"
                is_refused = isinstance(answer, Broken) and answer.is_refusal
                raise (ConfigError if is_refused else UnavailableError)(told)
            self._ready = slot.ready = answer
        return self._ready

    def discover(self, file: str) -> list[TestInfo] | Broken:
        """Return the tests of a file, or why it cannot be imported; a file that ends its process costs only itself."""
        self.ready()
        slot = self._slots[0]
        for left in reversed(range(_STARTS)):
            try:
                slot.worker.begin()
                answer = slot.worker.ask(Discover(file))
            except WorkerLostError as error:
                self._follow(slot, error)
                if not left or not error.is_killed:
                    return Broken(message=f"importing it, the process {error.reason}", traceback=error.output)
            else:
                if isinstance(answer, Discovered):
                    return answer.tests
                return answer if isinstance(answer, Broken) else Broken(message="no answer", traceback="")
        raise AssertionError  # the last try returned

    def ask(self, message: Message) -> FromWorker | WorkerLostError:
        """Return the answer of the first worker to a question beside the run, or how it was lost; another follows."""
        self.ready()
        slot = self._slots[0]
        try:
            slot.worker.begin()
            return slot.worker.ask(message)
        except WorkerLostError as error:
            self._follow(slot, error)
            return error

    @property
    def torch(self) -> str:
        """Version of torch that the workers import; empty where none answered."""
        return self._ready.torch if self._ready is not None else ""

    def run(
        self,
        tasks: Iterable[Task],
        still_wanted: Callable[[Task], Task | None],
        is_over: Callable[[], bool] = lambda: False,
    ) -> Iterator[Event]:
        """Run tasks and yield what comes of them.

        Args:
            tasks: In the order in which they are begun; taken one by one, as workers become free.
            still_wanted: Returns what is left of a task before it is begun, ``None`` for nothing.
            is_over: Whether the time is up: what runs then is ended, and what it has not answered is not run; a loss
                that is not settled by then, and a case that runs for long, are events too.
        """
        waiting = iter(tasks)
        self._owners, self._kept = {}, [deque() for _ in self._slots]
        while not is_over():
            self._hand_out(waiting, still_wanted)
            busy = [slot for slot in self._slots if slot.is_busy]
            if not busy:
                return
            for slot in self._slots:
                if not slot.is_busy:  # There is no task left for it.
                    slot.rest()
            for slot in _received(busy, _POLL_S):
                yield from slot.hear()
            for slot in busy:
                if slot.is_busy:
                    yield from slot.check()
        for slot in self._slots:
            yield from slot.end()

    def _hand_out(self, waiting: Iterator[Task], still_wanted: Callable[[Task], Task | None]) -> None:
        for number, slot in enumerate(self._slots):
            while not slot.is_busy:
                task = self._next(number, waiting)
                if task is None:
                    break
                task = still_wanted(task)
                if task is not None:
                    slot.begin(task)

    def _next(self, number: int, waiting: Iterator[Task]) -> Task | None:
        """Return the next task for a slot, ``None`` where there is none for it.

        The first cases of a test run in one process, so that a kernel that counts its calls, or keeps something of one
        for the next, is called often enough there. Tasks of tests that another slot has begun are kept for that one.
        """
        kept = self._kept[number]
        if kept:
            return kept.popleft()
        for task in waiting:
            owner = self._owners.setdefault(task.test.id, number) if task.cases[0] < TOGETHER else number
            if owner == number:
                return task
            self._kept[owner].append(task)
        return None

    def _follow(self, slot: Slot, lost: WorkerLostError) -> None:
        """Start the worker that follows a lost one, and wait until it is ready."""
        self._renew(slot, lost)
        ready = self._first_word(slot)
        slot.ready = ready if isinstance(ready, Ready) else None

    def _renew(self, slot: Slot, lost: WorkerLostError) -> None:
        """Start the worker that follows a lost one; where a node was lost, it may need the place of the others."""
        for other in self._slots:
            if lost.is_killed and other is not slot:
                other.rest()
        slot.renew()

    def _first_word(self, slot: Slot) -> object:
        """Return what a worker says first; one that is ended from outside is started again.

        Raises:
            UnavailableError: It died by itself, or again and again.
        """
        for left in reversed(range(_STARTS)):
            try:
                return _wait(slot)
            except WorkerLostError as error:
                if not left or not error.is_killed:
                    raise slot.unavailable(error) from error
                self._renew(slot, error)
        raise AssertionError  # the last try returned or raised

    def close(self) -> None:
        """End every worker."""
        for slot in self._slots:
            slot.worker.close()
        self._slots = []


def _received(slots: list[Slot], timeout_s: float) -> list[Slot]:
    """Return the slots whose workers have written something, or are gone, within some seconds."""
    with selectors.PollSelector() as selector:
        for slot in slots:
            selector.register(slot.worker.fd, selectors.EVENT_READ, slot)
        return [key.data for key, _ in selector.select(timeout_s)]


def _wait(slot: Slot) -> object:
    while True:
        answer = slot.worker.receive() if _received([slot], _POLL_S) else None
        if answer is not None:
            return answer
        slot.worker.check()
