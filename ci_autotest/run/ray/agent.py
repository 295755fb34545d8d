"""The agent of a worker on another machine: starts it there, watches it, and passes on bytes. Knows no cluster."""

from __future__ import annotations

import os

from ci_autotest.run.frames import decode_to_worker, encode
from ci_autotest.run.messages import Gone, Reply
from ci_autotest.run.process import Limits, WorkerProcess
from ci_autotest.run.worker_loss import WorkerLostError


class Agent:
    """Hold one worker on the machine that it runs on.

    Args:
        silence_s: Seconds without a move after which the worker is ended.
        memory_bytes: Resident memory that it may hold; 0: no limit.
    """

    def __init__(self, silence_s: float, memory_bytes: int) -> None:
        """Start the worker, with this process's environment: the cluster has said there which GPU is its own."""
        self._worker = WorkerProcess(os.environ, Limits(silence_s, memory_bytes))

    def pid(self) -> int:
        """Return the number of this process."""
        return os.getpid()

    def tell(self, body: bytes, *, begins: bool) -> bytes:
        """Pass a message to the worker, and return everything that it says to it.

        Args:
            body: A message, as ``frames.encode`` gives it.
            begins: Whether a new task begins.
        """
        bodies: list[bytes] = []
        try:
            if begins:
                self._worker.begin()
            bodies.extend(encode(part) for part in self._worker.exchange(decode_to_worker(body)))
        except WorkerLostError as error:
            gone = Gone(
                reason=error.reason, spot=(*error.spot,), output=error.output, timed_out=error.timed_out,
                is_killed=error.is_killed,
            )  # fmt: skip
            return encode(Reply(bodies=bodies, gone=gone))
        return encode(Reply(bodies=bodies))

    def close(self) -> None:
        """End the worker and everything that it started."""
        self._worker.close()
