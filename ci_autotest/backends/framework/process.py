"""A host's process, seen from the worker: start it in the candidate's interpreter, exchange frames with it, end it."""

from __future__ import annotations

import faulthandler
import fcntl
import mmap
import os
import signal
import struct
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn, Protocol

import msgspec

from ci_autotest.backends.forks import ForkedProcess, fork
from ci_autotest.backends.framework.interpreter import HostHello
from ci_autotest.errors import AutotestError, UnavailableError
from ci_autotest.host.main import BOOT, PLACE_BYTES, main
from ci_autotest.host.sandbox_client import SandboxedProcess, SandboxJob, forked_in_sandbox
from ci_autotest.host.wire import GoneError, SilentError, Wire, WireError
from ci_autotest.values.process_end import exit_text
from ci_autotest.values.sandbox import sandbox_servers

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ci_autotest.backends.framework.interpreter import Interpreter

#: Seconds that an interpreter may take to import its framework.
START_S: Final = 120.0
_WAIT_S: Final = 5.0
_SIGNALLED: Final = 128
_PIPE_BYTES: Final = 1 << 18
_PLACE: Final = struct.Struct("=qq")
_PACKAGE: Final = str(Path(__file__).resolve().parents[2])


class HostLostError(AutotestError):
    """The host is gone.

    Args:
        message: Which host, and how it ended.
        code: Its exit status, or minus its signal.
        ending: How it ended, without its name; empty for what the code says.
    """

    def __init__(self, message: str, code: int, ending: str = "") -> None:
        super().__init__(message)
        self.code, self.ending = code, ending or exit_text(code)


class Host(Protocol):
    """What runs programs for a worker: one process, or one for each rank of a group."""

    @property
    def hello(self) -> HostHello:
        """What the host is."""

    def in_flight(self) -> tuple[int, int]:
        """Return the number of the job in flight and the index of its step; -2: backward pass, -1: none."""

    def send(self, message: object, buffers: Sequence[bytes | memoryview] = ()) -> None:
        """Send a message."""

    def is_ready(self, wait_s: float) -> bool:
        """Whether an answer begins to arrive within some seconds, or the host is gone."""

    def receive(self) -> tuple[bytes, list[memoryview]]:
        """Return the next answer."""

    def close(self) -> None:
        """End the host; a second call does nothing."""


