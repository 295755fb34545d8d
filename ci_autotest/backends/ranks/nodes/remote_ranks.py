"""Ranks on the nodes of a cluster, seen from the worker: each node has a server that forks them (``rank_node``).

The ranks of a group are dealt to the nodes in turn. They connect to the worker, and find each other through a store in
its process. A node that is lost gets no more ranks.
"""

from __future__ import annotations

import contextlib
import hmac
import select
import socket
import time
from collections import deque
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec
import torch

from ci_autotest.backends.ranks.nodes.connection import GREETING_BYTES, GREETING_S, REACH_S, SEND_S, connected, wire_of
from ci_autotest.backends.ranks.nodes.rank_node import End, Ended, Fork, Greeting, Inquiry, Report, Setup
from ci_autotest.backends.ranks.processes.process_group import Ending, Look
from ci_autotest.backends.ranks.processes.rank_process import Place
from ci_autotest.backends.worker_side import ALONE, WorkerSide
from ci_autotest.errors import UnavailableError
from ci_autotest.host.wire import GoneError, SilentError, WireError
from ci_autotest.program.distribution import RANKS_AT_MOST
from ci_autotest.values.rank_servers import RankServers

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

    from typing_extensions import Self

    from ci_autotest.host.wire import Wire
    from ci_autotest.kinds import RankCandidate


#: Seconds that a server may take to import PyTorch and a candidate's modules.
_SETUP_S: Final = 120.0
#: Seconds that a server may take to answer, also on a machine that has much else to do: it only forks and looks.
#: With what a message to it may take before (`SEND_S`), less than the usual time limit of a case.
_ANSWER_S: Final = 20.0
#: Between machines a message may be on its way while all ranks sleep: a lost packet is sent again after up to some
#: seconds, and a network whose switch has failed needs some to find another way.
_SILENCE_S: Final = 20.0
_LOOK_S: Final = 0.5
_REPORTS: Final = msgspec.json.Decoder(Report)


def servers_in(text: str) -> RankServers:
    """Return the servers that the executor named in a variable."""
    return msgspec.json.decode(text, type=RankServers)


class RemoteRank:
    """A rank's process on a node.

    Args:
        server: What forked it.
        pid: Its process id there.
        wire: Frames to it and from it.
        store: Where its group finds each other, also later for a mesh of two dimensions.
    """

    def __init__(self, server: _NodeServer, pid: int, wire: Wire, store: Any) -> None:
        self._server, self.pid, self.wire, self._store = server, pid, wire, store
        self.place = Place(-1, 0, "")
        self._has_inquired = False

    def send(self, head: bytes, buffers: Sequence[bytes | memoryview]) -> None:
        """Send it a message; raise ``WireError`` if it does not read it, or its node is lost."""
        self._server.check()
        self.wire.send(head, buffers)

    def inquire(self) -> None:
        """Ask what it does."""
        self._server.post(Inquiry(self.pid))
        self._has_inquired = True

    def look(self) -> Look | None:
        """Return what it does; ``None`` if it has ended or its node is lost, and nothing is left to read."""
        if not self._has_inquired:
            self.inquire()
        self._has_inquired = False
        try:
            report = _REPORTS.decode(self._server.answer())
        except WireError:
            return None
        self.place = report.place
        if not report.lives and not self.wire.is_ready(0):
            return None
        return Look(report.place, report.is_running)

    def ending(self) -> Ending:
        """Return how it ended; one that has only closed its connection is ended first."""
        self.look()  # where it was
        try:
            found = msgspec.json.decode(self._server.ask(End(self.pid)), type=Ended)
        except WireError:
            return Ending("was lost with its node", None)
        return Ending(found.text, found.code)

    def end(self) -> None:
        """End it."""
        with contextlib.suppress(OSError):
            self.wire.close()
        with contextlib.suppress(WireError):
            self._server.ask(End(self.pid))


