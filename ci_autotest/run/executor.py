"""Where workers run: on this machine or on a cluster."""

from __future__ import annotations

import tempfile
from typing import TYPE_CHECKING, Protocol

from ci_autotest.errors import OutputError
from ci_autotest.run.process import WorkerProcess

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ci_autotest.run.fork_client import ForkClient
    from ci_autotest.run.messages import FromWorker, Message
    from ci_autotest.run.process import Limits
    from ci_autotest.run.worker_loss import WorkerLostError


class Worker(Protocol):
    """A worker as the pool sees it; every method but ``close`` may raise ``WorkerLostError``."""

    @property
    def fd(self) -> int:
        """The descriptor to wait on."""

    def begin(self) -> None:
        """Forget where it was and what it printed: another task comes."""

    def send(self, message: Message) -> None:
        """Send a message."""

    def receive(self) -> FromWorker | None:
        """Return a message that has come in whole, or ``None``; call when ``fd`` is ready."""

    def buffered(self) -> FromWorker | None:
        """Return the next whole message that was read already, or ``None``."""

    def check(self) -> None:
        """End the worker when it was silent for too long or takes too much."""

    def ask(self, message: Message, until: float | None = None) -> FromWorker:
        """Send a message and wait for the answer; ``OutOfTimeError`` when there is none by then."""

    def broken(self, what: str) -> WorkerLostError:
        """End a worker for what it did; return how it was lost."""

    def close(self) -> None:
        """End the worker and everything that it started."""


class Executor(Protocol):
    """What starts workers."""

    @property
    def slots(self) -> int:
        """Workers that run at once."""

    def start(self, slot: int | None) -> Worker:
        """Start the worker of a slot; ``None``: one beside them, for what is looked at again."""

    def close(self) -> None:
        """Let go of everything; no worker is left."""


class LocalExecutor:
    """Start workers on this machine.

    Args:
        environ: The parent's environment.
        limits: What each worker may take.
        added: Variables of each slot's workers, such as the GPU that they see; one entry a slot.
        nursery: Starts those beside the slots, and as soon as it can those that follow a slot's first.
    """

    def __init__(
        self,
        environ: Mapping[str, str],
        limits: Limits,
        added: Sequence[Mapping[str, str]] = ({},),
        fork_client: ForkClient | None = None,
    ) -> None:
        self._environ = environ
        self._limits = limits
        self._added = tuple(added)
        self._fork_client = fork_client
        self._begun: set[int] = set()

    @property
    def slots(self) -> int:
        """Workers that run at once."""
        return len(self._added)

    def start(self, slot: int | None) -> WorkerProcess:
        """Start the worker of a slot, or one beside them that sees what the first one sees.

        Raises:
            OutputError: The system has no room for what a worker needs.
        """
        try:
            added = self._added[slot or 0]
            if self._fork_client is not None and (
                slot is None or (slot in self._begun and self._fork_client.is_warm())
            ):
                return self._fork_client.start(added)
            self._begun.add(slot or 0)
            return WorkerProcess(self._environ, self._limits, added)
        except OSError as error:
            where = tempfile.gettempdir()
            message = f"a worker cannot be started: {error.strerror} (temporary files are in {where}). Make room there."
            raise OutputError(message) from error

    def close(self) -> None:
        """Hold nothing."""
