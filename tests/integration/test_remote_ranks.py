"""Ranks on the nodes of a cluster, without the cluster: real servers of ranks, two of them on this machine."""

from __future__ import annotations

import os
import signal
import socket
import struct
import time
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
import torch

import ci_autotest
from ci_autotest.backends.ranks.backend import DTensorBackend
from ci_autotest.backends.ranks.nodes import remote_ranks
from ci_autotest.backends.ranks.nodes.connection import wire_of
from ci_autotest.backends.ranks.nodes.gpu_ranks import GpuRanks
from ci_autotest.backends.ranks.nodes.rank_node import (
    End,
    Ended,
    Fork,
    Greeting,
    Inquiry,
    Report,
    Setup,
    _exceeds,
    _Ranks,
    interface_of,
)
from ci_autotest.backends.ranks.nodes.remote_ranks import Reception, RemoteRanks, _dealt, _store
from ci_autotest.backends.ranks.placement_draw import Meshes
from ci_autotest.backends.ranks.processes.process_group import ProcessGroup, Stuck
from ci_autotest.backends.ranks.processes.rank_server import SILENCE_S, RankServer
from ci_autotest.backends.ranks.training.module_backend import ModuleBackend
from ci_autotest.backends.worker_side import WorkerSide
from ci_autotest.errors import UnavailableError
from ci_autotest.host.wire import GoneError, Wire, WireError
from ci_autotest.kinds import DdpCandidate, DTensorCandidate
from ci_autotest.run.ray.rank_nodes import RankNode
from ci_autotest.values.process_memory import resident_bytes, share_bytes
from ci_autotest.values.rank_servers import RankServers
from tests import rank_operators
from tests.engine import judged, record
from tests.projects import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ci_autotest.backends.ranks.processes.rank_process import RankProcess

_ROOT = str(Path(__file__).resolve().parents[2])
_SECRET = "a secret of this test"  # noqa: S105 - of nothing else
_HOST = "127.0.0.1"
_RANKS = 3
#: Longer than a rank of this machine may sleep in a collective operation, and shorter than one of another machine.
_ON_ITS_WAY_S = 1.5 * SILENCE_S
_KILLED = "ended by signal 9 (SIGKILL)"


def candidate(**keys: Any) -> DTensorCandidate:
    own = {"name": "far", "ranks": _RANKS, "imports": ("tests.rank_operators",), **keys}
    return DTensorCandidate(processes=True, **own)


class Far:
    """A group of ranks on two nodes."""

    def __init__(self) -> None:
        self.nodes = [RankNode(_HOST, _SECRET) for _ in range(2)]
        addresses = [node.address() for node in self.nodes]
        self.servers = RankServers(addresses, _SECRET, rank_operators.MEMORY_BYTES)
        self.backend = self.backend_of(candidate())

    def restart(self, answer_s: float = 60.0) -> None:
        self.backend.close()
        self.backend = self.backend_of(candidate(), answer_s)

    def backend_of(self, row: DTensorCandidate, answer_s: float = 60.0) -> DTensorBackend:
        launcher = RemoteRanks(row, self.servers, [_ROOT], answer_s=answer_s, silence_s=SILENCE_S)
        meshes = Meshes(_RANKS, (_RANKS,))
        return DTensorBackend(row.name, meshes, ("Replicate",), processes=WorkerSide(), launcher=launcher)

    def judged(self, name: str) -> Any:
        operator = getattr(ci_autotest.torch.ops.remote, name)
        return judged(record(partial(_call, operator), test=name), self.backend).verdict

    def parents(self) -> list[int]:
        """Return the process that forked each rank of the group."""
        ranks = self.backend._processes[_RANKS]._ranks
        return [int(Path(f"/proc/{rank.pid}/stat").read_text().rpartition(")")[2].split()[1]) for rank in ranks]


def _call(operator: Any) -> object:
    return operator(ci_autotest.random_tensor(2, 7, 2, requires_grad=False))


def _linear() -> object:
    return ci_autotest.torch.nn.Linear(5, 3)(ci_autotest.random_tensor(2, 7, 5))


@pytest.fixture(scope="module")
def far() -> Iterator[Far]:
    found = Far()
    yield found
    found.backend.close()
    for node in found.nodes:
        node.close()


