"""The server of ranks on a node of a cluster: it forks the ranks of the workers that connect to it.

A process that has imported PyTorch and run nothing listens on a port. For each connection it forks a process, which
registers what the worker's candidate names, then forks ranks and says how they are. That process ends with its
connection, the ranks end with it, and everything ends with the process that started the server.
"""

from __future__ import annotations

import contextlib
import fcntl
import hmac
import mmap
import os
import signal
import socket
import struct
import sys
import time
from datetime import timedelta
from typing import TYPE_CHECKING, Final

import msgspec
import torch

from ci_autotest.backends.operators.user_operators import register
from ci_autotest.backends.ranks.nodes.connection import GREETING_BYTES, GREETING_S, REACH_S, connected, wire_of
from ci_autotest.backends.ranks.processes.process_activity import could_run
from ci_autotest.backends.ranks.processes.rank_answer import DTensorRank
from ci_autotest.backends.ranks.processes.rank_process import PLACE_BYTES, Place, RankProcess, read_place
from ci_autotest.backends.ranks.processes.rank_server import preload
from ci_autotest.backends.ranks.training.module_rank import ModuleRank
from ci_autotest.errors import UnavailableError
from ci_autotest.host.main import OWN_FAULT
from ci_autotest.host.this_process import end_with_parent, name_rank
from ci_autotest.host.wire import WireError
from ci_autotest.kinds import RankCandidate
from ci_autotest.values.process_end import exit_text
from ci_autotest.values.process_memory import resident_bytes, share_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ci_autotest.host.wire import Wire

_GIB: Final = 1 << 30
#: Source: netdevice(7), ``SIOCGIFADDR``: the address follows 20 bytes of the name and of the kind.
_ADDRESS_OF_INTERFACE: Final = 0x8915
_ADDRESS: Final = slice(20, 24)


class Setup(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The first message of a connection.

    Attributes:
        secret: That of the server.
        candidate: The candidate whose ranks are wanted; its device is that of each rank.
        folders: Appended to the import path.
        memory_bytes: Resident memory above which a rank is ended; 0: no limit.
    """

    secret: str
    candidate: RankCandidate
    folders: list[str]
    memory_bytes: int


class Fork(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="fork"):
    """Fork a rank; the answer is its process id.

    Attributes:
        rank: Its number.
        ranks: Number of ranks.
        local: Its number on its node.
        worker: Host and port to which it connects.
        store: Host and port where the ranks find each other.
    """

    rank: int
    ranks: int
    local: int
    worker: tuple[str, int]
    store: tuple[str, int]


class Inquiry(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="inquiry"):
    """Say what a rank does; the answer is a ``Report``."""

    pid: int


class End(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="end"):
    """End a rank; the answer is an ``Ended``."""

    pid: int


class Ended(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How a rank ended.

    Attributes:
        text: In words.
        code: Its exit status, or minus its signal; ``None`` if it was ended.
    """

    text: str
    code: int | None


class Report(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a rank does: the fields of ``Place``, whether a thread of it could run, and whether it has not ended."""

    step: int
    moves: int
    collective: str
    is_running: bool
    lives: bool

    @property
    def place(self) -> Place:
        """Where it is."""
        return Place(self.step, self.moves, self.collective)


class Greeting(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The first message of a rank to its worker."""

    secret: str
    rank: int


_SETUPS: Final = msgspec.json.Decoder(Setup)
_JOBS: Final = msgspec.json.Decoder(Fork | Inquiry | End)
_ANSWERING: Final = {"dtensor": DTensorRank, "ddp": ModuleRank, "fsdp": ModuleRank}


def main(argv: Sequence[str]) -> None:
    """Serve until the process that started this one is gone.

    Args:
        argv: The descriptor of the socket that listens; the first line of the standard input is the secret.
    """
    end_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Nobody waits for the processes of connections: with this the system removes them as they end.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    secret = sys.stdin.readline().strip()
    # torch asks the driver's library for GPUs then, and not the driver itself, after which no fork could use one.
    os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"
    preload()
    listener = socket.socket(fileno=int(argv[0]))
    while True:
        connection, _ = listener.accept()
        if os.fork() == 0:
            listener.close()
            _serve(connection, secret)
        connection.close()


def _serve(connection: socket.socket, secret: str) -> None:
    """Serve one worker until it is gone; never returns."""
    try:
        end_with_parent()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        address = connection.getsockname()[0]
        wire = wire_of(connection)
        setup = _SETUPS.decode(wire.receive(time.monotonic() + GREETING_S, GREETING_BYTES)[0])
        if not hmac.compare_digest(setup.secret.encode(), secret.encode()):
            os._exit(1)
        ranks = _Ranks(setup, address, wire)
        wire.send(msgspec.json.encode(_fault_of(setup)))
        while True:
            wire.send(msgspec.json.encode(ranks.answer(_JOBS.decode(wire.receive()[0]))))
    except (WireError, msgspec.DecodeError):  # The worker is gone, or a stranger has connected.
        os._exit(1)
    except BaseException as error:  # noqa: BLE001 - the process ends here
        sys.excepthook(type(error), error, error.__traceback__)
    finally:
        os._exit(0)


def _fault_of(setup: Setup) -> str:
    """Register the candidate's operators, and return why that cannot be done; empty if it can."""
    sys.path += [folder for folder in setup.folders if folder not in sys.path]
    try:
        register(setup.candidate)
    except UnavailableError as error:
        return str(error)
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        return "a module that the candidate imports uses a GPU while it is imported. Use it in functions only."
    return ""


class _Ranks:
    """The ranks of one worker on this node.

    Args:
        setup: The worker's first message.
        address: This node's address, as the worker knows it.
        wire: The wire to the worker, which a rank must not hold.
    """

    def __init__(self, setup: Setup, address: str, wire: Wire) -> None:
        self._setup, self._address, self._wire = setup, address, wire
        self._places: dict[int, mmap.mmap] = {}
        # Of ranks whose end the worker has asked for: it may ask again where one was, and how it ended.
        self._last: dict[int, Place] = {}
        self._ends: dict[int, Ended] = {}

    def answer(self, job: Fork | Inquiry | End) -> int | Report | Ended:
        """Do what the worker asks."""
        match job:
            case Fork():
                return self._fork(job)
            case Inquiry():
                return self._report(job.pid)
            case End():
                return self._end(job.pid)

    def _fork(self, job: Fork) -> int:
        place = mmap.mmap(-1, PLACE_BYTES)
        pid = os.fork()
        if pid == 0:
            self._wire.close()
            _run(job, self._setup, self._address, place)
        # The system gives a number again, and an earlier rank may have had it.
        self._ends.pop(pid, None)
        self._places[pid] = place
        return pid

    def _report(self, pid: int) -> Report:
        allowed = self._setup.memory_bytes
        if allowed and self._lives(pid) and _exceeds(pid, allowed):
            self._kill(pid)
            # Without what it held, which is another number in each run: what repeats must read the same.
            text = f"held more memory than its limit of {allowed / _GIB:.1f} GiB and was ended"
            self._ends[pid] = Ended(text, None)
        lives = self._lives(pid)
        place = read_place(self._places[pid]) if pid in self._places else self._last[pid]
        return Report(*place, lives and could_run(pid), lives)

    def _end(self, pid: int) -> Ended:
        if self._lives(pid):
            self._kill(pid)
        if place := self._places.pop(pid, None):
            self._last[pid] = read_place(place)
            place.close()
        return self._ends[pid]

    def _kill(self, pid: int) -> None:
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)
        self._ends[pid] = Ended(exit_text(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])), None)

    def _lives(self, pid: int) -> bool:
        """Whether a rank has not ended yet."""
        if pid not in self._ends:
            found, status = os.waitpid(pid, os.WNOHANG)
            if found:
                code = os.waitstatus_to_exitcode(status)
                self._ends[pid] = Ended(exit_text(code), code)
        return pid not in self._ends


