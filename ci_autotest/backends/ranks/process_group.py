"""A group of ranks in processes of their own, seen from the worker.

A message goes to all ranks, and all answer. A group whose ranks wait for each other for ever is ended: each that has
not answered is in a collective, none of them moves, and none of their threads runs. A later message starts it anew.
A rank that waits elsewhere may be slow, and the parent ends the worker when the time limit of the case has passed.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn

from ci_autotest.backends.ranks.rank_process import read_place
from ci_autotest.backends.remote.process import HostLostError, end_as
from ci_autotest.errors import UnavailableError
from ci_autotest.host.main import OWN_FAULT
from ci_autotest.host.wire import GoneError, WireError
from ci_autotest.values.process_end import exit_text

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from ci_autotest.backends.ranks.rank_process import Place
    from ci_autotest.backends.ranks.rank_server import Rank, RankServer

#: Seconds that a group may take to join.
_START_S: Final = 60.0
#: Seconds without an answer, a move or a running thread after which ranks in collectives wait for ever.
_SILENCE_S: Final = 1.5
_LOOK_S: Final = 0.1
_STAT: Final = "/proc/{}/stat"
_TASKS: Final = "/proc/{}/task"


class Answer(NamedTuple):
    """What a rank answered.

    Attributes:
        head: The decoded head.
        buffers: Elements of its tensors.
    """

    head: Any
    buffers: list[memoryview]


class Loss(NamedTuple):
    """How a rank was lost.

    Attributes:
        text: In words: how it ended, or what it sent that is no answer.
        place: Where it was.
        code: Its exit status, or minus its signal.
    """

    text: str
    place: Place
    code: int


class Stuck(NamedTuple):
    """What the ranks of a group did when it was ended.

    Attributes:
        answers: Answer of each rank that gave one.
        places: Where each other rank waited.
        lost: The ranks that were lost.
    """

    answers: dict[int, Answer]
    places: dict[int, Place]
    lost: dict[int, Loss]


class ProcessGroup:
    """A group.

    Args:
        server: Forks the ranks.
        count: Number of ranks.
    """

    def __init__(self, server: RankServer, count: int) -> None:
        self._server, self.count = server, count
        self._worker = server.worker
        self._ranks: list[Rank] = []

    def start(self) -> None:
        """Start the ranks, unless they run.

        Raises:
            UnavailableError: They cannot be started, or do not find each other.
        """
        if self._ranks:
            return
        try:
            self._ranks = self._server.fork(self.count)
            until = time.monotonic() + _START_S
            for rank in self._ranks:
                rank.wire.receive(until)
            self._worker.wait_for(())
        except (OSError, WireError) as error:
            self.end()
            message = f"{self.count} ranks cannot be started here: {error}. {self._server.advice}"
            raise UnavailableError(message) from error

    def exchange(
        self, head: bytes, buffers: Sequence[bytes | memoryview], decode: Callable[[bytes], Any]
    ) -> dict[int, Answer] | Stuck:
        """Send a message to all ranks and return their answers, or how they stand if one of them never answers.

        Args:
            head: Head of the message.
            buffers: Its buffers.
            decode: Returns the head of an answer; raises ``ValueError`` if it is none.

        Raises:
            HostLostError: All ranks ended in the same way; a worker ends in that way itself.
        """
        self.start()
        self._worker.wait_for(range(self.count))
        for each in self._ranks:
            with contextlib.suppress(WireError):
                each.wire.send(head, buffers)
        answers: dict[int, Answer] = {}
        lost: dict[int, Loss] = {}
        seen, since = self._moves(), time.monotonic()
        while len(answers) + len(lost) < self.count:
            waiting = {
                each.wire.read_fd: rank for rank, each in enumerate(self._ranks) if rank not in {*answers, *lost}
            }
            self._worker.wait_for(self._suspects(waiting.values()))
            ready = self._receive(waiting, decode, answers, lost)
            moves = self._moves()
            if ready or moves != seen or self._is_running(waiting.values()):
                seen, since = moves, time.monotonic()
            elif time.monotonic() - since > _SILENCE_S and self._is_in_collectives(waiting.values()):
                break
        self._worker.wait_for(())
        if len(answers) == self.count:
            return answers
        places = {
            rank: read_place(each.place) for rank, each in enumerate(self._ranks) if rank not in {*answers, *lost}
        }
        self.end()
        if len(lost) == self.count and len({one.code for one in lost.values()}) == 1:
            self._give_up(next(iter(lost.values())))
        return Stuck(answers, places, lost)

    def _receive(
        self,
        waiting: Mapping[int, int],
        decode: Callable[[bytes], Any],
        answers: dict[int, Answer],
        lost: dict[int, Loss],
    ) -> bool:
        """Take what arrives from the ranks that are waited for, by descriptor; return whether anything did."""
        ready, _, _ = select.select(list(waiting), [], [], _LOOK_S)
        for fd in ready:
            rank = waiting[fd]
            try:
                found = self._ranks[rank].wire.receive()
                answers[rank] = Answer(decode(found[0]), found[1])
            except (WireError, ValueError) as error:
                lost[rank] = self._loss(rank, error)
        # A child that it has forked keeps the pipe of a rank open after its end.
        for fd, rank in waiting.items():
            if fd not in ready and self._has_ended(rank):
                lost[rank] = self._loss(rank, GoneError())
        return bool(ready)

    def _loss(self, rank: int, error: Exception) -> Loss:
        """Return how a rank was lost that closed its pipe, or sent something that is no answer."""
        place = read_place(self._ranks[rank].place)
        if not isinstance(error, GoneError):
            return Loss(f"sent an invalid answer ({error}) and was ended", place, 1)
        try:
            code = self._server.exit_code(self._ranks[rank].pid)
        except OSError:
            # The ranks end with their server, and without it there are no others.
            return Loss("ended with the process that had started it", place, -signal.SIGKILL)
        return Loss("closed its pipe and was ended" if code is None else exit_text(code), place, code or 0)

    def _give_up(self, loss: Loss) -> NoReturn:
        """Raise the error of ranks that all ended in the same way; a worker ends in that way itself."""
        lost = HostLostError(f"all {self.count} ranks of candidate '{self._server.candidate}' {loss.text}.", loss.code)
        # After a fault of our own code in the ranks, this worker must not end as if the candidate had crashed.
        if self._worker.is_isolated and loss.code != OWN_FAULT:
            end_as(lost)
        raise lost

    def end(self) -> None:
        """End all ranks."""
        for rank in self._ranks:
            with contextlib.suppress(OSError):
                os.kill(rank.pid, signal.SIGKILL)
            with contextlib.suppress(OSError):
                rank.wire.close()
            rank.place.close()
        self._ranks = []

    def _moves(self) -> list[int]:
        return [read_place(rank.place).moves for rank in self._ranks]

    def _has_ended(self, rank: int) -> bool:
        """Whether the process of a rank has ended, and has left nothing to read."""
        found = self._ranks[rank]
        return has_ended(found.pid) and not found.wire.is_ready(0)

    def _suspects(self, ranks: Collection[int]) -> list[int]:
        """Return the ranks that others may wait for: those that are in no collective; all if all are in one."""
        return [rank for rank in ranks if not read_place(self._ranks[rank].place).collective] or list(ranks)

    def _is_in_collectives(self, ranks: Iterable[int]) -> bool:
        """Whether each of some ranks has entered a collective: outside of one a rank may sleep and then go on."""
        return all(read_place(self._ranks[rank].place).collective for rank in ranks)

    def _is_running(self, ranks: Iterable[int]) -> bool:
        """Whether a thread of one of some ranks runs, or could run if it got a processor."""
        return any(_is_running(self._ranks[rank].pid) for rank in ranks)


def has_ended(pid: int) -> bool:
    """Whether a process has ended, and at most its status is left."""
    try:
        return _state(Path(_STAT.format(pid))) in {"Z", "X"}
    except OSError:
        return True


def _state(stat: Path) -> str:
    # The state follows the name in brackets, which may hold anything.
    return stat.read_text(errors="replace").rpartition(")")[2].split()[0]


def _is_running(pid: int) -> bool:
    for task in Path(_TASKS.format(pid)).glob("*/stat"):
        with contextlib.suppress(OSError):
            if _state(task) in {"R", "D"}:
                return True
    return False