def test_launch__three_ranks_on_two_nodes__are_dealt_in_turn_and_aligned(far: Far):
    first, second, third = far.parents()

    assert first == third != second
    assert far.judged("locally").outcome == "aligned"
    assert judged(record(_linear, test="linear"), far.backend).verdict.outcome == "aligned"


def test_judged__ranks_that_share_a_batch_on_two_nodes__are_aligned(far: Far):
    row = DdpCandidate(name="ddp", ranks=2)
    with closing(ModuleBackend("ddp", "ddp", 2, launcher=RemoteRanks(row, far.servers, [_ROOT]))) as backend:
        assert judged(record(_linear, test="linear"), backend).verdict.outcome == "aligned"


@pytest.mark.parametrize(
    ("name", "seen"),
    [
        ("differs", "rank 2 holds other bits than ranks 0 and 1"),
        ("ends", "rank 2 ended with status 3, ranks 0 and 1 went on"),
        ("waits", "rank 2 raised IndexError, ranks 0 and 1 wait for ever in all_reduce"),
        ("fills", "rank 2 held more memory than its limit of 1.0 GiB and was ended, ranks 0 and 1 went on"),
    ],
)
def test_judged__fault_of_a_rank__is_found_and_the_rank_named(far: Far, name: str, seen: str):
    verdict = far.judged(name)

    assert (verdict.outcome, verdict.kind, verdict.misalignment.candidate) == ("misaligned", "rank", seen)
    assert far.judged("right").outcome == "aligned"


def test_judged__mesh_of_two_dimensions_after_a_smaller_group__finds_its_ranks_by_the_first_store(far: Far):
    launcher = RemoteRanks(candidate(ranks=4), far.servers, [_ROOT])
    with closing(DTensorBackend("far", Meshes(4), processes=WorkerSide(), launcher=launcher)) as backend:
        smaller = DTensorBackend("far", Meshes(2), processes=WorkerSide(), launcher=launcher)
        outcomes = [judged(record(_linear, case, test="linear"), backend) for case in range(8)]
        meshes = {len(group) for group in backend._groups}

        assert ({each.verdict.outcome for each in outcomes}, meshes) == ({"aligned"}, {1, 2})
        del smaller


def test_store__address_of_this_machine__listens_there_and_nowhere_else():
    store = _store(_HOST)

    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    rows += [line.split() for line in Path("/proc/net/tcp6").read_text().splitlines()[1:]]
    listens = [row[1] for row in rows if row[3] == "0A" and row[1].endswith(f":{store.port:04X}")]
    assert listens == [f"0100007F:{store.port:04X}"]


def test_look__strangers_who_say_nothing_or_much__keep_no_rank_waiting_and_are_sent_away():
    with Reception(_HOST, _SECRET) as reception:
        silent, many, guess = (socket.create_connection(reception.address) for _ in range(3))
        many.sendall(struct.pack("<IIQ", 0, 1, 1 << 36))  # a frame of 64 GiB
        guess.sendall(frame(Greeting("a guess", 0)))
        rank = socket.create_connection(reception.address)
        said = frame(Greeting(_SECRET, 1))
        rank.sendall(said[:9])
        assert wait_until(lambda: reception.look(0.1) and has_begun(reception), 60)
        rank.sendall(said[9:])
        assert wait_until(lambda: reception.look(0.1) and 1 in reception.found, 60)

        assert (list(reception.found), len(reception._strangers)) == ([1], 1)
        assert [each.recv(1) for each in (guess, many)] == [b"", b""]
    assert silent.recv(1) == b""
    reception.found[1].close()
    for each in (silent, many, guess, rank):
        each.close()


def test_wire__rank_that_reads_nothing_or_stops_within_its_answer__is_gone_after_the_silence():
    with Reception(_HOST, _SECRET, 0.2) as reception, socket.create_connection(reception.address) as rank:
        rank.sendall(frame(Greeting(_SECRET, 0)))
        assert wait_until(lambda: reception.look(0.1) and 0 in reception.found, 60)
        wire = reception.found[0]
        rank.sendall(struct.pack("<II", 8, 0) + b"half")
        with pytest.raises(GoneError):
            wire.receive()
        with pytest.raises(WireError):
            wire.send(b"", [bytes(1 << 26)])
        wire.close()


