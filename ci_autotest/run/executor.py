"""Executors, which start workers: on this machine here, on a cluster in ``run/ray``."""

from __future__ import annotations

import tempfile
from typing import TYPE_CHECKING, Protocol

from ci_autotest.errors import OutputError
from ci_autotest.run.fork_client import JUDGE_IMPORTS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ci_autotest.run.fork_client import ForkClient
    from ci_autotest.run.messages import FromWorker, Message
    from ci_autotest.run.process import WorkerProcess
    from ci_autotest.run.worker_loss import WorkerLostError


class Worker(Protocol):
    """A worker as the pool sees it; every method except ``close`` may raise ``WorkerLostError``."""

    @property
    def fd(self) -> int:
        """The descriptor to wait on for messages."""

    def begin(self) -> None:
        """Forget the worker's progress and output before another task."""

    def send(self, message: Message) -> None:
        """Send a message."""

    def receive(self) -> FromWorker | None:
        """Return a message if one is complete; call when ``fd`` is ready."""

    def buffered(self) -> FromWorker | None:
        """Return the next complete message that was already read, or ``None``."""

    def printed(self) -> str:
        """Return the end of what user code printed since ``begin``, as far as it is known here."""

    def check(self) -> None:
        """End the worker if it made no progress for too long or exceeds a limit."""

    def ask(self, message: Message, until: float | None = None) -> FromWorker:
        """Send a message and return the answer; raise ``OutOfTimeError`` if there is none by ``until``."""

    def fail(self, reason: str) -> WorkerLostError:
        """End the worker because it broke a rule, and return the error to raise."""

    def close(self) -> None:
        """End the worker and everything that it started."""


class Executor(Protocol):
    """Starter of workers."""

    @property
    def slots(self) -> int:
        """Number of workers that run at once."""

    def start(self, slot: int | None) -> Worker:
        """Start the worker of a slot; ``None`` starts one beside the slots, to confirm and shrink findings."""

    def close(self) -> None:
        """Release everything, after all workers have ended."""


class LocalExecutor:
    """Start workers on this machine.

    Args:
        fork_client: Forks the workers.
        added: Variables of each slot's workers, such as the GPU that they see; one entry for each slot.
    """

    def __init__(self, fork_client: ForkClient, added: Sequence[Mapping[str, str]] = ({},)) -> None:
        self._fork_client = fork_client
        self._added = tuple(added)

    @property
    def slots(self) -> int:
        """Number of workers that run at once."""
        return len(self._added)

    def start(self, slot: int | None) -> WorkerProcess:
        """Start the worker of a slot, or one beside the slots with the variables of the first.

        Raises:
            OutputError: The system has no room for the files or the process of a worker.
        """
        try:
            return self._fork_client.start(self._added[slot or 0], JUDGE_IMPORTS if slot is None else ())
        except OSError as error:
            folder = tempfile.gettempdir()
            message = (
                f"a worker cannot be started: {error.strerror} (temporary files are in {folder}). Make room there."
            )
            raise OutputError(message) from error

    def close(self) -> None:
        """Do nothing: what it starts ends with its owner, and the fork client is the caller's."""
