"""The agent of a worker on another machine: it starts and watches the worker there and relays bytes.

It does not depend on Ray.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ci_autotest.run.frames import decode_to_worker, encode
from ci_autotest.run.messages import Gone, WorkerReply
from ci_autotest.run.process import Limits, WorkerProcess
from ci_autotest.run.worker_loss import WorkerLostError

if TYPE_CHECKING:
    from collections.abc import Mapping


class Agent:
    """The owner of one worker, on the machine that the worker runs on.

    Args:
        silence_s: Seconds without progress after which the worker is ended.
        memory_bytes: Resident memory that it may hold; 0: no limit.
        added: Variables for this worker only.
    """

    def __init__(self, silence_s: float, memory_bytes: int, added: Mapping[str, str]) -> None:
        """Start the worker with this process's environment, in which the cluster has set the GPU to use."""
        self._worker = WorkerProcess(os.environ, Limits(silence_s, memory_bytes), added)

    def pid(self) -> int:
        """Return the pid of this process."""
        return os.getpid()

    def tell(self, body: bytes, *, begins: bool) -> bytes:
        """Send a message to the worker, and return the complete answer as an encoded ``WorkerReply``.

        Args:
            body: A message, encoded by ``frames.encode``.
            begins: Whether a new task begins.
        """
        bodies: list[bytes] = []
        try:
            if begins:
                self._worker.begin()
            # As bytes, because Ray pickles objects, and nothing that a worker says may be unpickled.
            bodies.extend(encode(part) for part in self._worker.exchange(decode_to_worker(body)))
        except WorkerLostError as error:
            gone = Gone(
                reason=error.reason, spot=(*error.spot,), output=error.output, limit=error.limit,
                is_killed=error.is_killed, calls=[*error.calls],
            )  # fmt: skip
            return encode(WorkerReply(bodies=bodies, gone=gone))
        return encode(WorkerReply(bodies=bodies))

    def close(self) -> None:
        """End the worker and everything that it started."""
        self._worker.close()
