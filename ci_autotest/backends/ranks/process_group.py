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
from typing import TYPE_CHECKING, Final, NamedTuple

from ci_autotest.backends.ranks.rank_process import read_place
from ci_autotest.errors import UnavailableError
from ci_autotest.host.wire import WireError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ci_autotest.backends.ranks.rank_process import Place
    from ci_autotest.backends.ranks.rank_server import Rank, RankServer

#: Seconds that a group may take to join.
_START_S: Final = 60.0
#: Seconds without an answer, a move or a running thread after which ranks in collectives wait for ever.
_SILENCE_S: Final = 1.5
_LOOK_S: Final = 0.1
_TASKS: Final = "/proc/{}/task"


class Stuck(NamedTuple):
    """What the ranks of a group did when it was ended.

    Attributes:
        answers: Answer of each rank that gave one.
        places: Where each other rank waited.
        ended: Where each rank was whose process had ended.
    """

    answers: dict[int, tuple[bytes, list[memoryview]]]
    places: dict[int, Place]
    ended: dict[int, Place]


class ProcessGroup:
    """A group.

    Args:
        server: Forks the ranks.
        count: Number of ranks.
    """

    def __init__(self, server: RankServer, count: int) -> None:
        self._server, self.count = server, count
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
        except (OSError, WireError) as error:
            self.end()
            message = f"{self.count} ranks cannot be started here: {error}. {self._server.advice}"
            raise UnavailableError(message) from error

    def exchange(
        self, head: bytes, buffers: Sequence[bytes | memoryview]
    ) -> dict[int, tuple[bytes, list[memoryview]]] | Stuck:
        """Send a message to all ranks and return their answers, or how they stand if one of them never answers."""
        self.start()
        for rank in self._ranks:
            with contextlib.suppress(WireError):
                rank.wire.send(head, buffers)
        answers: dict[int, tuple[bytes, list[memoryview]]] = {}
        ended: set[int] = set()
        seen, since = self._moves(), time.monotonic()
        while len(answers) + len(ended) < self.count:
            waiting = {
                each.wire.read_fd: rank for rank, each in enumerate(self._ranks) if rank not in {*answers, *ended}
            }
            ready, _, _ = select.select(list(waiting), [], [], _LOOK_S)
            for fd in ready:
                try:
                    answers[waiting[fd]] = self._ranks[waiting[fd]].wire.receive()
                except WireError:
                    ended.add(waiting[fd])
            moves = self._moves()
            if ready or moves != seen or self._is_running(waiting.values()):
                seen, since = moves, time.monotonic()
            elif time.monotonic() - since > _SILENCE_S and self._is_in_collectives(waiting.values()):
                break
        if len(answers) == self.count:
            return answers
        places = {rank: read_place(each.place) for rank, each in enumerate(self._ranks) if rank not in answers}
        self.end()
        gone = {rank: places.pop(rank) for rank in sorted(ended)}
        return Stuck(answers, places, gone)

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

    def _is_in_collectives(self, ranks: Iterable[int]) -> bool:
        """Whether each of some ranks has entered a collective: outside of one a rank may sleep and then go on."""
        return all(read_place(self._ranks[rank].place).collective for rank in ranks)

    def _is_running(self, ranks: Iterable[int]) -> bool:
        """Whether a thread of one of some ranks runs, or could run if it got a processor."""
        return any(_is_running(self._ranks[rank].pid) for rank in ranks)


def _is_running(pid: int) -> bool:
    for task in Path(_TASKS.format(pid)).glob("*/stat"):
        with contextlib.suppress(OSError):
            # The state follows the name in brackets, which may hold anything.
            state = task.read_text(errors="replace").rpartition(")")[2].split()[0]
            if state in {"R", "D"}:
                return True
    return False
