"""A slot of the pool: its current worker, the messages that worker has run, and the inquiry after a loss."""

from __future__ import annotations

import time
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import msgspec

from ci_autotest.errors import UnavailableError
from ci_autotest.run.crash_attribution import Job, Received, WorkerLoss, ends, inquire, settle, unsettled
from ci_autotest.run.events import Changed, Cut, LostCase, TaskPart, Waiting, Wrong
from ci_autotest.run.messages import Broken, CasesDone, Ready, RunCases
from ci_autotest.run.worker_loss import WorkerLostError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ci_autotest.run.crash_attribution import Inquiry
    from ci_autotest.run.events import Event, Task
    from ci_autotest.run.executor import Executor, Worker
    from ci_autotest.run.messages import FromWorker, Hello
    from ci_autotest.run.progress_beacon import Spot
    from ci_autotest.run.recurring_changes import RecurringChanges

#: At most this many of the latest cases run again before the case that ended their process.
_HISTORY_CASES: Final = 200
#: Times in a row that a worker may be lost before it is ready.
_STILLBORN_AT_MOST: Final = 5
#: Seconds without progress after which the end of the run reports the current case: a case takes milliseconds.
_LONG_S: Final = 1.0
#: Seconds without progress after which the case that runs is shown.
_WAITING_S: Final = 5.0