def has_begun(reception: Reception) -> bool:
    return any(each.wire._buffer for each in reception._strangers.values())


def frame(message: msgspec.Struct) -> bytes:
    head = msgspec.json.encode(message)
    return struct.pack("<II", len(head), 0) + head


def test_reception__error_while_ranks_connect__closes_theirs_too():
    reception = Reception(_HOST, _SECRET)
    with socket.create_connection(reception.address) as rank:
        rank.sendall(frame(Greeting(_SECRET, 0)))
        assert wait_until(lambda: reception.look(0.1) and 0 in reception.found, 60)

        reception.__exit__(TimeoutError, TimeoutError(), None)

        assert rank.recv(1) == b""


class Late:
    """A rank whose answer waits in a collective operation for a message that is long on its way."""

    def __init__(self, process: RankProcess) -> None:
        self._process = process

    def answer(self, head: bytes, _: object) -> tuple[bytes, list[bytes | memoryview]]:
        self._process.enter_collective("all_reduce")
        time.sleep(_ON_ITS_WAY_S)
        return head, []


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # It forks, and may have threads.
def test_exchange__all_ranks_sleep_in_a_collective__wait_for_ever_after_the_silence_of_their_launcher():
    with closing(RankServer("late", Late)) as server:
        group = ProcessGroup(server, 2)
        server.silence_s = _ON_ITS_WAY_S / 5
        stuck = group.exchange(b"x", [], bytes.decode)
        server.silence_s = RemoteRanks(candidate(), RankServers([], _SECRET), []).silence_s
        answers = group.exchange(b"x", [], bytes.decode)

        assert isinstance(stuck, Stuck)
        assert {place.collective for place in stuck.places.values()} == {"all_reduce"}
        assert [answer.head for answer in dict(answers).values()] == ["x", "x"]
        group.end()


class Usable:
    """A rank that answers with its process id, and whose device returns errors after some messages."""

    def __init__(self, process: RankProcess) -> None:
        self._process = process

    def answer(self, head: bytes, _: object) -> tuple[bytes, list[bytes | memoryview]]:
        if head == b"spoil" and self._process.rank == 1:
            self._process.device = torch.device("cuda", 0)  # which no call can use here
        return str(os.getpid()).encode(), []


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU, on which nothing fails")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # It forks, and may have threads.
def test_exchange__device_of_a_rank_that_returns_errors__the_answers_count_and_the_group_starts_again():
    with closing(RankServer("spoiled", Usable)) as server:
        group = ProcessGroup(server, 2)
        heads = [sorted(answer.head for answer in dict(group.exchange(head, [], bytes.decode)).values())
                 for head in (b"right", b"spoil", b"right", b"right")]  # fmt: skip
        group.end()

    assert heads[0] == heads[1]
    assert heads[2] == heads[3]
    assert set(heads[1]).isdisjoint(heads[2])


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU, which a rank can use")
def test_start__rank_that_cannot_use_its_device__says_why_and_leaves_no_server(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    launcher = GpuRanks(DdpCandidate(name="own", ranks=2, device="cuda"), [_ROOT])
    with pytest.raises(UnavailableError) as refused:
        ModuleBackend("own", "ddp", 2, device="cuda", launcher=launcher)

    assert str(refused.value).startswith("2 ranks cannot be started here: rank 0: ")
    assert "cuda" in str(refused.value).lower()
    assert wait_until(lambda: not Path(f"/proc/{launcher._node.pid()}").exists(), 60)


class LateReception(Reception):
    """A reception of a worker that gets to it only when the ranks have ended."""

    def look(self, wait_s: float) -> bool:
        if not hasattr(self, "is_late"):
            self.is_late = True
            time.sleep(3)
            return False
        return super().look(wait_s)


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU, which a rank can use")
def test_start__ranks_have_ended_before_they_are_heard__says_why(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(remote_ranks, "Reception", LateReception)
    launcher = GpuRanks(DdpCandidate(name="own", ranks=2, device="cuda"), [_ROOT])
    with pytest.raises(UnavailableError, match=r"rank 0: .*cuda"):
        ModuleBackend("own", "ddp", 2, device="cuda", launcher=launcher)


def test_serve__stranger_without_the_secret__gets_no_answer(far: Far):
    wire = wire_of(socket.create_connection(far.servers.addresses[0]))
    wire.send(msgspec.json.encode(Setup("a guess", candidate(), [], 0)))

    with pytest.raises(GoneError):
        wire.receive()


@pytest.mark.parametrize(
    ("count", "room", "first", "places"),
    [
        (3, [16, 16], 0, [(0, 0), (1, 0), (0, 1)]),
        (5, [1, 3, 2], 0, [(0, 0), (1, 0), (2, 0), (1, 1), (2, 1)]),
        (2, [0, 2], 0, [(1, 0), (1, 1)]),
        (2, [4], 2, [(0, 2), (0, 3)]),
        (2, [4], 6, [(0, 2), (0, 3)]),
        (3, [4], 3, [(0, 3), (0, 0), (0, 1)]),
    ],
)
def test_dealt__nodes_with_room__get_ranks_in_turn(
    count: int, room: list[int], first: int, places: list[tuple[int, int]]
):
    assert _dealt(count, room, first) == places


def test_launch__fewer_gpus_than_ranks_are_left__is_one_sentence(far: Far):
    few = msgspec.structs.replace(far.servers, gpus=[1, 1])
    launcher = RemoteRanks(candidate(device="cuda"), few, [_ROOT])
    with closing(launcher), pytest.raises(OSError, match="3 ranks need a GPU each, and the nodes that are left have 2"):
        launcher.launch(3)


def test_judged__ranks_of_a_server_of_their_own_on_this_machine__are_aligned_and_end_with_it():
    # As on GPUs, which a fork of a process that has used one could not use.
    launcher = GpuRanks(DdpCandidate(name="own", ranks=2), [_ROOT])
    with closing(ModuleBackend("own", "ddp", 2, launcher=launcher)) as backend:
        assert judged(record(_linear, test="linear"), backend).verdict.outcome == "aligned"
        pids = [launcher._node.pid(), *(rank.pid for rank in backend._groups[2]._ranks)]
        assert all(Path(f"/proc/{pid}").exists() for pid in pids)

    assert wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids), 60)