class HostProcess:
    """One host.

    Args:
        interpreter: The interpreter and the framework.
        start_s: Seconds that it may take until it has imported the framework.
        waits: Whether to wait for that; if not, ``greet`` does.
        forks: Whether to fork this process, which has imported the framework and run nothing.
    """

    def __init__(
        self, interpreter: Interpreter, start_s: float = START_S, *, waits: bool = True, forks: bool = False
    ) -> None:
        """Start the host and wait until it has imported its framework.

        Raises:
            UnavailableError: It cannot be started, or cannot import what it needs.
        """
        self._interpreter = interpreter
        self._start_s = start_s
        self._is_closed, self._last_place = False, (-1, -1)
        interpreter.executable()  # which raises before anything is opened
        to_read, write_fd = os.pipe()
        read_fd, to_write = os.pipe()
        for fd in (write_fd, to_write):
            _widen(fd)
        # The host prints to a file until it has imported its framework, because that explains a failed import.
        # Afterwards it prints where this worker does.
        self._printed = tempfile.TemporaryFile()  # noqa: SIM115 - ``greet`` closes it
        with tempfile.TemporaryFile() as place:
            # Both sides map this file, so that the job in flight can be read after the host has crashed.
            place.write(bytes(PLACE_BYTES))
            place.flush()
            self._place = mmap.mmap(place.fileno(), PLACE_BYTES)
            output = os.dup(2)
            descriptors = to_read, to_write, output, place.fileno()
            kernels = msgspec.json.encode((dict(interpreter.replace), interpreter.scope)).decode()
            words = [*map(str, descriptors), interpreter.module, interpreter.device]
            words += [str(int(interpreter.is_rank)), kernels, *interpreter.folders]
            try:
                self._process = self._started(words, descriptors, forks=forks)
            except OSError as error:
                os.close(read_fd)
                os.close(write_fd)
                self._printed.close()
                fault = f"cannot be started: {error.strerror}"
                raise interpreter.unusable(fault) from error
            finally:
                for fd in (to_read, to_write, output):
                    os.close(fd)
            self.wire = Wire(read_fd, write_fd)
        self.hello = HostHello()
        if waits:
            self.greet()

    def _started(
        self, words: list[str], descriptors: tuple[int, ...], *, forks: bool
    ) -> ForkedProcess | SandboxedProcess | subprocess.Popen[bytes]:
        interpreter = self._interpreter
        if forks:
            return _forked(words, descriptors, self._printed.fileno())
        if interpreter.sandbox:
            served = _served(interpreter, words[len(descriptors) :], (*descriptors, self._printed.fileno()))
            if served is not None:
                return served
        return subprocess.Popen(
            interpreter.command(["-I", "-c", BOOT, _PACKAGE, *words]),
            stdin=subprocess.DEVNULL, stdout=self._printed, stderr=self._printed, pass_fds=descriptors,
            env=interpreter.environ(),
        )  # fmt: skip

    def greet(self) -> None:
        """Wait for the message that the host sends when it has imported its framework.

        Raises:
            UnavailableError: There is none, or it says that the import failed.
        """
        with self._printed as printed:
            self.hello = self._first_message(printed)

    def _first_message(self, printed: Any) -> HostHello:
        hello = self._hello()
        if isinstance(hello, HostHello) and not hello.error:
            return hello
        self.close()
        interpreter = self._interpreter
        if isinstance(hello, HostHello):
            fault = interpreter.import_failure(hello)
        elif hello:
            fault = f"{hello}. {interpreter.attempt()}"
        else:
            printed.seek(0)
            fault = interpreter.early_end(self._process.wait(), printed.read().decode(errors="replace").strip())
        message = f"candidate '{interpreter.candidate}': {interpreter.python} {fault}"
        raise UnavailableError(message)

    def _hello(self) -> HostHello | str:
        """Return the host's first message, or why there is none; empty text if the host is gone."""
        try:
            head = self.wire.receive(time.monotonic() + self._start_s)[0]
            return msgspec.json.decode(head, type=HostHello)
        except SilentError:
            return f"did not import {self._interpreter.module} within {self._start_s:g} s"
        except GoneError:
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(_WAIT_S)
            return ""
        except (WireError, ValueError, RecursionError):  # ValueError: not JSON, not a `HostHello`, or not UTF-8
            return "sent something that is not a host's first message"

    @property
    def pid(self) -> int:
        """Number of the process."""
        return self._process.pid

    def in_flight(self) -> tuple[int, int]:
        """Return the number of the job in flight and the index of its step; -2: backward pass, -1: none."""
        job, step = self._last_place if self._is_closed else _PLACE.unpack(self._place[:])
        return job, step

    def send(self, message: object, buffers: Sequence[bytes | memoryview] = ()) -> None:
        """Send a message.

        Raises:
            HostLostError: The host is gone.
        """
        try:
            self.wire.send(msgspec.json.encode(message), buffers)
        except WireError:
            raise self._lost() from None

    def is_ready(self, wait_s: float) -> bool:
        """Whether an answer begins to arrive within some seconds, or the host is gone."""
        return self.wire.is_ready(wait_s) or self.has_ended()

    def has_ended(self) -> bool:
        """Whether the process has ended; a child that it has forked may keep its pipe open."""
        return self._process.poll() is not None

    def receive(self) -> tuple[bytes, list[memoryview]]:
        """Return the next answer.

        Raises:
            HostLostError: The host is gone, or sent something that is not a frame.
        """
        if self.has_ended() and not self.wire.is_ready(0):
            raise self._lost()
        try:
            return self.wire.receive()
        except GoneError:
            raise self._lost() from None
        except WireError as error:
            raise self._lost(str(error)) from None

    def _lost(self, fault: str = "") -> HostLostError:
        # A host that closes its pipe is about to end. One that sent an invalid frame goes on, and must be killed.
        try:
            code = self._process.wait(0 if fault else _WAIT_S)
            # A sandbox ends with 128 and the number of the signal that its process ended by.
            is_signal = self._interpreter.sandbox and _SIGNALLED < code < _SIGNALLED + signal.NSIG
            code = _SIGNALLED - code if is_signal else code
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            code = 1
            ending = f"{f'sent {fault}' if fault else 'closed its pipe'} and was ended"
        else:
            ending = exit_text(code)
        place = self.in_flight()
        self.close()
        self._last_place = place
        return HostLostError(
            f"the host of candidate '{self._interpreter.candidate}', {self._interpreter.python}, {ending}.",
            code,
            ending,
        )

    def close(self) -> None:
        """End the host and close its pipes; a second call does nothing."""
        self._process.kill()
        self._process.wait()
        if not self._is_closed:
            self._is_closed = True
            self.wire.close()
            self._place.close()


def _served(interpreter: Interpreter, words: list[str], descriptors: tuple[int, ...]) -> SandboxedProcess | None:
    """Return a host from the server of the candidate's sandbox; ``None`` if there is none that can make one."""
    servers = sandbox_servers(os.environ)
    if interpreter.candidate not in servers.addresses:
        return None
    job = SandboxJob(words, interpreter.environ(), servers.memory_bytes)
    return forked_in_sandbox(servers.addresses[interpreter.candidate], job, descriptors)


def _forked(words: Sequence[str], descriptors: Sequence[int], printed: int) -> ForkedProcess:
    """Fork a host."""

    def work() -> None:
        for stream in (1, 2):
            os.dup2(printed, stream)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        main(words)

    return ForkedProcess(fork(work, {*descriptors, printed}))


def _widen(fd: int) -> None:
    """Make a pipe hold most batches whole, if the system can, so that the writer need not wait for the reader."""
    if sys.platform == "linux":
        with suppress(OSError):
            fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)


def end_as(lost: HostLostError) -> NoReturn:
    """End this worker as its host ended, so that a crash of the host counts as a crash of the case in flight."""
    sys.stderr.write(f"{lost}\n")
    sys.stderr.flush()
    faulthandler.disable()  # The host has printed the stack of the crash; this worker's stack would hide it.
    if lost.code < 0:
        # The handler of SIGKILL cannot be set, and need not be.
        signal.signal(-lost.code, signal.SIG_DFL) if -lost.code != signal.SIGKILL else None
        os.kill(os.getpid(), -lost.code)
        time.sleep(_WAIT_S)
    os._exit(lost.code if lost.code >= 0 else 1)
