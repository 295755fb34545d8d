"""The parent's side of one worker process: start it, exchange messages, watch it, and end it and its children.

What user code prints is kept in a file of bounded size, and read when a case fails.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from ci_autotest.run.frames import HEADER, decode_from_worker, frame, size_of
from ci_autotest.run.messages import CasesDone, Message
from ci_autotest.run.orphan_processes import TOKEN, end_children_of, new_token
from ci_autotest.run.progress_beacon import ProgressBeacon
from ci_autotest.run.resident_memory import MemoryWatch
from ci_autotest.run.worker_loss import Limit, OutOfTimeError, WorkerLostError, ending, silence_text
from ci_autotest.run.worker_start import Start, spawn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from ci_autotest.run.messages import FromWorker
    from ci_autotest.run.progress_beacon import Spot
    from ci_autotest.run.worker_start import Launch, ProcessHandle

_READ_BYTES: Final = 1 << 20
#: Seconds that a process may take to exit after its pipe was closed.
_GRACE_S: Final = 2.0
#: Seconds between two checks of a worker's memory and output.
_LOOK_S: Final = 0.05
#: Seconds that the fault handler has to print the stack of a silent worker.
_STACK_S: Final = 1.0
#: Seconds that a worker may take to import its frameworks.
_START_S: Final = 180.0
_GIB: Final = 1 << 30
#: Bytes of a case's output that are reported, from its end.
TAIL_BYTES: Final = 8192
#: Bytes that the file may take before everything but its end is dropped.
_KEPT_BYTES: Final = 1 << 20
#: Source: fallocate(2), FALLOC_FL_KEEP_SIZE and FALLOC_FL_PUNCH_HOLE.
_PUNCH: Final = 0x01 | 0x02


class Limits(NamedTuple):
    """Limits of one worker.

    Attributes:
        silence_s: Seconds without progress after which the worker is ended.
        memory_bytes: Resident memory above which the worker is ended; 0: no limit.
        echo: Receives what the worker prints, as it comes; ``None`` keeps only the end of it, for findings.
    """

    silence_s: float
    memory_bytes: int = 0
    echo: Callable[[bytes], None] | None = None


class WorkerProcess:
    """One worker process.

    Args:
        environ: The parent's environment; the worker gets it without secrets.
        limits: Its limits.
        added: Variables for this worker only, such as the GPU that it sees.
        launch: Starts the process; ``None`` spawns it.
    """

    def __init__(
        self,
        environ: Mapping[str, str],
        limits: Limits,
        added: Mapping[str, str] | None = None,
        launch: Launch | None = None,
    ) -> None:
        self._limits = limits
        self._token = new_token()
        self.beacon = ProgressBeacon.create()
        self._output = Output()
        to_read, self._to = os.pipe()
        self._from, to_write = os.pipe()
        passed = to_read, to_write, self.beacon.fd
        self._process: ProcessHandle = (launch or spawn)(
            Start(passed, self._output.fd, environ, {**(added or {}), TOKEN: self._token})
        )
        self._memory = MemoryWatch(self._process.pid, limits.memory_bytes)
        # The parent closes its copies, because a pipe ends only when every copy of its writing end is closed.
        os.close(to_read)
        os.close(to_write)
        self._buffer = bytearray()
        self._has_spoken = self._is_closed = False
        self._spot: Spot | None = None
        self._moved_at = self._looked_at = time.monotonic()

    def begin(self) -> None:
        """Forget the worker's progress and output before another task."""
        self.beacon.reset()
        self._output.begin()

    @property
    def fd(self) -> int:
        """The descriptor to wait on for messages."""
        return self._from

    def send(self, message: Message) -> None:
        """Send a message.

        Raises:
            WorkerLostError: The worker is gone.
        """
        self._moved_at = time.monotonic()
        view = memoryview(frame(message))
        try:
            while view:
                view = view[os.write(self._to, view) :]
        except BrokenPipeError:
            raise self._lost() from None

    def receive(self) -> FromWorker | None:
        """Read from the pipe, and return a message if one is complete; call when ``fd`` is ready.

        Raises:
            WorkerLostError: The pipe is closed, or something other than a message was written to it.
        """
        part = os.read(self._from, _READ_BYTES)
        if not part:
            raise self._lost()
        self._buffer += part
        return self.buffered()

    def buffered(self) -> FromWorker | None:
        """Return the next complete message that was already read, or ``None``."""
        if len(self._buffer) < HEADER.size:
            return None
        size = size_of(self._buffer)
        if size is None:
            reason = "wrote something other than a message to its pipe"
            raise self.fail(reason)
        if len(self._buffer) < HEADER.size + size:
            return None
        body = bytes(self._buffer[HEADER.size : HEADER.size + size])
        del self._buffer[: HEADER.size + size]
        if not self._has_spoken:
            self._has_spoken, self._moved_at = True, time.monotonic()
        try:
            return decode_from_worker(body)
        except msgspec.DecodeError as error:
            reason = f"sent a message that cannot be decoded ({error})"
            raise self.fail(reason) from error

    def check(self) -> None:
        """End the worker if it made no progress for too long or holds too much memory.

        Raises:
            WorkerLostError: The worker was ended.
        """
        now = time.monotonic()
        if now - self._looked_at < _LOOK_S:
            return
        self._looked_at = now
        self._echo()
        self._output.bound()
        self._check_memory()
        spot = self.beacon.read()
        silence_s = self._limits.silence_s
        # Until its first answer a worker imports frameworks, which may take longer than a case.
        if spot != self._spot:
            self._spot, self._moved_at = spot, now
        elif now - self._moved_at > (limit := silence_s if self._has_spoken else max(silence_s, _START_S)):
            reason = silence_text(limit, self.beacon.awaited())
            self._print_stack()
            self.kill()
            raise WorkerLostError(reason, spot, self._output.tail(), limit="time", calls=self.beacon.calls())

    def _echo(self) -> None:
        if self._limits.echo is not None and (printed := self._output.taken()):
            self._limits.echo(printed)

    def printed(self) -> str:
        """Return the end of what was printed since ``begin``."""
        return self._output.tail()

    def _check_memory(self) -> None:
        excess = self._memory.excess()
        if excess is not None:
            allowed = self._limits.memory_bytes
            reason = f"{excess}, more than its limit of {allowed / _GIB:.1f} GiB, and was ended"
            raise self.fail(reason, limit="memory")

    def _print_stack(self) -> None:
        """Make the fault handler print the stack of a silent worker; it answers SIGABRT even inside foreign code."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(self._process.pid, signal.SIGABRT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_STACK_S)

    def ask(self, message: Message, until: float | None = None) -> FromWorker:
        """Send a message and return the last part of its answer.

        Args:
            message: The message.
            until: Monotonic seconds to wait until; ``None`` waits without a deadline.

        Raises:
            WorkerLostError: The worker is gone, or made no progress for too long.
            OutOfTimeError: There was no answer by ``until``.
        """
        *_, answer = self.exchange(message, until)
        return answer

    def exchange(self, message: Message, until: float | None = None) -> Iterator[FromWorker]:
        """Send a message and yield the parts of its answer in order; the arguments are those of ``ask``.

        Raises:
            WorkerLostError: The worker is gone, or made no progress for too long.
            OutOfTimeError: There was no complete answer by ``until``.
        """
        self.send(message)
        with selectors.DefaultSelector() as selector:
            selector.register(self._from, selectors.EVENT_READ)
            while True:
                answer = self.receive() if selector.select(_LOOK_S) else None
                while answer is not None:
                    yield answer
                    if not isinstance(answer, CasesDone) or answer.last:
                        return
                    answer = self.buffered()
                self.check()
                if until is not None and time.monotonic() > until:
                    raise OutOfTimeError

    def kill(self) -> None:
        """End the worker and everything that it started, at once."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        # User code may have started processes outside the worker's group.
        end_children_of(self._token)

    def close(self) -> None:
        """End the worker and close its pipes and files; a second call does nothing."""
        if self._is_closed:
            return
        self._is_closed = True
        self.kill()
        for fd in (self._to, self._from):
            with contextlib.suppress(OSError):
                os.close(fd)
        self._echo()
        self._output.close()
        self.beacon.close()

    def fail(self, reason: str, limit: Limit = "") -> WorkerLostError:
        """End the worker because it broke a rule, and return the error to raise."""
        spot = self.beacon.read()
        self.kill()
        calls = self.beacon.calls()
        return WorkerLostError(reason, spot, self._output.tail(), calls=calls, limit=limit)

    def _lost(self) -> WorkerLostError:
        spot = self.beacon.read()
        try:
            code = self._process.wait(_GRACE_S)
        except subprocess.TimeoutExpired:
            return self.fail("closed its pipe")  # The process is still running.
        self.kill()
        is_killed = code == -signal.SIGKILL
        return WorkerLostError(
            ending(code), spot, self._output.tail(), is_killed=is_killed, calls=self.beacon.calls()
        )  # fmt: skip


