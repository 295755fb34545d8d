"""Ranks on the nodes of a cluster, seen from the worker: each node has a server that forks them (``rank_node``).

The ranks of a group are dealt to the nodes in turn. They connect to the worker, and find each other through a store in
its process. A node that is lost gets no more ranks.
"""

from __future__ import annotations

import contextlib
import socket
import time
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

import msgspec
import torch

from ci_autotest.backends.ranks.connection import REACH_S
from ci_autotest.backends.ranks.node_server import LostNodeError, NodeServer, answers_of
from ci_autotest.backends.ranks.process_group import Ending, Look
from ci_autotest.backends.ranks.rank_node import End, Ended, Fork, Inquiry, Report, Setup
from ci_autotest.backends.ranks.rank_process import Place
from ci_autotest.backends.ranks.rank_reception import Reception
from ci_autotest.backends.ranks.worker_side import ALONE, WorkerSide
from ci_autotest.host.wire import GoneError, SilentError, WireError
from ci_autotest.program.distribution import RANKS_AT_MOST
from ci_autotest.values.rank_servers import RankServers

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ci_autotest.config import Candidate
    from ci_autotest.host.wire import Wire

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

    def __init__(self, server: NodeServer, pid: int, wire: Wire, store: Any) -> None:
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
        candidate: Candidate,
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
        self._servers: list[NodeServer] | None = None

    def launch(self, count: int) -> list[RemoteRank]:
        """Return the processes of a new group.

        Raises:
            OSError: Every node is lost.
            WireError: A rank did not connect in time.
            UnavailableError: A node lacks what the candidate needs.
        """
        while live := [server for server in self._connected() if server.is_alive]:
            with contextlib.suppress(LostNodeError):
                return self._group(live, count)
        raise OSError(self.all_lost)

    def close(self) -> None:
        """End every rank, with the connections to the servers."""
        for server in self._servers or ():
            server.close()
        self._servers = []

    def _connected(self) -> list[NodeServer]:
        if self._servers is None:
            servers: list[NodeServer] = []
            try:
                for address in self._room:
                    with contextlib.suppress(OSError):
                        servers.append(NodeServer(address, self._setup, self._answer_s))
                until = time.monotonic() + _SETUP_S
                for server in servers:
                    with contextlib.suppress(LostNodeError):
                        server.greet(until)
            except BaseException:
                for server in servers:
                    server.close()
                raise
            self._servers = servers
        return self._servers

    def _group(self, live: Sequence[NodeServer], count: int) -> list[RemoteRank]:
        places = _dealt(count, [self._room[server.address] for server in live], self._first)
        host = live[0].own_host
        store = _store(host)
        forked: list[tuple[NodeServer, int]] = []
        try:
            with Reception(host, self._setup.secret, self._answer_s) as reception:
                servers = [live[node] for node, _ in places]
                jobs = [
                    Fork(rank, count, local, reception.address, (host, store.port))
                    for rank, (_, local) in enumerate(places)
                ]
                answers = answers_of([*zip(servers, jobs, strict=True)])
                forked = [
                    (server, msgspec.json.decode(answer, type=int))
                    for server, answer in zip(servers, answers, strict=True)
                    if answer is not None
                ]
                for server in servers:
                    server.check()
                self._meet(reception, forked)
        except (OSError, WireError):
            answers_of([(server, End(pid)) for server, pid in forked])
            raise
        return [RemoteRank(*forked[rank], reception.found[rank], store) for rank in range(count)]

    def _meet(self, reception: Reception, forked: Sequence[tuple[NodeServer, int]]) -> None:
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


def _ended(forked: Sequence[tuple[NodeServer, int]]) -> dict[int, str]:
    """Return how ranks have ended; raise ``WireError`` if a node is lost."""
    found = {}
    for rank, answer in enumerate(answers_of([(server, Inquiry(pid)) for server, pid in forked])):
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
