"""The server that forks ranks: a process that has imported PyTorch and run nothing.

A worker starts it when it builds the candidate, before any test runs. A forked rank costs milliseconds, where a spawned
one imports PyTorch first, and it can run backward passes, which a fork of a process that has run one cannot. The server
ends with its worker, and the ranks end with the server.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import json
import mmap
import os
import signal
import socket
import struct
import sys
import tempfile
from typing import TYPE_CHECKING, Final

import torch

from ci_autotest.backends.ranks.process_activity import could_run
from ci_autotest.backends.ranks.process_group import Look
from ci_autotest.backends.ranks.rank_process import PLACE_BYTES, RankProcess, read_place
from ci_autotest.errors import UnavailableError
from ci_autotest.host.wire import Wire

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ci_autotest.backends.ranks.rank_process import Answering

_JOB_BYTES: Final = 1 << 14
_DESCRIPTORS: Final = 4
_PID: Final = struct.Struct("<i")
_PRELOADED: Final = ("torch._dynamo", "torch.distributed.tensor", "torch.distributed._functional_collectives")
#: Source: prctl(2).
_PR_SET_PDEATHSIG: Final = 1
#: The system's own folder of the files that a process has open: opened there, a file without a name has a place of its
#: own in it and a lock of its own, which the ranks' store needs.
_OPEN_FILES: Final = "/proc/self/fd"
IS_LINUX: Final = sys.platform == "linux"


class LocalRank:
    """A rank's process on this machine.

    Args:
        pid: Its process id.
        wire: Frames to it and from it.
        place: Shared memory in which it writes where it is.
    """

    def __init__(self, pid: int, wire: Wire, place: mmap.mmap) -> None:
        self.pid, self.wire, self._place = pid, wire, place

    def look(self) -> Look:
        """Return what it does."""
        return Look(read_place(self._place), could_run(self.pid))

    def end(self) -> str:
        """End it."""
        with contextlib.suppress(OSError):
            os.kill(self.pid, signal.SIGKILL)
        with contextlib.suppress(OSError):
            self.wire.close()
        self._place.close()
        return "ended"


class RankServer:
    """One server.

    Args:
        candidate: Name of the candidate.
        answering: Makes what answers the messages in a rank's process, from its number and the number of ranks.
        backend: The backend, if it has no other ranks than processes.

    Attributes:
        advice: What to do where processes cannot be had.

    Raises:
        UnavailableError: This system is not Linux.
    """

    def __init__(self, candidate: str, answering: Callable[[int, int], Answering], backend: str = "") -> None:
        self.advice = "Run it on another machine." if backend else "Leave out `processes` to simulate them."
        if not IS_LINUX:
            what = f"backend {backend}" if backend else "processes: true"
            advice = "Remove the candidate here." if backend else "Leave it out to simulate the ranks."
            message = f"candidate '{candidate}': {what} needs Linux. {advice}"
            raise UnavailableError(message)
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        sys.stdout.flush()
        sys.stderr.flush()
        self._pid = os.fork()
        if self._pid == 0:
            ours.close()
            _serve(theirs, answering)
        theirs.close()
        self._socket = ours

    def launch(self, count: int) -> list[LocalRank]:
        """Return the processes of a new group.

        Raises:
            OSError: The server is gone, or there is no room for the processes.
        """
        # The file in which they find each other has no name, so that nothing is left however they and the worker end.
        with tempfile.TemporaryFile() as store:
            return [self._rank(rank, count, store.fileno()) for rank in range(count)]

    def _rank(self, rank: int, count: int, store: int) -> LocalRank:
        to_read, write_fd = os.pipe()
        read_fd, to_write = os.pipe()
        with tempfile.TemporaryFile() as file:
            file.write(bytes(PLACE_BYTES))
            file.flush()
            place = mmap.mmap(file.fileno(), PLACE_BYTES)
            job = json.dumps({"rank": rank, "ranks": count}).encode()
            socket.send_fds(self._socket, [job], [to_read, to_write, file.fileno(), store])
        for fd in (to_read, to_write):
            os.close(fd)
        answer = self._socket.recv(_PID.size)
        if len(answer) != _PID.size:
            message = "the server of ranks is gone"
            raise OSError(message)
        return LocalRank(_PID.unpack(answer)[0], Wire(read_fd, write_fd), place)

    def close(self) -> None:
        """End the server, and with it every rank."""
        self._socket.close()
        with contextlib.suppress(OSError):
            os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)


def _serve(listener: socket.socket, answering: Callable[[int, int], Answering]) -> None:
    """Fork a rank for each job until the worker is gone; never returns."""
    try:
        end_with_parent()
        # The worker's pipes must be closed here, or its parent would not see that it is gone.
        for fd in _open_descriptors():
            if fd > 2 and fd != listener.fileno():  # noqa: PLR2004 - the standard streams
                with contextlib.suppress(OSError):
                    os.close(fd)
        # Nobody waits for the ranks: with this the system removes them as they end.
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        preload()
        while True:
            data, descriptors, _, _ = socket.recv_fds(listener, _JOB_BYTES, _DESCRIPTORS)
            if not data:
                break
            pid = os.fork()
            if pid == 0:
                listener.close()
                _run(json.loads(data), descriptors, answering)
            for fd in descriptors:
                os.close(fd)
            listener.send(_PID.pack(pid))
    finally:
        os._exit(0)


def _run(job: dict[str, object], descriptors: Sequence[int], answering: Callable[[int, int], Answering]) -> None:
    """Be one rank; never returns."""
    try:
        end_with_parent()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        read_fd, write_fd, place_fd, store_fd = descriptors
        rank, ranks = int(str(job["rank"])), int(str(job["ranks"]))
        process = RankProcess(Wire(read_fd, write_fd), mmap.mmap(place_fd, PLACE_BYTES), rank, ranks)
        # Otherwise gloo asks for the address of this host's name, which a container may not have.
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
        process.serve(torch._C._distributed_c10d.FileStore(f"{_OPEN_FILES}/{store_fd}", ranks), answering)
    except BaseException as error:  # noqa: BLE001 - the process ends here
        sys.excepthook(type(error), error, error.__traceback__)
        os._exit(1)
    finally:
        os._exit(0)


def _open_descriptors() -> list[int]:
    try:
        return [int(name) for name in os.listdir(_OPEN_FILES)]  # noqa: PTH208 - numbers, not paths
    except OSError:
        return list(range(3, 256))


def preload() -> None:
    """Import what DTensor imports with its first operator: each rank of each group would do so."""
    for name in _PRELOADED:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)


def end_with_parent() -> None:
    """Make the system end this process when its parent dies, where the system can (Linux)."""
    parent = os.getppid()
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(0)
