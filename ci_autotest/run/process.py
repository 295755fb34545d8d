"""The parent's side of one worker: started, spoken to, watched, ended with everything that it started."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final, Protocol, TypeAlias

import msgspec

from ci_autotest.run.messages import (
    FRAME_BYTES,
    HEADER,
    CasesDone,
    Message,
    decode_from_worker,
    frame,
)
from ci_autotest.run.place import Place

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ci_autotest.run.messages import FromWorker
    from ci_autotest.run.place import Spot

#: Bytes of a worker's output that are kept for its case.
OUTPUT_BYTES: Final = 4096
_READ_BYTES: Final = 1 << 20
_GRACE_S: Final = 2.0
#: Seconds that a worker may take to import its frameworks.
_START_S: Final = 180.0
#: The current folder is not on the worker's path: a `torch/` or `json.py` there would be imported
#: for the real one.
_START: Final = (
    "import sys; sys.path[:] = [p for p in sys.path if p]; sys.path.append(sys.argv.pop(1)); "
    "from ci_autotest.run.worker import main; main(sys.argv[1:])"
)
#: What a worker never sees: it runs foreign code.
_SECRET: Final = (
    "TOKEN", "KEY", "CREDENTIAL", "SECRET", "PASSWORD", "ACTIONS_RUNTIME", "ACTIONS_ID", "GITHUB_OUTPUT", "GITHUB_ENV",
    "GITHUB_PATH", "GITHUB_STEP_SUMMARY", "GITHUB_STATE",
)  # fmt: skip


class Handle(Protocol):
    """What is asked of a process that was started."""

    @property
    def pid(self) -> int:
        """Its id, and that of its group."""

    def wait(self, timeout: float | None = None) -> int:
        """Return its exit status, negative for a signal; ``subprocess.TimeoutExpired`` when it lives on."""


#: Starts a process: words, descriptors to read from and write to, where its output goes.
Launch: TypeAlias = "Callable[[Sequence[str], tuple[int, int], IO[bytes]], Handle]"


class WorkerLostError(Exception):
    """Say that a worker is gone: it died, was silent for too long, or sent what is no message.

    Attributes:
        reason: For the reader, ``ended by signal 11 (SIGSEGV)``.
        timed_out: Whether it was ended for silence.
        spot: Where it was.
        output: The end of what it printed.
    """

    def __init__(self, reason: str, spot: Spot, output: str, *, timed_out: bool = False) -> None:
        """Hold the reason."""
        super().__init__(reason)
        self.reason = reason
        self.spot = spot
        self.output = output
        self.timed_out = timed_out


class WorkerProcess:
    """Hold one spawned worker.

    Args:
        environ: The parent's environment; secrets are taken out.
        silence_s: Seconds without a move after which the worker is ended.
        launch: Starts the process otherwise than by spawning it.
    """

    def __init__(self, environ: Mapping[str, str], silence_s: float, launch: Launch | None = None) -> None:
        """Start the worker."""
        self._silence_s = silence_s
        self.place = Place.create()
        self._output: IO[bytes] = tempfile.TemporaryFile(prefix="ci-autotest-output-")  # noqa: SIM115 - kept open
        to_read, self._to = os.pipe()
        self._from, to_write = os.pipe()
        argv = [sys.executable, "-c", _START, package_folder(), str(to_read), str(to_write), str(self.place.path)]
        self._process: Handle = (
            launch(argv, (to_read, to_write), self._output)
            if launch is not None
            else subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=self._output, stderr=self._output,
                pass_fds=(to_read, to_write), start_new_session=True, env=worker_environ(environ),
            )
        )  # fmt: skip
        os.close(to_read)
        os.close(to_write)
        self._buffer = bytearray()
        self._has_spoken = False
        self._moves = -1
        self._moved_at = time.monotonic()

    @property
    def fd(self) -> int:
        """The descriptor to wait on."""
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
        """Return a message that has come in whole, or ``None``; call when ``fd`` is ready.

        Raises:
            WorkerLostError: The pipe is closed, or holds what is no message.
        """
        part = os.read(self._from, _READ_BYTES)
        if not part:
            raise self._lost()
        self._buffer += part
        return self.buffered()

    def buffered(self) -> FromWorker | None:
        """Return the next whole message that was read already, or ``None``."""
        if len(self._buffer) < HEADER.size:
            return None
        size = HEADER.unpack_from(self._buffer)[0]
        if size > FRAME_BYTES:
            what = f"announced a message of {size:,} bytes"
            raise self._broken(what)
        if len(self._buffer) < HEADER.size + size:
            return None
        body = bytes(self._buffer[HEADER.size : HEADER.size + size])
        del self._buffer[: HEADER.size + size]
        if not self._has_spoken:
            self._has_spoken, self._moved_at = True, time.monotonic()
        try:
            return decode_from_worker(body)
        except msgspec.DecodeError as error:
            what = f"sent what is no message ({error})"
            raise self._broken(what) from error

    def check(self) -> None:
        """End the worker when it has not moved for too long.

        Raises:
            WorkerLostError: It was ended.
        """
        now = time.monotonic()
        moves = self.place.read().moves
        if moves != self._moves:
            self._moves, self._moved_at = moves, now
        elif now - self._moved_at > (limit := self._silence_s if self._has_spoken else max(self._silence_s, _START_S)):
            spot = self.place.read()
            self.kill()
            reason = f"did not move for {limit:g} s and was ended"
            raise WorkerLostError(reason, spot, self._tail(), timed_out=True)

    def ask(self, message: Message) -> FromWorker:
        """Send a message and wait for the answer.

        Raises:
            WorkerLostError: The worker is gone, or was silent for too long.
        """
        self.send(message)
        with selectors.DefaultSelector() as selector:
            selector.register(self._from, selectors.EVENT_READ)
            while True:
                answer = self.receive() if selector.select(0.2) else None
                if answer is not None and not (isinstance(answer, CasesDone) and not answer.last):
                    return answer
                self.check()

    def kill(self) -> None:
        """End the worker and everything that it started, now."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def close(self) -> None:
        """End the worker and let go of its pipes and files."""
        self.kill()
        for fd in (self._to, self._from):
            with contextlib.suppress(OSError):
                os.close(fd)
        self._output.close()
        self.place.remove()

    def _broken(self, what: str) -> WorkerLostError:
        spot = self.place.read()
        self.kill()
        return WorkerLostError(what, spot, self._tail())

    def _lost(self) -> WorkerLostError:
        spot = self.place.read()
        try:
            code = self._process.wait(_GRACE_S)
        except subprocess.TimeoutExpired:
            return self._broken("closed its pipe")
        self.kill()
        return WorkerLostError(_ending(code), spot, self._tail())

    def _tail(self) -> str:
        size = self._output.seek(0, os.SEEK_END)
        self._output.seek(max(0, size - OUTPUT_BYTES))
        return self._output.read(OUTPUT_BYTES).decode(errors="replace")


def _ending(code: int) -> str:
    if code >= 0:
        return f"ended with status {code}"
    try:
        return f"ended by signal {-code} ({signal.Signals(-code).name})"
    except ValueError:
        return f"ended by signal {-code}"


def package_folder() -> str:
    """Return the folder that holds this package."""
    return str(Path(__file__).resolve().parents[2])


def worker_environ(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of foreign code: without secrets, one thread, the fault handler on."""
    kept = {name: value for name, value in environ.items() if not any(word in name.upper() for word in _SECRET)}
    return {**kept, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "PYTHONFAULTHANDLER": "1"}
