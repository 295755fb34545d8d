"""The channel to a host: requests, their responses in order, and the job that the host is working on."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Final

from ci_autotest.backends.remote.response import ResponseError, readers_of
from ci_autotest.host.loop import NOWHERE

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ci_autotest.backends.remote.process import Host
    from ci_autotest.backends.remote.request import HostMessage
    from ci_autotest.backends.remote.response import Reader

#: Seconds between two looks at the job in flight while an answer is awaited.
_LOOK_S: Final = 0.05


class Channel:
    """The channel to one host."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._received: deque[Reader] = deque()
        self._owed = 0
        self._on_job: Callable[[int], None] | None = None
        self._seen = (NOWHERE, NOWHERE)

    def send(self, message: HostMessage, on_job: Callable[[int], None] | None = None) -> None:
        """Send jobs to the host, which owes an answer to each.

        Args:
            message: The jobs.
            on_job: Called with the number of the job in flight, while answers are awaited and when the host is lost.

        Raises:
            HostLostError: The host is gone.
        """
        self._on_job, self._seen = on_job, (NOWHERE, NOWHERE)
        self._owed += len(message.jobs)
        self._host.send(message.head, message.buffers)

    def send_backward(self, cotangents: dict[str, Any], buffers: Sequence[memoryview]) -> None:
        """Request the backward pass of the job that ran last.

        Raises:
            HostLostError: The host is gone.
        """
        self._owed += 1
        self._host.send({"backward": {"cotangents": cotangents}}, buffers)

    def next(self) -> Reader:
        """Return the next answer.

        Raises:
            HostLostError: The host is gone.
            ResponseError: It sent an invalid answer, or more answers than jobs.
        """
        while not self._received:
            self._wait()
            received = readers_of(*self._host.receive(), self._fetch)
            self._owed -= len(received)
            if self._owed < 0:
                message = f"the host sent more answers than it had jobs ({-self._owed} more)."
                raise ResponseError(message)
            self._received.extend(received)
        return self._received.popleft()

    def _wait(self) -> None:
        while not self._host.is_ready(_LOOK_S):
            self.report()

    def report(self, *, is_lost: bool = False) -> None:
        """Report the job in flight, if it or its step has changed since the last report.

        Args:
            is_lost: Whether the host is gone. Its job is then reported again, because another batch may have been
                reported meanwhile. If no job was in flight, the first one is reported: the host was waiting for the
                results of all of them.
        """
        job, step = self._host.in_flight()
        if is_lost:
            self._seen, job = (NOWHERE, NOWHERE), max(job, 0) if self._owed else job
        if self._on_job is not None and job != NOWHERE and (job, step) != self._seen:
            self._seen = job, step
            self._on_job(job)

    def _fetch(self, numbers: list[int]) -> list[memoryview]:
        self._host.send({"fetch": numbers})
        return self._host.receive()[1]