def test_launch__module_that_a_node_lacks__is_one_sentence(far: Far):
    with pytest.raises(UnavailableError) as refused:
        far.backend_of(candidate(imports=("no_such_operators",)))

    said = f"candidate 'far': on node {_HOST}, module 'no_such_operators' of `import` cannot be imported"
    assert str(refused.value).startswith(said)


def test_launch__module_that_the_nodes_lack__is_refused_again_and_leaves_no_connection(far: Far):
    launcher = RemoteRanks(candidate(imports=("no_such_operators",)), far.servers, [_ROOT])
    before = [*Path("/proc/self/fd").iterdir()]
    for _ in range(2):
        with pytest.raises(UnavailableError, match="module 'no_such_operators' of `import` cannot be imported"):
            launcher.launch(2)

    assert len([*Path("/proc/self/fd").iterdir()]) <= len(before)


def test_launch__node_without_a_server__is_one_sentence(far: Far):
    with socket.create_server((_HOST, 0)) as listener:
        gone = RankServers([listener.getsockname()], _SECRET)
    with pytest.raises(OSError, match="every node of the cluster that had ranks is lost"):
        RemoteRanks(candidate(), gone, []).launch(2)


def test_judged__node_that_says_nothing_any_more__names_its_rank_and_goes_on_without_the_node(
    far: Far,
):
    far.restart(3.0)
    assert far.judged("right").outcome == "aligned"
    os.killpg(far.nodes[1].pid(), signal.SIGSTOP)

    lost = far.judged("right")

    assert "rank 1 was lost with its node" in lost.misalignment.detail
    assert len(set(far.parents())) == 1
    os.killpg(far.nodes[1].pid(), signal.SIGCONT)
    far.restart()
    assert len(set(far.parents())) == 2


def test_exchange__large_message_to_a_node_that_says_nothing__its_ranks_are_lost_and_no_others(far: Far):
    far.restart(2.0)
    far.parents()
    group = far.backend._processes[_RANKS]
    os.killpg(far.nodes[1].pid(), signal.SIGSTOP)

    stuck = group.exchange(b"{}", [bytes(1 << 26)], bytes.decode)

    os.killpg(far.nodes[1].pid(), signal.SIGCONT)
    assert isinstance(stuck, Stuck)
    assert [rank for rank, loss in stuck.lost.items() if loss.text == "was lost with its node"] == [1]
    far.restart()