class Output:
    """The file that one worker prints to.

    Dropped output becomes a hole at the beginning of the file. The worker keeps writing at its end meanwhile, so no new
    output is lost.
    """

    def __init__(self) -> None:
        """Create the file; it has no name, so no run leaves it behind, however it ends."""
        with tempfile.TemporaryFile() as file:
            self.fd = os.dup(file.fileno())
        # With O_APPEND the worker goes on at the new end after the file was cut, and leaves no gap before it.
        fcntl.fcntl(self.fd, fcntl.F_SETFL, os.O_APPEND)
        self._since = self._hole = self._taken = 0

    def begin(self) -> None:
        """Start a new task: ``tail`` returns only what is printed from now on."""
        self._since = os.fstat(self.fd).st_size

    def bound(self) -> None:
        """Drop all but the end of a file that has grown too large; call it regularly."""
        size = os.fstat(self.fd).st_size
        if size - self._hole < _KEPT_BYTES:
            return
        end = size - TAIL_BYTES
        if _punched(self.fd, self._hole, end):
            self._hole = end
        else:
            os.ftruncate(self.fd, 0)
            self._since = self._hole = 0

    def taken(self) -> bytes:
        """Return what was printed since the last call; what the file has dropped meanwhile is left out."""
        size = os.fstat(self.fd).st_size
        start = max(min(self._taken, size), self._hole)
        self._taken = size
        return os.pread(self.fd, size - start, start)

    def tail(self) -> str:
        """Return the end of what was printed since ``begin``."""
        size = os.fstat(self.fd).st_size
        start = max(min(self._since, size), size - TAIL_BYTES)
        return os.pread(self.fd, TAIL_BYTES, start).decode(errors="replace")

    def close(self) -> None:
        """Close the file."""
        os.close(self.fd)


def _punched(fd: int, start: int, end: int) -> bool:
    """Free the blocks from ``start`` to ``end``; return whether the system and the file system support it."""
    if sys.platform != "linux":
        return False
    length = ctypes.c_int64(end - start)
    return bool(ctypes.CDLL(None).fallocate(fd, _PUNCH, ctypes.c_int64(start), length) == 0)
