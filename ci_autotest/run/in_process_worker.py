"""Workers in this process, for ``--workers 0``: a debugger and ``print`` in a test or a kernel reach the terminal.

This is the one exception to the rule that the process of the command line imports no framework. It is never the
default: nothing is isolated, a crash ends the run, and a case has no time limit.
"""

from __future__ import annotations

import bdb
import faulthandler
import os
import sys
from collections import deque
from typing import TYPE_CHECKING, Final, NoReturn, cast

import msgspec

from ci_autotest.run.messages import Hello, Ready
from ci_autotest.run.progress_beacon import ProgressBeacon
from ci_autotest.run.worker_loss import WorkerLostError
from ci_autotest.run.worker_start import WORKER_VARIABLES

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from ci_autotest.run.messages import FromWorker, Message, ToWorker
    from ci_autotest.run.worker.dispatch import Dispatcher

_READ_BYTES: Final = 4096


class InProcessExecutor:
    """Answer every request in this process.

    Args:
        interruptible: Returns a block in which Ctrl-C is raised at once: user code may run for long.
    """

    slots: Final = 1

    def __init__(self, interruptible: Callable[[], AbstractContextManager[None]]) -> None:
        self._interruptible = interruptible
        self.beacon = ProgressBeacon.create()
        self._known: list[tuple[Hello, Ready, Dispatcher]] = []
        self._parts: Callable[[FromWorker], None] = lambda _: None

    def start(self, slot: int | None) -> InProcessWorker:  # noqa: ARG002 - the interface of executors
        """Return a worker that runs in this process, as all others do."""
        return InProcessWorker(self)

    def greet(self, hello: Hello) -> tuple[FromWorker, Dispatcher | None]:
        """Return the answer to a worker's first message, and what answers the next ones.

        A test file must not be imported twice in one process, so what was set up for more candidates serves fewer.
        """
        for known, ready, dispatcher in self._known:
            if hello.candidates and msgspec.structs.replace(known, candidates=hello.candidates) == hello:
                names = {candidate.name for candidate in hello.candidates}
                if names <= {candidate.name for candidate in known.candidates}:
                    infos = [info for info in ready.candidates if info.name in names]
                    return msgspec.structs.replace(ready, candidates=infos), dispatcher
        return self._set_up(hello)

    def _set_up(self, hello: Hello) -> tuple[FromWorker, Dispatcher | None]:
        os.environ.update(WORKER_VARIABLES)
        faulthandler.enable()
        _refuse_silent_end()
        from ci_autotest.run.worker.dispatch import Dispatcher  # noqa: PLC0415 - imports the framework

        dispatcher = Dispatcher(self.beacon, self._send_part)
        answer = self.answer(dispatcher, hello, lambda _: None)
        if not isinstance(answer, Ready):
            return answer, None
        if self._known:  # With another seed, say: the test files are imported already.
            dispatcher.worker_context.library = self._known[0][2].worker_context.library
        self._known.append((hello, answer, dispatcher))
        return answer, dispatcher

    def _send_part(self, part: FromWorker) -> None:
        self._parts(part)

    def answer(self, dispatcher: Dispatcher, message: ToWorker, parts: Callable[[FromWorker], None]) -> FromWorker:
        """Return the answer to a message; ``parts`` receives what is sent before it is complete.

        Raises:
            KeyboardInterrupt: Ctrl-C was pressed, or the debugger was left with ``quit``.
        """
        from ci_autotest.run.worker.main import answer_of  # noqa: PLC0415 - of the worker

        self._parts = parts
        try:
            with self._interruptible():
                return answer_of(dispatcher, message, (KeyboardInterrupt, bdb.BdbQuit))
        except bdb.BdbQuit:
            raise KeyboardInterrupt from None

    def close(self) -> None:
        """End the processes that backends hold."""
        for _, _, dispatcher in self._known:
            for backend in dispatcher.worker_context.backends.values():
                backend.close()
        self._known.clear()
        self.beacon.close()


class InProcessWorker:
    """A worker as the pool sees it, in this process: a message is answered while it is sent."""

    def __init__(self, executor: InProcessExecutor) -> None:
        self._executor = executor
        self._dispatcher: Dispatcher | None = None
        self._answers: deque[FromWorker] = deque()
        self.fd, self._to = os.pipe()
        self._is_closed = False

    def begin(self) -> None:
        """Do nothing: nothing is kept of what the process prints."""

    def printed(self) -> str:
        """Return nothing: what user code prints has reached the terminal."""
        return ""

    def send(self, message: Message) -> None:
        """Answer a message.

        Raises:
            KeyboardInterrupt: Ctrl-C was pressed, or the debugger was left with ``quit``.
        """
        if isinstance(message, Hello):
            answer, self._dispatcher = self._executor.greet(message)
            self._put(answer)
        elif self._dispatcher is not None:
            self._put(self._executor.answer(self._dispatcher, cast("ToWorker", message), self._put))

    def _put(self, answer: FromWorker) -> None:
        self._answers.append(answer)
        os.write(self._to, b".")

    def receive(self) -> FromWorker | None:
        """Return the next answer."""
        os.read(self.fd, 1)
        return self._answers.popleft() if self._answers else None

    def buffered(self) -> FromWorker | None:
        """Return nothing: ``fd`` is ready as often as there are answers."""
        return None

    def check(self) -> None:
        """Do nothing: there are no limits."""

    def ask(self, message: Message, until: float | None = None) -> FromWorker:  # noqa: ARG002 - there is no time limit
        """Send a message and return the last part of its answer."""
        self.send(message)
        os.read(self.fd, _READ_BYTES)
        answer = self._answers.pop()
        self._answers.clear()
        return answer

    def fail(self, reason: str) -> WorkerLostError:
        """Return the error for a broken rule; the process goes on."""
        return WorkerLostError(reason, self._executor.beacon.read(), "")

    def close(self) -> None:
        """Close the pipe; a second call does nothing."""
        if not self._is_closed:
            self._is_closed = True
            os.close(self.fd)
            os.close(self._to)


def _refuse_silent_end() -> None:
    """Let ``os._exit`` of a test or kernel end the run with a message and the status of a fault.

    Otherwise ``os._exit(0)`` would pass for an aligned run, with the report of an earlier run in the folder.
    """
    end, process = os._exit, os.getpid()

    def ended(status: int) -> NoReturn:
        if os.getpid() == process:  # A forked child, such as a worker of a data loader, ends as it likes.
            sys.stderr.write(f"a test or kernel called os._exit({status}): the run ended there, without a report.\n")
            sys.stderr.flush()
            status = os.EX_SOFTWARE
        end(status)

    os._exit = ended
