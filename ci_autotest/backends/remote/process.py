"""A host's process, seen from the worker: started in the candidate's interpreter, spoken to, ended."""

from __future__ import annotations

import difflib
import faulthandler
import fcntl
import mmap
import os
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn

import msgspec

from ci_autotest.environments import RECIPES
from ci_autotest.errors import AutotestError, UnavailableError
from ci_autotest.host.main import BOOT, PLACE_BYTES
from ci_autotest.host.wire import GoneError, SilentError, Wire, WireError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

#: Seconds that an interpreter may take to import its framework.
START_S: Final = 120.0
#: How the boot of a host begins its refusal (``host/main.BOOT``).
_TOO_OLD: Final = "it is Python "
_WAIT_S: Final = 5.0
_PIPE_BYTES: Final = 1 << 18
_PLACE: Final = struct.Struct("=qq")
_SHOWN_CHARS: Final = 300
_SHOWN_LINES: Final = 3
_PACKAGE: Final = str(Path(__file__).resolve().parents[2])


class Hello(msgspec.Struct, frozen=True, kw_only=True):
    """What a host says of itself, or why it cannot be one.

    Attributes:
        version: Of the framework.
        libraries: Versions of Python and of what the framework computes with, by name.
        has_flags: Whether ``requires_grad`` and ``is_leaf`` exist there.
        shows_steps: Whether the value of every step can be seen.
        has_graph: Whether it can run a body as one graph.
        graph_has_backward: Whether the outputs of such a graph have gradients.
        error: Kind of what its import raised.
        message: What that said.
        name: The module that was not found.
    """

    version: str = ""
    libraries: dict[str, str] = {}
    has_flags: bool = True
    shows_steps: bool = True
    has_graph: bool = False
    graph_has_backward: bool = True
    error: str = ""
    message: str = ""
    name: str = ""


class Interpreter(NamedTuple):
    """Say where a candidate's framework is.

    Attributes:
        candidate: Its name, for messages.
        python: Path of the interpreter, or a name on PATH.
        module: The framework's module.
        device: ``cpu`` or ``cuda``.
        folders: Where the user's own modules are.
        replace: Dotted path of a function of the user's by operator that it answers instead of torch.
        env: Variables of the host's environment, beside those of the worker's.
    """

    candidate: str
    python: str
    module: str
    device: str
    folders: tuple[str, ...] = ()
    replace: Mapping[str, str] = MappingProxyType({})
    env: Mapping[str, str] = MappingProxyType({})


class HostLostError(AutotestError):
    """Say that a host is gone, and how it ended."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


class HostProcess:
    """Hold one host.

    Args:
        where: The interpreter and the framework.
        start_s: Seconds that it may take until it has imported the framework.
    """

    def __init__(self, where: Interpreter, start_s: float = START_S) -> None:
        """Start the host and wait until it has imported its framework.

        Raises:
            UnavailableError: It cannot be started, or cannot import what it needs.
        """
        self._where = where
        self._start_s = start_s
        self._is_closed, self._spot = False, (-1, -1)
        python = shutil.which(where.python)
        if python is None:
            message = (
                f"candidate '{where.candidate}': python: {where.python} {_not_there(where.python)}. "
                "Give the path of an interpreter, CPython 3.10 or newer."
            )
            raise UnavailableError(message)
        to_read, write_fd = os.pipe()
        read_fd, to_write = os.pipe()
        for fd in (write_fd, to_write):
            _widen(fd)
        with tempfile.TemporaryFile() as said, tempfile.TemporaryFile() as place:
            place.write(bytes(PLACE_BYTES))
            place.flush()
            self._place = mmap.mmap(place.fileno(), PLACE_BYTES)
            output = os.dup(2)
            descriptors = to_read, to_write, output, place.fileno()
            replace = msgspec.json.encode(dict(where.replace)).decode()
            words = [*map(str, descriptors), where.module, where.device, replace, *where.folders]
            try:
                self._process = subprocess.Popen(
                    [python, "-I", "-c", BOOT, _PACKAGE, *words],
                    stdin=subprocess.DEVNULL, stdout=said, stderr=said, pass_fds=descriptors,
                    env={**os.environ, **where.env},
                )  # fmt: skip
            except OSError as error:
                os.close(read_fd)
                os.close(write_fd)
                message = (
                    f"candidate '{where.candidate}': python: {where.python} cannot be started: {error.strerror}. "
                    "Give the path of an interpreter, CPython 3.10 or newer."
                )
                raise UnavailableError(message) from error
            finally:
                for fd in (to_read, to_write, output):
                    os.close(fd)
            self.wire = Wire(read_fd, write_fd)
            self.hello = self._greeted(said)

    def _greeted(self, said: Any) -> Hello:
        """Return what the host says when it has imported its framework."""
        hello = self._hello()
        if isinstance(hello, Hello) and not hello.error:
            return hello
        self.close()
        where = self._where
        if isinstance(hello, Hello):
            what = _cannot(hello, where)
        elif hello:
            what = f'{hello}. Try: {where.python} -c "import {where.module}"'
        else:
            said.seek(0)
            what = _fallen(self._process.wait(), said.read().decode(errors="replace").strip(), where)
        message = f"candidate '{where.candidate}': {where.python} {what}"
        raise UnavailableError(message)

    def _hello(self) -> Hello | str:
        """Return the host's first message, why there is none, or nothing where the host is gone."""
        try:
            said = self.wire.receive(time.monotonic() + self._start_s)[0]
            return msgspec.json.decode(said, type=Hello)
        except SilentError:
            return f"did not import {self._where.module} within {self._start_s:g} s"
        except GoneError:
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(_WAIT_S)
            return ""
        except (WireError, ValueError, RecursionError):  # the library's own errors, and text that is no UTF-8
            return "answers what is no greeting of a host"

    def spot(self) -> tuple[int, int]:
        """Return the number of the job in flight and the index of its step, -2 in a backward pass; -1 where none is."""
        job, step = self._spot if self._is_closed else _PLACE.unpack(self._place[:])
        return job, step

    def ask(self, message: object, buffers: Sequence[bytes | memoryview] = ()) -> None:
        """Send a message.

        Raises:
            HostLostError: The host is gone.
        """
        try:
            self.wire.send(msgspec.json.encode(message), buffers)
        except WireError:
            raise self._lost() from None

    def is_ready(self, wait_s: float) -> bool:
        """Whether an answer has begun to come within some seconds, or the host is gone."""
        return self.wire.is_ready(wait_s)

    def told(self) -> tuple[bytes, list[memoryview]]:
        """Return the next answer.

        Raises:
            HostLostError: The host is gone, or sent what is no frame.
        """
        try:
            return self.wire.receive()
        except WireError as error:
            raise self._lost(str(error)) from None

    def _lost(self, what: str = "") -> HostLostError:
        try:
            code = self._process.wait(_WAIT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            code = 1
            ended = f"sent {what} and was ended"
        else:
            ended = _ended(code)
        spot = self.spot()
        self.close()
        self._spot = spot
        return HostLostError(f"the host of candidate '{self._where.candidate}', {self._where.python}, {ended}.", code)

    def close(self) -> None:
        """End the host, and let go of its pipes; once."""
        self._process.kill()
        self._process.wait()
        if not self._is_closed:
            self._is_closed = True
            self.wire.close()
            self._place.close()


def _widen(fd: int) -> None:
    """Let a pipe hold most batches whole, where the system can: who writes one need not wait for who reads."""
    if sys.platform == "linux":
        with suppress(OSError):
            fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)


