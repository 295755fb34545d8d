"""A group of ranks in processes of their own, seen from the worker.

A message goes to all ranks, and all answer. A group whose ranks wait for each other for ever is ended: each that has
not answered is in a collective, none of them moves, and none of their threads runs. A later message starts it anew.
A rank that waits elsewhere may be slow, and the parent ends the worker when the time limit of the case has passed.
"""

from __future__ import annotations

import contextlib
import select
import time
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from ci_autotest.backends.ranks.rank_process import Place
from ci_autotest.errors import UnavailableError
from ci_autotest.host.wire import WireError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ci_autotest.host.wire import Wire

#: Seconds that a group may take to join.
_START_S: Final = 60.0
#: Seconds without an answer, a move or a running thread after which ranks in collectives wait for ever.
_SILENCE_S: Final = 1.5
_LOOK_S: Final = 0.1


class Look(NamedTuple):
    """What a rank does.

    Attributes:
        place: Where it is.
        is_running: Whether one of its threads runs, or could run if it got a processor.
    """

    place: Place
    is_running: bool


#: Of a rank whose machine was lost before it was seen.
_UNSEEN: Final = Look(Place(-1, 0, ""), is_running=False)


class Rank(Protocol):
    """A rank's process, seen from the worker.

    Attributes:
        pid: Its process id, on the machine that it runs on.
        wire: Frames to it and from it.
    """

    pid: int
    wire: Wire

    def look(self) -> Look | None:
        """Return what it does; ``None`` if that cannot be known any more."""

    def end(self) -> str:
        """End it, and return in words how it ended if it had ended before."""


class Launcher(Protocol):
    """What starts the processes of ranks.

    Attributes:
        advice: What to do where they cannot be had.
    """

    advice: str

    def launch(self, count: int) -> Sequence[Rank]:
        """Return the processes of a new group; raise ``OSError`` or ``WireError`` if they cannot be had."""

    def close(self) -> None:
        """End every process."""


class Loss(NamedTuple):
    """How a rank ended.

    Attributes:
        how: In words.
        place: Where it was.
    """

    how: str
    place: Place


class Stuck(NamedTuple):
    """What the ranks of a group did when it was ended.

    Attributes:
        answers: Answer of each rank that gave one.
        places: Where each other rank waited.
        ended: How each rank ended whose process had ended.
    """

    answers: dict[int, tuple[bytes, list[memoryview]]]
    places: dict[int, Place]
    ended: dict[int, Loss]


class ProcessGroup:
    """A group.

    Args:
        launcher: Starts the ranks.
        count: Number of ranks.
    """

    def __init__(self, launcher: Launcher, count: int) -> None:
        self._launcher, self.count = launcher, count
        self._ranks: Sequence[Rank] = []

    def start(self) -> None:
        """Start the ranks, unless they run.

        Raises:
            UnavailableError: They cannot be started, or do not find each other.
        """
        if self._ranks:
            return
        try:
            self._ranks = self._launcher.launch(self.count)
            until = time.monotonic() + _START_S
            for rank in self._ranks:
                rank.wire.receive(until)
        except (OSError, WireError) as error:
            self.end()
            message = f"{self.count} ranks cannot be started here: {error}. {self._launcher.advice}"
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
        looks: dict[int, Look] = {}
        since = time.monotonic()
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
            if ready:
                since = time.monotonic()
                continue
            seen, looks = looks, {rank: look for rank in waiting.values() if (look := self._ranks[rank].look())}
            ended.update(set(waiting.values()) - set(looks))
            if looks != seen or any(look.is_running for look in looks.values()):
                since = time.monotonic()
            # Outside of a collective a rank may sleep and then go on.
            elif time.monotonic() - since > _SILENCE_S and all(look.place.collective for look in looks.values()):
                break
        if len(answers) == self.count:
            return answers
        places = {rank: look.place for rank, look in looks.items() if rank not in {*answers, *ended}}
        lost = {rank: (self._ranks[rank].look() or looks.get(rank) or _UNSEEN).place for rank in sorted(ended)}
        ends = self.end()
        return Stuck(answers, places, {rank: Loss(ends[rank], place) for rank, place in lost.items()})

    def end(self) -> list[str]:
        """End all ranks, and return in words how each ended that had ended before."""
        ranks, self._ranks = self._ranks, []
        return [rank.end() for rank in ranks]