def test_look__two_nodes_that_say_nothing__are_asked_before_either_is_waited_for(far: Far):
    launcher = RemoteRanks(candidate(), far.servers, [_ROOT], answer_s=2.0)
    with closing(launcher):
        ranks = launcher.launch(2)
        for node in far.nodes:
            os.killpg(node.pid(), signal.SIGSTOP)
        for rank in ranks:
            rank.inquire()
        first, second = (rank._server._until[0] for rank in ranks)

        assert ([rank.look() for rank in ranks], second - first < 1.0) == ([None, None], True)
        with pytest.raises(OSError, match="every node of the cluster that had ranks is lost"):
            launcher.launch(2)
        for node in far.nodes:
            os.killpg(node.pid(), signal.SIGCONT)
        for rank in ranks:
            rank.end()


def test_launch__rank_that_ends_before_it_connects__is_named_at_once(far: Far):
    with closing(RemoteRanks(candidate(), far.servers, [_ROOT])) as launcher:
        server = launcher._connected()[0]
        with socket.create_server((_HOST, 0)) as listener:
            nobody = listener.getsockname()
        pid = msgspec.json.decode(server.ask(Fork(0, 1, 0, nobody, nobody)), type=int)
        with Reception(_HOST, _SECRET) as reception, pytest.raises(GoneError, match="rank 0 ended with status"):
            launcher._meet(reception, [(server, pid)])


def test_judged__node_that_is_lost__names_its_rank_once_and_goes_on_without_the_node(far: Far):
    assert far.judged("right").outcome == "aligned"
    far.nodes[1].close()

    lost = far.judged("right")

    assert "rank 1 was lost with its node" in lost.misalignment.detail
    assert far.judged("right").outcome == "aligned"
    assert len(set(far.parents())) == 1


def test_close__worker_that_is_done__leaves_no_rank(far: Far):
    pids = [rank.pid for rank in far.backend._processes[_RANKS]._ranks]
    assert all(Path(f"/proc/{pid}").exists() for pid in pids)

    far.backend.close()

    assert wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids), 60)


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # It forks, and may have threads.
def test_answer__process_number_that_an_earlier_rank_had__is_a_rank_that_lives_until_it_is_ended():
    ours, theirs = socket.socketpair()
    with ours, socket.create_server((_HOST, 0)) as listener:
        ranks = _Ranks(Setup(_SECRET, candidate(), [], 0), _HOST, Wire(theirs.detach(), os.dup(ours.fileno())))
        earlier = Ended("ended with status 0", 0)
        ranks._ends |= dict.fromkeys(range(1, 1 << 22), earlier)  # every number that Linux has
        pid = ranks.answer(Fork(0, 1, 0, listener.getsockname(), listener.getsockname()))
        assert isinstance(pid, int)

        seen = ranks.answer(Inquiry(pid))

        assert (isinstance(seen, Report) and seen.lives, ranks.answer(End(pid))) == (True, Ended(_KILLED, None))
        assert not Path(f"/proc/{pid}").exists()
        # The worker asks once more: where it was, then how it ended.
        seen = ranks.answer(Inquiry(pid))
        assert (isinstance(seen, Report) and seen.lives, ranks.answer(End(pid))) == (False, Ended(_KILLED, None))
        assert ranks._places == {}
        ranks._wire.close()


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # It forks, and may have threads.
def test_exceeds__memory_that_forked_processes_share__counts_once_among_them():
    shared = bytearray(b"x" * (1 << 27))
    wait, go = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(go)
        os.read(wait, 1)  # until the test has ended
        os._exit(0)
    resident, share = resident_bytes(pid), share_bytes(pid)

    assert 0 < share < resident
    assert [_exceeds(pid, allowed) for allowed in ((share + resident) // 2, share // 2)] == [False, True]
    assert len(shared) == 1 << 27
    for end in (wait, go):
        os.close(end)
    os.waitpid(pid, 0)


def test_interface_of__address_of_this_machine_or_not__is_its_name_or_empty():
    assert (interface_of(_HOST), interface_of("192.0.2.255")) == ("lo", "")
