"""The channel to a host: requests and their responses in order, and which request the host is working on."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Final

from ci_autotest.backends.remote.response import ToldError, readers_of
from ci_autotest.host.loop import NOWHERE

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ci_autotest.backends.remote.process import HostProcess
    from ci_autotest.backends.remote.request import Message
    from ci_autotest.backends.remote.response import Reader

#: Seconds between two looks at which job a host is at.
_LOOK_S: Final = 0.05


class Channel:
    """Ask one host, and hear its answers.

    Args:
        host: Whose answers they are.
    """

    def __init__(self, host: HostProcess) -> None:
        self._host = host
        self._received: deque[Reader] = deque()
        self._owed = 0
        self._at: Callable[[int], None] | None = None
        self._seen = (NOWHERE, NOWHERE)

    def ask(self, message: Message, at: Callable[[int], None] | None = None) -> None:
        """Give the host jobs.

        Args:
            message: Each of its jobs is owed an answer.
            at: Told the number of the job that the host is at, as it is waited for and when it is lost.

        Raises:
            HostLostError: The host is gone.
        """
        self._at, self._seen = at, (NOWHERE, NOWHERE)
        self._owed += len(message.jobs)
        self._host.ask(message.head, message.buffers)

    def ask_backward(self, cotangents: dict[str, Any], buffers: Sequence[memoryview]) -> None:
        """Ask for the backward pass of the job that was run last.

        Raises:
            HostLostError: The host is gone.
        """
        self._owed += 1
        self._host.ask({"backward": {"cotangents": cotangents}}, buffers)

    def next(self) -> Reader:
        """Return the next answer.

        Raises:
            HostLostError: The host is gone.
            ToldError: It sent what is no answer, or more than it was asked for.
        """
        while not self._received:
            self._wait()
            received = readers_of(*self._host.told(), self._fetch)
            self._owed -= len(received)
            if self._owed < 0:
                message = f"the host sent what is no answer ({-self._owed} more than it was asked for)."
                raise ToldError(message)
            self._received.extend(received)
        return self._received.popleft()

    def _wait(self) -> None:
        while not self._host.is_ready(_LOOK_S):
            self.look()

    def look(self, *, is_lost: bool = False) -> None:
        """Say which job the host is at by now, where it, or its step, is another one than was said last.

        Args:
            is_lost: Whether the host is gone: what was said of another batch meanwhile is said no longer. Where it was
                at none, it waited for all that it was given: the first of them stands for all.
        """
        job, step = self._host.spot()
        if is_lost:
            self._seen, job = (NOWHERE, NOWHERE), max(job, 0) if self._owed else job
        if self._at is not None and job != NOWHERE and (job, step) != self._seen:
            self._seen = job, step
            self._at(job)

    def _fetch(self, numbers: list[int]) -> list[memoryview]:
        self._host.ask({"fetch": numbers})
        return self._host.told()[1]