class RemoteRanks:
    """The ranks of a candidate on several nodes.

    Args:
        candidate: The candidate; its device is that of each rank.
        servers: Where the servers are.
        folders: Folders of the user's own modules.
        worker: The worker whose candidate they are.
        answer_s: Seconds of silence after which a server counts as lost.
        silence_s: Seconds of silence after which ranks wait for ever.
    """

    advice = "Look at the nodes of the cluster, or run without it."
    all_lost = "every node of the cluster that had ranks is lost"

    def __init__(
        self,
        candidate: RankCandidate,
        servers: RankServers,
        folders: Sequence[str],
        worker: WorkerSide = ALONE,
        answer_s: float = _ANSWER_S,
        silence_s: float = _SILENCE_S,
    ) -> None:
        self.candidate, self.worker, self.silence_s = candidate.name, worker, silence_s
        self._setup = Setup(servers.secret, candidate, [*folders], servers.memory_bytes)
        # Any number of ranks can share a CPU.
        room = servers.gpus if candidate.device != "cpu" else [RANKS_AT_MOST] * len(servers.addresses)
        self._room = dict(zip(servers.addresses, room, strict=True))
        self._first = servers.first
        self.sees_threads = candidate.device == "cpu"
        self._answer_s = answer_s
        self._servers: list[_NodeServer] | None = None

    def launch(self, count: int) -> list[RemoteRank]:
        """Return the processes of a new group.

        Raises:
            OSError: Every node is lost.
            WireError: A rank did not connect in time.
            UnavailableError: A node lacks what the candidate needs.
        """
        while live := [server for server in self._connected() if server.is_alive]:
            with contextlib.suppress(_LostNodeError):
                return self._group(live, count)
        raise OSError(self.all_lost)

    def close(self) -> None:
        """End every rank, with the connections to the servers."""
        for server in self._servers or ():
            server.close()
        self._servers = []

    def _connected(self) -> list[_NodeServer]:
        if self._servers is None:
            servers: list[_NodeServer] = []
            try:
                for address in self._room:
                    with contextlib.suppress(OSError):
                        servers.append(_NodeServer(address, self._setup, self._answer_s))
                until = time.monotonic() + _SETUP_S
                for server in servers:
                    with contextlib.suppress(_LostNodeError):
                        server.greet(until)
            except BaseException:
                for server in servers:
                    server.close()
                raise
            self._servers = servers
        return self._servers

    def _group(self, live: Sequence[_NodeServer], count: int) -> list[RemoteRank]:
        places = _dealt(count, [self._room[server.address] for server in live], self._first)
        host = live[0].own_host
        store = _store(host)
        forked: list[tuple[_NodeServer, int]] = []
        try:
            with Reception(host, self._setup.secret, self._answer_s) as reception:
                servers = [live[node] for node, _ in places]
                jobs = [
                    Fork(rank, count, local, reception.address, (host, store.port))
                    for rank, (_, local) in enumerate(places)
                ]
                answers = _answers_of([*zip(servers, jobs, strict=True)])
                forked = [
                    (server, msgspec.json.decode(answer, type=int))
                    for server, answer in zip(servers, answers, strict=True)
                    if answer is not None
                ]
                for server in servers:
                    server.check()
                self._meet(reception, forked)
        except (OSError, WireError):
            _answers_of([(server, End(pid)) for server, pid in forked])
            raise
        return [RemoteRank(*forked[rank], reception.found[rank], store) for rank in range(count)]

    def _meet(self, reception: Reception, forked: Sequence[tuple[_NodeServer, int]]) -> None:
        """Wait until all ranks have connected."""
        until = time.monotonic() + REACH_S
        while len(reception.found) < len(forked):
            if time.monotonic() > until:
                message = f"{len(reception.found)} of {len(forked)} ranks have connected to their worker"
                raise SilentError(message)
            known = len(reception.found)
            reception.look(_LOOK_S)
            if len(reception.found) > known:
                continue
            ended = _ended(forked)
            # One that ends may have connected since, and have said why it ends.
            while ended and reception.look(0) and time.monotonic() < until:
                pass
            for rank, text in ended.items():
                if rank not in reception.found:
                    message = f"rank {rank} {text} before all ranks had connected to their worker"
                    raise GoneError(message)


