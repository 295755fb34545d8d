"""The hosts of a group, one process for each rank, used like a single host.

Every message goes to all ranks, one job at a time, so that no rank begins a job before all have ended the one before:
a collective of one job must never meet that of another. The first rank's answer is passed on if all agree. If a rank
ends alone, or waits for ever because another one raised, the group is ended, and the next message starts it anew.
"""

from __future__ import annotations

import select
import socket
import time
from typing import TYPE_CHECKING, Final

from ci_autotest.backends.ranks.host_answers import Frame, InvalidAnswerError, agreed, of_invalid, of_lost
from ci_autotest.backends.ranks.process_activity import ActivityWatch
from ci_autotest.backends.ranks.worker_side import ALONE, WorkerSide
from ci_autotest.backends.remote.process import START_S, HostLostError, HostProcess
from ci_autotest.errors import UnavailableError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ci_autotest.backends.remote.interpreter import HostHello, Interpreter
    from ci_autotest.backends.trace import RankFault

#: Seconds of work or sleep at one step after another rank has answered: no rank computes so much more than another.
SILENCE_S: Final = 5.0
#: Seconds between two looks at the ranks.
_LOOK_S: Final = 0.05
#: What OneFlow reads; a row's ``env`` may set it.
_PORT: Final = "MASTER_PORT"
_LOOPBACK: Final = "127.0.0.1"


class RankHosts:
    """The hosts of a group.

    Args:
        interpreter: The interpreter and the framework.
        count: Number of ranks.
        silence_s: Seconds of work or sleep without a move after which a rank waits for ever.
        worker: The worker whose candidate they are.

    Attributes:
        count: Number of ranks.
        hello: What the first rank's host is.
        faults: Where the ranks disagree in the last answer, with steps of the translated program.

    Raises:
        UnavailableError: A rank cannot be started, or they do not find each other.
    """

    def __init__(
        self,
        interpreter: Interpreter,
        count: int,
        silence_s: float = SILENCE_S,
        worker: WorkerSide = ALONE,
    ) -> None:
        self._interpreter, self.count, self._silence_s, self._worker = interpreter, count, silence_s, worker
        self.faults: list[RankFault] = []
        self._frames: dict[int, Frame] = {}
        self._ended: dict[int, HostLostError] = {}
        self._awaited: Sequence[int] = ()
        self._watches: dict[int, ActivityWatch] = {}
        self._begin()

    def resize(self, count: int) -> None:
        """Have so many ranks from the next message on; another number ends those that run."""
        if count != self.count:
            self.close()
            self.count = count

    def in_flight(self) -> tuple[int, int]:
        """Return the number of the job and the index of its step, of the rank that ended first, else of the first."""
        return self._hosts[next(iter(self._ended), 0)].in_flight()

    def send(self, message: object, buffers: Sequence[bytes | memoryview] = ()) -> None:
        """Send a message to all ranks. Elements that a host keeps are the same on all, so the first one sends them.

        Raises:
            UnavailableError: The ranks were ended and cannot be started again.
        """
        if self._is_closed:
            self._begin()
        is_fetch = isinstance(message, dict) and "fetch" in message
        self._awaited = range(1 if is_fetch else self.count)
        self._frames, self._ended = {}, {}
        self._watches = {rank: ActivityWatch(host.pid, self._silence_s) for rank, host in enumerate(self._hosts)}
        self._worker.wait_for(self._awaited)
        for rank in self._awaited:
            try:
                self._hosts[rank].send(message, buffers)
            except HostLostError as lost:
                self._ended[rank] = lost

    def is_ready(self, wait_s: float) -> bool:
        """Whether all ranks have answered within some seconds, or it is clear that one of them never will."""
        self._look(wait_s)
        left = self._left()
        # If all are at work, one may be slow, and the time limit of the case ends it.
        if not left or len(left) == len(self._awaited):
            return not left
        waits = {rank: self._watches[rank].waits((self._hosts[rank].in_flight(), len(left))) for rank in left}
        return all(waits.values())

    def receive(self) -> tuple[bytes, list[memoryview]]:
        """Return the answer of the group.

        Raises:
            HostLostError: All ranks ended in the same way.
        """
        while not self.is_ready(_LOOK_S):
            pass
        frames, ended = self._frames, self._ended
        if len(frames) == len(self._awaited):
            try:
                found, faults = agreed([frames[rank] for rank in sorted(frames)])
            except InvalidAnswerError as error:
                self.close()
                found, self.faults = of_invalid(error, frames.keys() - {error.rank})
                return found
            # What a rank sends of the last job later says nothing new about that job.
            self.faults = faults if len(frames) == self.count else self.faults
            return found
        waiting = {rank: self._hosts[rank].in_flight()[1] for rank in self._left()}
        self.close()
        first = next(iter(ended.values()), None)
        if (
            first is not None
            and len(ended) == len(self._awaited)
            and {one.code for one in ended.values()} == {first.code}
        ):
            raise first
        try:
            gone = {rank: (one.ending, self._hosts[rank].in_flight()[1]) for rank, one in ended.items()}
            found, self.faults = of_lost(frames, gone, waiting)
        except InvalidAnswerError as error:
            found, self.faults = of_invalid(error, frames.keys() - {error.rank})
        return found

    def close(self) -> None:
        """End all ranks; a second call does nothing."""
        for host in self._hosts:
            host.close()
        self._is_closed = True

    def _begin(self) -> None:
        """Start the ranks, and wait until they have found each other."""
        interpreter, self._is_closed = self._interpreter, False
        self._hosts: list[HostProcess] = []
        port = interpreter.env.get(_PORT) or str(_free_port())
        try:
            for rank in range(self.count):
                own = {
                    "MASTER_ADDR": _LOOPBACK, **interpreter.env, _PORT: port,
                    "WORLD_SIZE": str(self.count), "RANK": str(rank), "LOCAL_RANK": str(rank),
                }  # fmt: skip
                self._hosts.append(HostProcess(interpreter._replace(env=own, is_rank=True), waits=False))
            for host in self._coming():
                host.greet()
            self._worker.wait_for(())
        except UnavailableError:
            self.close()
            raise
        self.hello: HostHello = self._hosts[0].hello

    def _coming(self) -> Iterator[HostProcess]:
        """Yield the ranks as they come: one that cannot start says so at once, and the others wait for it for ever."""
        waiting = {host.wire.read_fd: host for host in self._hosts}
        until = time.monotonic() + START_S
        while waiting:
            ready, _, _ = select.select(list(waiting), [], [], max(0.0, until - time.monotonic()))
            # When the time is up, the first that has not come raises the error.
            for fd in ready or list(waiting)[:1]:
                yield waiting.pop(fd)

    def _left(self) -> list[int]:
        """Return the ranks that have neither answered nor ended."""
        return [rank for rank in self._awaited if rank not in {*self._frames, *self._ended}]

    def _look(self, wait_s: float) -> None:
        """Take the answers that arrive within some seconds."""
        waiting = {self._hosts[rank].wire.read_fd: rank for rank in self._left()}
        ready, _, _ = select.select(list(waiting), [], [], wait_s) if waiting else ([], [], [])
        ready = ready or [fd for fd, rank in waiting.items() if self._hosts[rank].has_ended()]
        for fd in ready:
            try:
                self._frames[waiting[fd]] = Frame(*self._hosts[waiting[fd]].receive())
            except HostLostError as lost:
                self._ended[waiting[fd]] = lost
        if ready:
            self._worker.wait_for(self._left())


def _free_port() -> int:
    with socket.socket() as found:
        found.bind((_LOOPBACK, 0))
        port: int = found.getsockname()[1]
        return port