def _exceeds(pid: int, allowed: int) -> bool:
    """Whether a process holds more memory than is allowed. What forked ranks share counts once among them."""
    try:
        held = resident_bytes(pid)
    except (OSError, ValueError):
        return False
    # The system walks all pages to know the share.
    return held > allowed and share_bytes(pid) > allowed


def _run(job: Fork, setup: Setup, address: str, place: mmap.mmap) -> None:
    """Be one rank; never returns."""
    try:
        end_with_parent()
        name_rank(job.rank)
        interface = interface_of(address)
        if interface:
            # Otherwise gloo asks for the address of this host's name, where no other node may reach it.
            os.environ.setdefault("GLOO_SOCKET_IFNAME", interface)
            os.environ.setdefault("NCCL_SOCKET_IFNAME", f"={interface}")
        # The worker may wait for nodes that are lost before it reads what this rank sends.
        wire = wire_of(connected(job.worker), REACH_S)
        wire.send(msgspec.json.encode(Greeting(setup.secret, job.rank)))
        store = torch._C._distributed_c10d.TCPStore(*job.store, is_master=False, timeout=timedelta(seconds=REACH_S))
        process = RankProcess(wire, place, job.rank, job.ranks, job.local, setup.candidate.device)
        process.serve(store, _ANSWERING[setup.candidate.backend])
    except BaseException as error:  # noqa: BLE001 - the process ends here
        sys.excepthook(type(error), error, error.__traceback__)
        os._exit(OWN_FAULT)
    finally:
        os._exit(0)


def interface_of(address: str) -> str:
    """Return the name of the network interface that has an IPv4 address; empty if none has."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        for _, name in socket.if_nameindex():
            with contextlib.suppress(OSError):
                found = fcntl.ioctl(any_socket.fileno(), _ADDRESS_OF_INTERFACE, struct.pack("256s", name.encode()))
                if socket.inet_ntoa(found[_ADDRESS]) == address:
                    return name
    return ""