def _dealt(count: int, room: Sequence[int], first: int) -> list[tuple[int, int]]:
    """Return the position of each rank's node, and its number there: nodes get ranks in turn while they have room.

    Args:
        count: Number of ranks.
        room: How many ranks each node has room for.
        first: Which of all the places the first rank gets.

    Raises:
        OSError: There is no room for all.
    """
    if count > sum(room):
        message = f"{count} ranks need a GPU each, and the nodes that are left have {sum(room)}"
        raise OSError(message)
    places = sorted((local, node) for node, most in enumerate(room) for local in range(most))
    return [(node, local) for local, node in (places[(first + rank) % len(places)] for rank in range(count))]


def _ended(forked: Sequence[tuple[_NodeServer, int]]) -> dict[int, str]:
    """Return how ranks have ended; raise ``WireError`` if a node is lost."""
    found = {}
    for rank, answer in enumerate(_answers_of([(server, Inquiry(pid)) for server, pid in forked])):
        server, pid = forked[rank]
        server.check()
        if answer is not None and not _REPORTS.decode(answer).lives:
            found[rank] = msgspec.json.decode(server.ask(End(pid)), type=Ended).text
    return found


def _store(host: str) -> Any:
    """Return a store in which ranks find each other, for those who reach this machine at an address.

    By itself a store listens on every address of the machine, also where no node is.
    """
    with socket.create_server((host, 0)) as listener:
        port = listener.getsockname()[1]
        return torch._C._distributed_c10d.TCPStore(
            host,
            port,
            is_master=True,
            wait_for_workers=False,
            timeout=timedelta(seconds=REACH_S),
            master_listen_fd=listener.detach(),
        )


# The connection of a worker to the server of ranks on a node: it answers questions in their order, or is lost.


class _LostNodeError(WireError):
    """A server does not answer."""


class _NodeServer:
    """The connection to the server of a node.

    Args:
        address: Its host and port.
        setup: What it needs.
        answer_s: Seconds that it may take to answer.

    Attributes:
        address: Its host and port.
        is_alive: Whether it has answered so far.
        own_host: This machine's address, as that node reaches it.

    Raises:
        OSError: It cannot be reached.
    """

    def __init__(self, address: tuple[str, int], setup: Setup, answer_s: float) -> None:
        self.address = address
        connection = connected(address)
        self.own_host: str = connection.getsockname()[0]
        self._wire, self._answer_s, self.is_alive = wire_of(connection, answer_s), answer_s, True
        #: For each question without an answer yet, until when it is waited for, in monotonic seconds.
        self._until: deque[float] = deque()
        self._named = f"candidate '{setup.candidate.name}': on node {address[0]}"
        # Answered later (`greet`), so that all nodes import at once.
        self._send(setup)

    def greet(self, until: float) -> None:
        """Wait until it is ready to fork; ``until`` is in monotonic seconds.

        Raises:
            UnavailableError: Its node lacks what the candidate needs.
            LostNodeError: It does not answer.
        """
        fault = msgspec.json.decode(self._answer(until), type=str)
        if fault:
            self.close()
            message = f"{self._named}, {fault}"
            raise UnavailableError(message)

    def ask(self, question: msgspec.Struct) -> bytes:
        """Ask a question and return the answer.

        Raises:
            LostNodeError: There is none, now and later.
        """
        self.post(question)
        return self.answer()

    def post(self, question: msgspec.Struct) -> None:
        """Ask a question; answers come in the order of the questions."""
        self._until.append(time.monotonic() + self._answer_s)
        if self.is_alive:
            self._send(question)

    def answer(self) -> bytes:
        """Return the answer to the first question that has none yet.

        Raises:
            LostNodeError: There is none, now and later.
        """
        return self._answer(self._until.popleft())

    def check(self) -> None:
        """Raise ``_LostNodeError`` if it is lost."""
        if not self.is_alive:
            lost = "a node of the cluster is lost"
            raise _LostNodeError(lost)

    def _send(self, message: msgspec.Struct) -> None:
        with contextlib.suppress(WireError):  # It shows when the answer is read.
            self._wire.send(msgspec.json.encode(message))

    def _answer(self, until: float) -> bytes:
        self.check()
        try:
            return self._wire.receive(until)[0]
        except WireError as error:
            self.close()
            raise _LostNodeError(str(error)) from error

    def close(self) -> None:
        """End the connection, and with it this worker's ranks on the node; a second call does nothing."""
        if self.is_alive:
            self.is_alive = False
            with contextlib.suppress(OSError):
                self._wire.close()


