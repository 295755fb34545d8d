"""A group of ranks in processes of their own, seen from the worker.

A message goes to all ranks, and all answer. A group whose ranks wait for each other for ever is ended: each that has
not answered is in a collective, none of them moves, and none of their threads runs. A later message starts it anew.
A rank that waits elsewhere may be slow, and the parent ends the worker when the time limit of the case has passed.
"""

from __future__ import annotations

import select
import time
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn, Protocol

from ci_autotest.backends.framework.process import HostLostError, end_as
from ci_autotest.backends.ranks.processes.rank_process import READY, USABLE
from ci_autotest.errors import UnavailableError
from ci_autotest.host.main import OWN_FAULT
from ci_autotest.host.wire import GoneError, WireError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from ci_autotest.backends.ranks.processes.rank_process import Place
    from ci_autotest.backends.worker_side import WorkerSide
    from ci_autotest.host.wire import Wire

#: Seconds that a group may take to join.
_START_S: Final = 60.0
_LOOK_S: Final = 0.1


class Look(NamedTuple):
    """What a rank does.

    Attributes:
        place: Where it is.
        is_running: Whether one of its threads runs, or could run if it got a processor.
    """

    place: Place
    is_running: bool


class Ending(NamedTuple):
    """How a rank ended.

    Attributes:
        text: In words.
        code: Its exit status, or minus its signal; ``None`` if it did not end by itself.
    """

    text: str
    code: int | None


class Rank(Protocol):
    """A rank's process, seen from the worker.

    Attributes:
        pid: Its process id, on the machine that it runs on.
        wire: Frames to it and from it.
    """

    pid: int
    wire: Wire

    @property
    def place(self) -> Place:
        """Where it is, or was when that was last known."""

    def send(self, head: bytes, buffers: Sequence[bytes | memoryview]) -> None:
        """Send it a message; raise ``WireError`` if it does not read it."""

    def inquire(self) -> None:
        """Ask what it does: the next ``look`` has the answer, and many are asked before any of them is waited for."""

    def look(self) -> Look | None:
        """Return what it does; ``None`` if it has ended, and has left nothing to read."""

    def ending(self) -> Ending:
        """Return how it ended; one that has only closed its pipe is ended first."""

    def end(self) -> None:
        """End it."""


class Launcher(Protocol):
    """What starts the processes of ranks.

    Attributes:
        candidate: Name of their candidate.
        worker: The worker whose candidate they are.
        advice: What to do where they cannot be had.
        silence_s: Seconds without an answer, a move or a running thread after which ranks in collectives wait for ever.
        sees_threads: Whether a running thread says that a rank gets on. Who waits for a GPU runs all the time.
    """

    candidate: str
    worker: WorkerSide
    advice: str
    silence_s: float
    sees_threads: bool

    def launch(self, count: int) -> Sequence[Rank]:
        """Return the processes of a new group; raise ``OSError`` or ``WireError`` if they cannot be had."""

    def close(self) -> None:
        """End every process."""


class RankMessage(NamedTuple):
    """What a rank answered.

    Attributes:
        head: The decoded head.
        buffers: Elements of its tensors.
    """

    head: Any
    buffers: list[memoryview]


class RankLoss(NamedTuple):
    """How a rank was lost.

    Attributes:
        text: In words: how it ended, or what it sent that is no answer.
        place: Where it was.
        code: As of ``Ending``.
    """

    text: str
    place: Place
    code: int | None


class Stuck(NamedTuple):
    """What the ranks of a group did when it was ended.

    Attributes:
        answers: Answer of each rank that gave one.
        places: Where each other rank waited.
        lost: The ranks that were lost.
    """

    answers: dict[int, RankMessage]
    places: dict[int, Place]
    lost: dict[int, RankLoss]


