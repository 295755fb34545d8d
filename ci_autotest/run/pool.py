"""The pool of workers: it sends tasks and receives events. Losing a worker loses only the case in flight."""

from __future__ import annotations

import selectors
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Final, TypeVar

from ci_autotest.errors import ConfigError, UnavailableError
from ci_autotest.run.messages import Broken, Discover, Discovered, Message, Ready
from ci_autotest.run.recurring_changes import RecurringChanges
from ci_autotest.run.slot import Slot
from ci_autotest.run.worker_loss import WorkerLostError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from ci_autotest.run.events import Event, Task
    from ci_autotest.run.executor import Executor
    from ci_autotest.run.messages import FromWorker, Hello

_Request = TypeVar("_Request", bound=Message)
_POLL_S: Final = 0.05
#: Times that a worker is started if it is killed from outside before it is ready.
_STARTS: Final = 4
#: First cases of a test, as many as a test has by default, that all run in one process.
TOGETHER: Final = 20


class Pool:
    """The workers of a run.

    Args:
        executor: Starts them, one for each slot.
        hello: The first message to each.
    """

    def __init__(self, executor: Executor, hello: Hello) -> None:
        """Start the workers; they import their frameworks while the parent goes on."""
        self._slots: list[Slot] = []
        self._owners: dict[str, int] = {}
        self._kept: list[deque[Task]] = []
        self._ready: Ready | None = None
        recurring_changes = RecurringChanges()
        try:
            for number in range(executor.slots):
                self._slots.append(Slot(executor, number, hello, recurring_changes))
        # Ctrl-C may come here too, and must not leave the workers that have started.
        except BaseException:
            self.close()
            raise

    def ready(self) -> Ready:
        """Return the first worker's answer to ``Hello``.

        Raises:
            ConfigError: The worker refuses the configuration.
            UnavailableError: The worker cannot be set up.
        """
        if self._ready is None:
            slot = self._slots[0]
            answer = self._first_answer(slot)
            if not isinstance(answer, Ready):
                message = answer.message if isinstance(answer, Broken) else "a worker answered out of turn"
                is_refused = isinstance(answer, Broken) and answer.is_refusal
                raise (ConfigError if is_refused else UnavailableError)(message)
            self._ready = slot.ready = answer
        return self._ready

    def discover(self, file: str, wanted: Sequence[str] = (), cases: int | None = None) -> Discovered | Broken:
        """Return the tests of a file, or why it cannot be imported; a file that ends its process loses no other."""
        self.ready()
        slot = self._slots[0]
        for left in reversed(range(_STARTS)):
            try:
                slot.worker.begin()
                answer = slot.worker.ask(Discover(file, [*wanted], cases))
            except WorkerLostError as error:
                self._follow(slot, error)
                if not left or not error.is_killed:
                    return Broken(message=f"while importing it, the process {error.reason}", traceback=error.output)
            else:
                return answer if isinstance(answer, Discovered | Broken) else Broken(message="no answer", traceback="")
        raise AssertionError  # the last try returned

    def ask(self, message: Message) -> FromWorker | WorkerLostError:
        """Return the first worker's answer to a request outside the run, or how it was lost; a lost one is replaced."""
        self.ready()
        slot = self._slots[0]
        try:
            slot.worker.begin()
            return slot.worker.ask(message)
        except WorkerLostError as error:
            self._follow(slot, error)
            return error

    def ask_each(self, waiting: deque[_Request]) -> Iterator[tuple[_Request, FromWorker | WorkerLostError]]:
        """Send requests outside the run to all workers; yield each with its answer, or with how its worker was lost.

        Args:
            waiting: The requests, in order. Whoever reads the answers may append others.
        """
        self.ready()
        asked: dict[int, _Request] = {}
        while waiting or asked:
            for number, slot in enumerate(self._slots):
                if waiting and number not in asked:
                    asked[number] = waiting.popleft()
                    with suppress(WorkerLostError):  # `receive` or `check` will notice the loss.
                        slot.worker.begin()
                        slot.worker.send(asked[number])
            received = _received([self._slots[number] for number in asked], _POLL_S)
            for number in list(asked):
                slot = self._slots[number]
                try:
                    answer: FromWorker | WorkerLostError | None = slot.worker.receive() if slot in received else None
                    if answer is None:
                        slot.worker.check()
                except WorkerLostError as error:
                    slot.renew()
                    answer = error
                if isinstance(answer, Ready):
                    slot.ready = answer
                elif answer is not None:
                    yield asked.pop(number), answer

    @property
    def torch(self) -> str:
        """Version of torch that the workers import; empty before one has answered."""
        return self._ready.torch if self._ready is not None else ""

    def run(
        self,
        tasks: Iterable[Task],
        still_wanted: Callable[[Task], Task | None],
        is_over: Callable[[], bool] = lambda: False,
    ) -> Iterator[Event]:
        """Run tasks and yield their events.

        Args:
            tasks: In the order in which they begin; taken one by one as workers become free.
            still_wanted: Returns what is left of a task before it begins; ``None`` skips it.
            is_over: Whether the time is up. Then the running workers are ended and their unanswered cases are not run.
                An unfinished inquiry and a case that has been running for long are still reported.
        """
        waiting = iter(tasks)
        self._owners, self._kept = {}, [deque() for _ in self._slots]
        while not is_over():
            self._hand_out(waiting, still_wanted)
            busy = [slot for slot in self._slots if slot.is_busy]
            if not busy:
                return
            for slot in self._slots:
                if not slot.is_busy:  # No task is left for it.
                    slot.rest()
            for slot in _received([slot for slot in busy if slot.is_listening], _POLL_S):
                yield from slot.hear()
            for slot in busy:
                if slot.is_busy:
                    yield from slot.check()
                    yield from slot.waiting()
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
        """Return the next task for a slot, or ``None``.

        The first cases of a test run in one process. A kernel that counts its calls, or keeps something from one call
        for the next, is then called often enough there to show it. A slot that has begun a test gets its other tasks.
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
        """Replace a lost worker, and wait until the new one is ready."""
        self._renew(slot, lost)
        ready = self._first_answer(slot)
        slot.ready = ready if isinstance(ready, Ready) else None

    def _renew(self, slot: Slot, lost: WorkerLostError) -> None:
        """Replace a lost worker. If its node was lost, the new one may need the place of the other workers."""
        for other in self._slots:
            if lost.is_killed and other is not slot:
                other.rest()
        slot.renew()

    def _first_answer(self, slot: Slot) -> object:
        """Return a worker's first answer; start it again if it is killed from outside.

        Raises:
            UnavailableError: It died by itself, or was killed several times.
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
    """Return the slots whose workers have written something, or have died, within ``timeout_s`` seconds."""
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