def _answers_of(questions: Sequence[tuple[_NodeServer, msgspec.Struct]]) -> list[bytes | None]:
    """Ask all servers, then return what each answers; ``None`` for one that is lost."""
    for server, question in questions:
        server.post(question)
    found: list[bytes | None] = []
    for server, _ in questions:
        try:
            found.append(server.answer())
        except _LostNodeError:
            found.append(None)
    return found


# Where the ranks of a group connect to their worker, and where anybody else may connect too.


#: Connections that have not said yet who they are.
_STRANGERS_AT_MOST: Final = 64
_GREETINGS: Final = msgspec.json.Decoder(Greeting)


class _Stranger(NamedTuple):
    """Who has not said yet who it is; ``until`` is in monotonic seconds."""

    wire: Wire
    until: float


class Reception:
    """A port on which ranks say who they are. Nobody waits there for another one, who may say nothing.

    Args:
        host: This machine's address.
        secret: What a rank must say.
        silence_s: Seconds without a byte that a rank takes or gives in the middle of a frame after which it is gone.

    Attributes:
        address: Host and port.
        found: The wire of each rank that has said who it is.

    Raises:
        OSError: There is no port to be had.
    """

    def __init__(self, host: str, secret: str, silence_s: float = SEND_S) -> None:
        self._listener = socket.create_server((host, 0))
        self.address: tuple[str, int] = self._listener.getsockname()[:2]
        self._secret, self._silence_s = secret, silence_s
        self.found: dict[int, Wire] = {}
        self._strangers: dict[int, _Stranger] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        """Close the port, and every connection but those of the ranks; theirs too after an error."""
        self._listener.close()
        for stranger in self._strangers.values():
            stranger.wire.close()
        for wire in self.found.values() if error is not None else ():
            wire.close()

    def look(self, wait_s: float) -> bool:
        """Read what those who have connected say, for at most some seconds; return whether anybody said anything."""
        now = time.monotonic()
        for fd, stranger in [*self._strangers.items()]:
            if now > stranger.until:
                self._strangers.pop(fd).wire.close()
        listening = [self._listener.fileno()] if len(self._strangers) < _STRANGERS_AT_MOST else []
        ready = select.select([*listening, *self._strangers], [], [], wait_s)[0]
        for fd in ready:
            if fd in self._strangers:
                self._hear(fd)
            else:
                wire = wire_of(self._listener.accept()[0], self._silence_s, self._silence_s)
                self._strangers[wire.read_fd] = _Stranger(wire, now + GREETING_S)
        return bool(ready)

    def _hear(self, fd: int) -> None:
        wire = self._strangers[fd].wire
        try:
            greeting = _GREETINGS.decode(wire.receive(time.monotonic(), GREETING_BYTES)[0])
        except SilentError:  # It has only begun to say something.
            return
        except (WireError, msgspec.DecodeError):
            greeting = Greeting("", 0)
        del self._strangers[fd]
        if hmac.compare_digest(greeting.secret.encode(), self._secret.encode()):
            self.found[greeting.rank] = wire
        else:
            wire.close()