class ProcessGroup:
    """A group.

    Args:
        launcher: Starts the ranks.
        count: Number of ranks.
    """

    def __init__(self, launcher: Launcher, count: int) -> None:
        self._launcher, self.count = launcher, count
        self._ranks: Sequence[Rank] = []
        self._is_spoiled = False

    def start(self) -> None:
        """Start the ranks, unless they run.

        Raises:
            UnavailableError: They cannot be started, or do not find each other.
        """
        if self._ranks:
            return
        try:
            self._ranks = self._launcher.launch(self.count)
            # Starting a server and joining a group may each take as long as a case.
            self._launcher.worker.wait_for(())
            until = time.monotonic() + _START_S
            for rank in self._ranks:
                _check_joined(rank.wire.receive(until)[0])
            self._launcher.worker.wait_for(())
        except (OSError, WireError) as error:
            self.end()
            message = f"{self.count} ranks cannot be started here: {error}. {self._launcher.advice}"
            raise UnavailableError(message) from error

    def exchange(
        self, head: bytes, buffers: Sequence[bytes | memoryview], decode: Callable[[bytes], Any]
    ) -> dict[int, RankMessage] | Stuck:
        """Send a message to all ranks and return their answers, or how they stand if one of them never answers.

        Args:
            head: Head of the message.
            buffers: Its buffers.
            decode: Returns the head of an answer; raises ``ValueError`` if it is none.

        Raises:
            HostLostError: All ranks ended in the same way; a worker ends in that way itself.
        """
        self.start()
        worker = self._launcher.worker
        worker.wait_for(range(self.count))
        for each in self._ranks:
            try:
                each.send(head, buffers)
            except WireError:
                # Its node may be lost, and not that one alone: none of their other ranks is waited for then.
                self._looks(range(self.count))
        answers: dict[int, RankMessage] = {}
        lost: dict[int, RankLoss] = {}
        looks: dict[int, Look] = {}
        since = time.monotonic()
        while len(answers) + len(lost) < self.count:
            waiting = {
                each.wire.read_fd: rank for rank, each in enumerate(self._ranks) if rank not in {*answers, *lost}
            }
            has_received = self._receive(waiting, decode, answers, lost)
            left = [rank for rank in waiting.values() if rank not in {*answers, *lost}]
            seen, looks = looks, self._looks(left)
            # A child that it has forked keeps the pipe of a rank open after its end.
            lost |= {rank: self._loss(rank, GoneError()) for rank in left if rank not in looks}
            worker.wait_for(_suspects(looks))
            is_running = self._launcher.sees_threads and any(look.is_running for look in looks.values())
            if has_received or _places(looks) != _places(seen) or is_running:
                since = time.monotonic()
            # Outside of a collective a rank may sleep and then go on.
            elif time.monotonic() - since > self._launcher.silence_s and _are_in_collectives(looks):
                break
        worker.wait_for(())
        if len(answers) == self.count:
            if self._is_spoiled:
                self.end()
            return answers
        self.end()
        codes = {one.code for one in lost.values()}
        if len(lost) == self.count and len(codes) == 1 and None not in codes:
            self._give_up(next(iter(lost.values())))
        places = {rank: look.place for rank, look in looks.items() if rank not in lost}
        return Stuck(answers, places, dict(sorted(lost.items())))

    def _looks(self, ranks: Collection[int]) -> dict[int, Look]:
        """Return what each rank does that has not ended."""
        for rank in ranks:
            self._ranks[rank].inquire()
        return {rank: look for rank in ranks if (look := self._ranks[rank].look())}

    def _receive(
        self,
        waiting: Mapping[int, int],
        decode: Callable[[bytes], Any],
        answers: dict[int, RankMessage],
        lost: dict[int, RankLoss],
    ) -> bool:
        """Take what arrives from the ranks that are waited for, by descriptor; return whether anything did."""
        ready, _, _ = select.select(list(waiting), [], [], _LOOK_S)
        for fd in ready:
            rank = waiting[fd]
            try:
                found = self._ranks[rank].wire.receive()
                self._is_spoiled |= found[0][:1] != USABLE
                answers[rank] = RankMessage(decode(found[0][1:]), found[1])
            except (WireError, ValueError) as error:
                lost[rank] = self._loss(rank, error)
        return bool(ready)

    def _loss(self, rank: int, error: Exception) -> RankLoss:
        """Return how a rank was lost that closed its pipe, or sent something that is no answer."""
        found = self._ranks[rank]
        if not isinstance(error, GoneError):
            return RankLoss(f"sent an invalid answer ({error}) and was ended", found.place, 1)
        text, code = found.ending()
        return RankLoss(text, found.place, code)

    def _give_up(self, loss: RankLoss) -> NoReturn:
        """Raise the error of ranks that all ended in the same way; a worker ends in that way itself."""
        said = f"all {self.count} ranks of candidate '{self._launcher.candidate}' {loss.text}."
        lost = HostLostError(said, loss.code or 0)
        # After a fault of our own code in the ranks, this worker must not end as if the candidate had crashed.
        if self._launcher.worker.is_isolated and loss.code != OWN_FAULT:
            end_as(lost)
        raise lost

    def end(self) -> None:
        """End all ranks."""
        ranks, self._ranks = self._ranks, []
        self._is_spoiled = False
        for rank in ranks:
            rank.end()


def start_or_close(group: ProcessGroup, launcher: Launcher) -> None:
    """Start the ranks of a group; if they cannot be started, close their launcher and raise why."""
    try:
        group.start()
    except UnavailableError:
        launcher.close()
        raise


def _check_joined(said: bytes) -> None:
    """Raise ``OSError`` if a rank says why it could not join its group."""
    if said != READY:
        raise OSError(said.decode(errors="replace"))


def _are_in_collectives(looks: Mapping[int, Look]) -> bool:
    """Whether each rank is in a collective."""
    return all(look.place.collective for look in looks.values())


def _places(looks: Mapping[int, Look]) -> dict[int, Place]:
    """Return where each rank is."""
    return {rank: look.place for rank, look in looks.items()}


def _suspects(looks: Mapping[int, Look]) -> Collection[int]:
    """Return the ranks that others may wait for: those that are in no collective; all if all are in one."""
    return [rank for rank, look in looks.items() if not look.place.collective] or list(looks)
