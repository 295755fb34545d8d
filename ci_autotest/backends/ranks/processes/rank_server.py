"""The server that forks ranks: a process that has imported PyTorch and run nothing.

A worker starts it when it builds the candidate, before any test runs. A forked rank costs milliseconds, where a spawned
one imports PyTorch first, and it can run backward passes, which a fork of a process that has run one cannot. The server
ends with its worker, and the ranks end with the server.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import mmap
import os
import signal
import socket
import struct
import sys
import tempfile
import time
from typing import TYPE_CHECKING, Final

import torch

from ci_autotest.backends.forks import fork
from ci_autotest.backends.ranks.processes.process_activity import could_run, has_ended
from ci_autotest.backends.ranks.processes.process_group import Ending, Look
from ci_autotest.backends.ranks.processes.rank_process import PLACE_BYTES, Place, RankProcess, read_place
from ci_autotest.backends.worker_side import ALONE, WorkerSide
from ci_autotest.errors import UnavailableError
from ci_autotest.host.main import OWN_FAULT
from ci_autotest.host.this_process import end_with_parent, name_rank
from ci_autotest.host.wire import Wire
from ci_autotest.values.process_end import exit_text
from ci_autotest.values.rank_servers import RANK_IMPORTS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ci_autotest.backends.ranks.processes.rank_process import RankAnswering

_JOB_BYTES: Final = 1 << 14
_DESCRIPTORS: Final = 4
_NUMBER: Final = struct.Struct("<i")
#: In place of an exit status: the process had closed its pipe, and was still there.
_STILL_THERE: Final = 1 << 30
#: Ranks of one machine communicate through its memory, so that none waits for a message that is on its way.
SILENCE_S: Final = 1.5
#: Seconds that a rank may take to end after it has closed its pipe.
_END_S: Final = 5.0
_LOOK_S: Final = 0.01
#: The system's own folder of the files that a process has open: opened there, a file without a name has a place of its
#: own in it and a lock of its own, which the ranks' store needs.
_OPEN_FILES: Final = "/proc/self/fd"
IS_LINUX: Final = sys.platform == "linux"


class LocalRank:
    """A rank's process on this machine.

    Args:
        server: What forked it.
        pid: Its process id.
        wire: Frames to it and from it.
        place: Shared memory in which it writes where it is.
    """

    def __init__(self, server: RankServer, pid: int, wire: Wire, place: mmap.mmap) -> None:
        self._server, self.pid, self.wire, self._place = server, pid, wire, place

    @property
    def place(self) -> Place:
        """Where it is."""
        return read_place(self._place)

    def send(self, head: bytes, buffers: Sequence[bytes | memoryview]) -> None:
        """Send it a message; raise ``WireError`` if it does not read it."""
        self.wire.send(head, buffers)

    def inquire(self) -> None:
        """Do nothing: what it does can be read at once."""

    def look(self) -> Look | None:
        """Return what it does; ``None`` if it has ended, and has left nothing to read."""
        if has_ended(self.pid) and not self.wire.is_ready(0):
            return None
        return Look(self.place, could_run(self.pid))

    def ending(self) -> Ending:
        """Return how it ended; one that has only closed its pipe is ended first."""
        try:
            code = self._server.exit_code(self.pid)
        except OSError:
            # The ranks end with their server, and without it there are no others.
            return Ending("ended with the process that had started it", -signal.SIGKILL)
        return Ending("closed its pipe and was ended" if code is None else exit_text(code), code or 0)

    def end(self) -> None:
        """End it."""
        with contextlib.suppress(OSError):
            os.kill(self.pid, signal.SIGKILL)
        with contextlib.suppress(OSError):
            self.wire.close()
        self._place.close()


class RankServer:
    """One server.

    Args:
        candidate: Name of the candidate.
        answering: Makes what answers the messages in a rank's process, from that process.
        backend: The backend, if it has no other ranks than processes.
        worker: The worker whose candidate they are.

    Attributes:
        candidate: Name of the candidate.
        worker: The worker.
        advice: What to do where processes cannot be had.
        silence_s: Seconds of silence after which ranks wait for ever.
        sees_threads: Whether a running thread says that a rank gets on.

    Raises:
        UnavailableError: This system is not Linux.
    """

    silence_s = SILENCE_S
    sees_threads = True

    def __init__(
        self,
        candidate: str,
        answering: Callable[[RankProcess], RankAnswering],
        backend: str = "",
        worker: WorkerSide | None = None,
    ) -> None:
        self.candidate, self.worker = candidate, worker or ALONE
        self.advice = "Run it on another machine." if backend else "Leave out `processes` to simulate them."
        if not IS_LINUX:
            what = f"backend {backend}" if backend else "processes: true"
            advice = "Remove the candidate here." if backend else "Leave it out to simulate the ranks."
            message = f"candidate '{candidate}': {what} needs Linux. {advice}"
            raise UnavailableError(message)
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._pid = fork(lambda: _serve(theirs, answering), {theirs.fileno()})
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
        return LocalRank(self, self._answer(), Wire(read_fd, write_fd), place)

    def exit_code(self, pid: int) -> int | None:
        """Return how a rank ended, as ``subprocess`` has it; ``None`` if it closed its pipe only, and was killed now.

        Raises:
            OSError: The server is gone.
        """
        self._socket.send(json.dumps({"pid": pid}).encode())
        code = self._answer()
        return None if code == _STILL_THERE else code

    def _answer(self) -> int:
        answer = self._socket.recv(_NUMBER.size)
        if len(answer) != _NUMBER.size:
            message = "the server of ranks is gone"
            raise OSError(message)
        number: int = _NUMBER.unpack(answer)[0]
        return number

    def close(self) -> None:
        """End the server, and with it every rank."""
        self._socket.close()
        with contextlib.suppress(OSError):
            os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)


def _serve(listener: socket.socket, answering: Callable[[RankProcess], RankAnswering]) -> None:
    """Fork a rank for each job until the worker is gone."""
    ranks: set[int] = set()
    preload()
    while True:
        data, descriptors, _, _ = socket.recv_fds(listener, _JOB_BYTES, _DESCRIPTORS)
        if not data:
            return
        job = json.loads(data)
        if not descriptors:
            ranks.discard(job["pid"])
            listener.send(_NUMBER.pack(_ending(job["pid"])))
            continue
        # Ranks of an earlier group, for which nobody has asked.
        ranks = {pid for pid in ranks if os.waitpid(pid, os.WNOHANG)[0] == 0}
        pid = os.fork()
        if pid == 0:
            listener.close()
            _run(job, descriptors, answering)
        for fd in descriptors:
            os.close(fd)
        ranks.add(pid)
        listener.send(_NUMBER.pack(pid))


def _ending(pid: int) -> int:
    """Return how a rank ended. One that only closed its pipe is killed: its group cannot go on."""
    until = time.monotonic() + _END_S
    while time.monotonic() < until:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        time.sleep(_LOOK_S)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return _STILL_THERE


def _run(job: dict[str, object], descriptors: Sequence[int], answering: Callable[[RankProcess], RankAnswering]) -> None:
    """Be one rank; never returns."""
    try:
        end_with_parent()
        read_fd, write_fd, place_fd, store_fd = descriptors
        rank, ranks = int(str(job["rank"])), int(str(job["ranks"]))
        name_rank(rank)
        process = RankProcess(Wire(read_fd, write_fd), mmap.mmap(place_fd, PLACE_BYTES), rank, ranks)
        # Otherwise gloo asks for the address of this host's name, which a container may not have.
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
        process.serve(torch._C._distributed_c10d.FileStore(f"{_OPEN_FILES}/{store_fd}", ranks), answering)
    except BaseException as error:  # noqa: BLE001 - the process ends here
        # Errors of a body are caught where it runs: this one is ours.
        sys.excepthook(type(error), error, error.__traceback__)
        os._exit(OWN_FAULT)
    finally:
        os._exit(0)


def preload() -> None:
    """Import what DTensor imports with its first operator: each rank of each group would do so."""
    for name in RANK_IMPORTS:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