class Slot:
    """One worker after another.

    Args:
        executor: Starts the workers.
        number: Number of the slot.
        hello: The first message to each worker.
        recurring_changes: What candidates change in every process; all slots share it.
    """

    def __init__(self, executor: Executor, number: int, hello: Hello, recurring_changes: RecurringChanges) -> None:
        """Start the first worker; it imports its frameworks while the parent goes on."""
        self._executor = executor
        self._number = number
        self._hello = hello
        self._recurring_changes = recurring_changes
        self._history: deque[RunCases] = deque()
        self._task: Task | None = None
        self._left: set[int] = set()
        self._inquiry: Inquiry | None = None
        self._loss: WorkerLoss | None = None
        self._last_spot: Spot | None = None
        self._moved_at = time.monotonic()
        self._job: deque[RunCases] = deque()
        self._before: tuple[RunCases, ...] = ()
        self._rest: tuple[int, ...] = ()
        self._is_changed = False
        self._stillborn = 0
        self._is_at_rest = False
        self._rests_until = 0.0
        self.ready: Ready | None = None
        self.worker = self._start()

    @property
    def is_busy(self) -> bool:
        """Whether it is running a task."""
        return self._task is not None

    @property
    def is_listening(self) -> bool:
        """Whether it is running a task on a worker, and not waiting before it starts the next one."""
        return self.is_busy and not self._is_at_rest

    def _start(self) -> Worker:
        self.ready, self._is_at_rest, self._is_changed = None, False, False
        self._history.clear()
        worker = self._executor.start(self._number)
        with suppress(WorkerLostError):  # `receive` or `check` will notice the loss.
            worker.send(self._hello)
        return worker

    def renew(self) -> None:
        """End the worker and start another."""
        self.worker.close()
        self.worker = self._start()

    def rest(self) -> None:
        """End the worker until the next task; on a cluster another worker may be waiting for its place."""
        if not self._is_at_rest:
            self._is_at_rest, self._is_changed, self.ready = True, False, None
            self._history.clear()
            self.worker.close()

    def stop(self) -> None:
        """Drop the task: its unanswered cases are not run."""
        self._task = self._inquiry = self._loss = None
        self._job.clear()
        self._rest = ()

    def end(self) -> Iterator[Event]:
        """Drop the task because the run ends; yield what is known about a loss and about a case that runs for long."""
        if self._loss is not None:
            yield unsettled(self._loss)
        for task, position, silent_s in self.waiting(_LONG_S):
            yield Cut(task, f"{position} had been running for {silent_s:.0f} s when the run ended")
        self.stop()

    def waiting(self, least_s: float = _WAITING_S) -> Iterator[Waiting]:
        """Yield the case that runs if its worker has made no progress for ``least_s`` seconds."""
        silent_s = time.monotonic() - self._moved_at
        if self._task is not None and self.ready is not None and silent_s >= least_s:
            yield Waiting(self._task, self._position(), silent_s)

    def _position(self) -> str:
        """Return the worker's position as text."""
        message, spot = self._history[-1], self._spot()
        if spot is None or spot.case < 0:
            return f"a case of {message.test.id}"
        names = message.candidates
        name = names[spot.candidate] if 0 <= spot.candidate < len(names) else "the reference"
        return f"case {spot.case} of {message.test.id} on {name}"

    def _spot(self) -> Spot | None:
        """Return the worker's position; ``None`` if it is on another machine, or has ended."""
        beacon = None if self._is_at_rest else getattr(self.worker, "beacon", None)
        return beacon.read() if beacon is not None else None

    def begin(self, task: Task, *, ends_if_changed: bool = True) -> None:
        """Give the worker a task; a worker whose process was changed is replaced first."""
        if self._is_changed:
            self.renew()
        self._task, self._left = task, set(task.cases)
        if self._is_at_rest:
            self.worker = self._start()
        self._send(
            RunCases(
                test=task.test, cases=list(task.cases), candidates=list(task.candidates),
                asks_refused=task.asks_refused, ends_if_changed=ends_if_changed,
            )
        )  # fmt: skip

    def _send(self, message: RunCases) -> None:
        self._history.append(message)
        while len(self._history) > 1 and sum(len(earlier.cases) for earlier in self._history) > _HISTORY_CASES:
            self._history.popleft()
        self._moved_at = time.monotonic()
        with suppress(WorkerLostError):
            self.worker.begin()
            self.worker.send(message)

    def hear(self) -> Iterator[Event]:
        """Yield the events of the messages that have arrived; call when the worker's ``fd`` is ready."""
        try:
            message = self.worker.receive()
            while message is not None:
                yield from self._take(message)
                message = self.worker.buffered() if self.is_listening else None
        except WorkerLostError as error:
            yield from self._lost(error)

    def check(self) -> Iterator[Event]:
        """End the worker if it made no progress for too long or exceeds a limit, and yield the events of its loss.

        Call this also while the slot waits before its next worker, which starts here.
        """
        if self._is_at_rest:
            if time.monotonic() >= self._rests_until:
                self._begin_job()
            return
        try:
            self.worker.check()
        except WorkerLostError as error:
            yield from self._lost(error)
        spot = self._spot()
        if spot is not None and spot != self._last_spot:
            self._last_spot, self._moved_at = spot, time.monotonic()

    def _take(self, message: FromWorker) -> Iterator[Event]:
        task = self._task
        self._moved_at = time.monotonic()
        if isinstance(message, Ready) and self.ready is None:
            self.ready, self._stillborn = message, 0
        elif self.ready is None:
            raise UnavailableError(message.message if isinstance(message, Broken) else "a worker answered out of turn")
        elif task is None or not isinstance(message, CasesDone | Broken):
            yield from self._lost(self.worker.fail("sent an answer to no request"))
        elif self._inquiry is not None:
            yield from self._answered(message)
        elif isinstance(message, Broken):
            yield from self._wrong(task, message)
        elif not self._left.issuperset(message.done):  # User code can write to the pipe, too.
            yield from self._lost(self.worker.fail("sent results of cases that it was not given"))
        else:
            yield from self._part(task, message)

    def _part(self, task: Task, message: CasesDone) -> Iterator[Event]:
        self._left.difference_update(message.done)
        if message.done:
            yield TaskPart(task, message, tuple(self._history) if message.failures else ())
        yield from self._count_changes(task, message)
        if message.left and self._history[-1].ends_if_changed:
            yield from self._changed(task, message)
        elif self._is_changed and self._left and message.done:
            # The worker went on after a recurring change, and then a lasting one came.
            self.begin(task._replace(cases=tuple(sorted(self._left))))
        elif message.last:
            self.stop()

    def _count_changes(self, task: Task, message: CasesDone) -> Iterator[Event]:
        """Report the changes in any part of an answer: the worker checks for each of them only once."""
        if message.left:
            self._is_changed |= self._recurring_changes.is_spoiled(message.left)
            yield Changed(task, tuple(message.left))

    def _wrong(self, task: Task, message: Broken) -> Iterator[Event]:
        """Report a wrong test, but only from a process that ran nothing else.

        Otherwise what other tests left behind may be at fault, so the task starts again in a fresh process.
        """
        if len(self._history) > 1:
            self.renew()
            self.begin(task._replace(cases=tuple(sorted(self._left))))
            return
        self._is_changed = message.is_changed
        yield Wrong(task, message)
        self.stop()

    def _changed(self, task: Task, message: CasesDone) -> Iterator[Event]:
        """Run again, each alone, the cases that a changed process did not align; then the rest in another process.

        If the change is one that the candidate makes in every process, the rest runs in this one.
        """
        if not self._is_changed and self._left:
            self.begin(task._replace(cases=tuple(sorted(self._left))), ends_if_changed=False)
            return
        self._rest = tuple(sorted(self._left.difference(message.again)))
        self._inquiry = settle(task, message.again)
        yield from self._advance(None)

    def _answered(self, message: CasesDone | Broken) -> Iterator[Event]:
        if isinstance(message, Broken):
            self._is_changed |= message.is_changed
        elif self._task is not None:
            yield from self._count_changes(self._task, message)
        if isinstance(message, CasesDone) and not message.last:
            return
        self._job.popleft()
        if self._job and isinstance(message, CasesDone):
            self._send(self._job[0])
        else:
            yield from self._advance(Received(message, self._before))

    def _lost(self, error: WorkerLostError) -> Iterator[Event]:
        before = tuple(self._history)
        self._stillborn = self._stillborn + 1 if self.ready is None else 0
        if self._stillborn > _STILLBORN_AT_MOST:
            raise self.unavailable(error)
        self.rest()  # The next job or task starts another one.
        if self._task is None:
            return
        if self._inquiry is not None:
            yield from self._advance(Received(error, self._before))
            return
        self._loss = WorkerLoss(self._task, tuple(sorted(self._left)), error, before)
        self._inquiry = inquire(self._loss)
        yield from self._advance(None)

    def _advance(self, received: Received | None) -> Iterator[Event]:
        """Give the inquiry the result of its job, yield its events, and begin its next job."""
        inquiry = self._inquiry
        assert inquiry is not None  # noqa: S101 - the caller has set it
        try:
            step = inquiry.send(received)
            while not isinstance(step, Job):
                # Once a crash is reported, `end` must not report it again.
                self._loss = None if isinstance(step, LostCase) else self._loss
                self._rest = () if ends(step) else self._rest
                yield step
                step = next(inquiry)
        except StopIteration:
            task, rest = self._task, self._rest
            self.stop()
            if task is not None and rest:
                self.begin(task._replace(cases=rest))
            return
        self._job = deque(msgspec.structs.replace(message, ends_if_changed=False) for message in step.messages)
        if step.pause_s:
            self.rest()
            self._rests_until = time.monotonic() + step.pause_s
            return
        if (step.is_fresh and self._history) or self._is_changed:
            self.rest()
        self._begin_job()

    def _begin_job(self) -> None:
        if self._is_at_rest:
            self.worker = self._start()
        self._before = tuple(self._history)
        self._send(self._job[0])

    def unavailable(self, error: WorkerLostError) -> UnavailableError:
        """Return the error for a worker that cannot be set up."""
        lines = error.output.strip().splitlines() or ["it printed nothing"]
        # Of one that hung, the first frame of its dumped stack says where.
        last = next((line.strip() for line in lines if error.timed_out and line.startswith('  File "')), lines[-1])
        imported = [
            f"module '{item.device_module}' of candidate '{item.name}'"
            for item in self._hello.candidates
            if item.device_module
        ]
        if error.timed_out and "file_baton.py" in last:
            advice = (
                "torch waits for the file 'lock' of an extension's build, which a build that was killed leaves behind: "
                "delete it below TORCH_EXTENSIONS_DIR (~/.cache/torch_extensions where that is not set)"
            )
        elif imported:
            advice = f"It imports {', '.join(imported)}: leave that out"
        elif error.timed_out:
            advice = "It imports what the candidates name: see what that waits for"
        else:
            advice = "Install torch into this environment"
        message = f"a worker {error.reason} while it was set up: {last}. {advice}."
        return UnavailableError(message)