def end_as(lost: HostLostError) -> NoReturn:
    """End this worker as its host ended: a crash of the host is a crash of the case in flight."""
    sys.stderr.write(f"{lost}\n")
    sys.stderr.flush()
    faulthandler.disable()
    if lost.code < 0:
        signal.signal(-lost.code, signal.SIG_DFL) if -lost.code != signal.SIGKILL else None
        os.kill(os.getpid(), -lost.code)
        time.sleep(_WAIT_S)
    os._exit(lost.code if lost.code >= 0 else 1)


def _ended(code: int) -> str:
    if code >= 0:
        return f"ended with status {code}"
    try:
        return f"ended by signal {-code} ({signal.Signals(-code).name})"
    except ValueError:
        return f"ended by signal {-code}"


def _not_there(python: str) -> str:
    if os.sep not in python:
        return "is not on PATH"
    return "is not an executable file" if Path(python).exists() else "does not exist"


def _fallen(code: int, said: str, where: Interpreter) -> str:
    """Return how an interpreter ended that told nothing, and what to do."""
    if said.startswith(_TOO_OLD):
        version = said.removeprefix(_TOO_OLD).partition(",")[0]
        return f"is Python {version}; a host needs CPython 3.10 or newer. Give another under `python:`."
    if "Unknown option: -I" in said:
        return "is older than Python 3.4; a host needs CPython 3.10 or newer. Give another under `python:`."
    lines = [line for line in said.splitlines() if "<frozen " not in line and "most recent call" not in line]
    lines = lines[-1:] if "Traceback (most recent call last)" in said else lines[:_SHOWN_LINES]
    shown = " ".join(" ".join(lines).split())[:_SHOWN_CHARS].rstrip(".") or "it printed nothing"
    return (
        f"{_ended(code)} before {where.module} was imported: {shown}. "
        f'Try: {where.python} -c "import {where.module}", with CPython 3.10 or newer.'
    )


def _nearest(module: str) -> str:
    """Return the framework that a module's name may be meant for; nothing where it is none's misspelling."""
    known = {recipe.module for recipe in RECIPES.values()}
    return next(iter(difflib.get_close_matches(module, known - {module}, 1, 0.75)), "") if module not in known else ""


def _cannot(hello: Hello, where: Interpreter) -> str:
    """Return why a framework cannot be imported, and what to do."""
    if hello.name:
        framework = _nearest(hello.name) if hello.name == where.module else ""
        if framework:
            return f"has no module {hello.name!r}. Did you mean {framework!r}?"
        install = f"{where.python} -m pip install {hello.name.partition('.')[0]}"
        return f"has no module {hello.name!r}. Install it: {install}"
    said = hello.message.strip().splitlines()
    shown = said[0][:_SHOWN_CHARS].rstrip(".") if said else ""
    if hello.error == UnavailableError.__name__:
        return f"cannot take its replacements: {shown}"  # The framework is there: it says itself what is not.
    return f'cannot import {where.module}: {hello.error}: {shown}. Try: {where.python} -c "import {where.module}"'
