"""The parent's side of the fork server, which provides fresh workers and runs scripts within milliseconds.

The server starts with the first job.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from functools import cache, partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final

from ci_autotest.run import fork_server
from ci_autotest.run.orphan_processes import TOKEN, end_children_of, new_token
from ci_autotest.run.process import WorkerProcess
from ci_autotest.run.resident_memory import MemoryWatch
from ci_autotest.run.worker_start import FORK_SERVER, package_folder, worker_environ

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ci_autotest.kinds import AnyCandidate
    from ci_autotest.run.process import Limits
    from ci_autotest.run.worker_start import Start

#: Runs the server from its text, because its scripts run without the package. The current folder is not on the import
#: path: a `torch/` or `json.py` there would be imported instead of the real one.
_SERVE: Final = (
    "import sys; sys.path[:] = [p for p in sys.path if p]; exec(compile(sys.argv.pop(1), 'fork_server.py', 'exec')); "
    "main(int(sys.argv[1]), sys.argv[2], json.loads(sys.argv[3]), sys.argv[4:])"
)
#: What `torch.testing.assert_close` imports when it is first called, which takes a second.
SCRIPT_IMPORTS: Final = ("torch.distributed.tensor",)
#: What torch imports when a difference is judged, for gradients of given cotangents and some decompositions.
JUDGE_IMPORTS: Final = ("torch.fx.experimental.symbolic_shapes",)
#: Seconds that the server may take to import its frameworks.
_START_S: Final = 180.0
_CAN_FORK: Final = hasattr(os, "fork") and hasattr(socket, "send_fds")
#: Seconds that the server may take to end when its socket is closed.
_END_S: Final = 3.0
#: Times that a job is given to a server.
_TRIES: Final = 3
#: Seconds between two checks of a script.
_LOOK_S: Final = 0.05


class Child:
    """A process that the server forked, with the methods of ``subprocess.Popen`` that its owner needs.

    Args:
        status: Descriptor on which its id and its wait status arrive.

    Raises:
        OSError: The server is gone.
    """

    def __init__(self, status: int) -> None:
        self._status = status
        self._ended: int | None = None
        try:
            pid = self._number(_START_S)
        except subprocess.TimeoutExpired:
            pid = None
        if pid is None:
            os.close(status)
            message = "the fork server is gone"
            raise OSError(message)
        self.pid = pid

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit status, negative for a signal.

        Raises:
            subprocess.TimeoutExpired: The process is still running.
        """
        if self._ended is None:
            found = self._number(timeout)
            # The pipe is closed without a status if the keeper was killed; its process then gets SIGKILL too.
            self._ended = -signal.SIGKILL if found is None else os.waitstatus_to_exitcode(found)
            os.close(self._status)
        return self._ended

    def kill(self) -> None:
        """Kill the process and its group."""
        end_group(self.pid)

    def _number(self, timeout: float | None) -> int | None:
        """Return the next number from the keeper, or ``None`` if the pipe is closed."""
        ready, _, _ = select.select([self._status], [], [], timeout)
        if not ready:
            command = "a forked process"
            raise subprocess.TimeoutExpired(command, timeout or 0.0)
        data = os.read(self._status, fork_server.NUMBER.size)
        return fork_server.NUMBER.unpack(data)[0] if len(data) == fork_server.NUMBER.size else None


class ForkClient:
    """The fork server of a run: it forks workers, and runs scripts with this package hidden.

    Args:
        environ: The parent's environment; the processes get it without secrets.
        limits: The limits of each worker.
        modules: Modules that it imports besides those that every worker needs, such as a compiler.
        added: Variables for all of them, such as the GPU that they see.
    """

    def __init__(
        self,
        environ: Mapping[str, str],
        limits: Limits,
        modules: Sequence[str] = (),
        added: Mapping[str, str] | None = None,
    ) -> None:
        self._environ = environ
        self._limits = limits
        self._modules = tuple(modules)
        self._added = {**(added or {}), TOKEN: new_token()}
        self._socket: socket.socket | None = None
        self._processes: list[subprocess.Popen[bytes]] = []

    def start(self, added: Mapping[str, str] | None = None, imports: Sequence[str] = ()) -> WorkerProcess:
        """Return a fresh worker: a forked one, or a spawned one if the system cannot fork.

        Args:
            added: Variables for this worker only.
            imports: Modules that it will need, and that the server imports for all later workers.

        Raises:
            OSError: The system has no room for the files or the process of a worker.
        """
        own = {**self._added, **(added or {})}
        if _CAN_FORK:
            with contextlib.suppress(OSError):
                # If the fork fails, a spawned worker takes longer and is just as fresh.
                return WorkerProcess(self._environ, self._limits, own, partial(self._launch_worker, imports))
        return WorkerProcess(self._environ, self._limits, own)

    def run_script(
        self, script: Path, paths: Sequence[str], timeout_s: float, *, needs_package: bool = False
    ) -> int | None:
        """Run a script isolated and with this package hidden, and return its exit status.

        The status is ``None`` if the script took too long or too much memory. Processes that it started end with it.

        Args:
            script: A Python file.
            paths: Folders to append to its import path.
            timeout_s: Seconds that it may take.
            needs_package: Whether it may import this package.
        """
        own = {TOKEN: new_token()}
        # Only the exit status counts: what a repro prints is for the reader who runs it.
        with Path(os.devnull).open("wb") as output:
            job = {"paths": list(paths), "own": own, "needs_package": needs_package, "imports": SCRIPT_IMPORTS}
            child = self._fork({"kind": "script", "script": str(script), **job}, (output.fileno(),))
        try:
            return self._status(child, time.monotonic() + timeout_s)
        finally:
            end_group(child.pid)
            child.wait()
            end_children_of(own[TOKEN])

    def script(self, script: Path, own: Mapping[str, str], output: IO[bytes]) -> Child:
        """Start a script isolated, and return its process.

        Args:
            script: A Python file.
            own: Variables for it.
            output: A file for what it prints.
        """
        job = {"paths": [], "own": {**own, TOKEN: new_token()}, "needs_package": True, "imports": []}
        return self._fork({"kind": "script", "script": str(script), **job}, (output.fileno(),))

    def _status(self, child: Child, end: float) -> int | None:
        """Return the exit status of a script; ``None`` if it does not end in time or holds too much memory."""
        # A repro may take no more than a worker: it runs the same kernel.
        memory = MemoryWatch(child.pid, self._limits.memory_bytes)
        while time.monotonic() < end:
            with contextlib.suppress(subprocess.TimeoutExpired):
                return child.wait(_LOOK_S)
            if memory.excess() is not None:
                return None
        return None

    def close(self) -> None:
        """End the server and everything that it forked."""
        self._drop()
        for process in self._processes:
            # It ends by itself with its socket, and has then counted the time of what it forked.
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_END_S)
            end_group(process.pid)
            process.wait()
        end_children_of(self._added[TOKEN])
        self._processes = []

    def _drop(self) -> None:
        if self._socket is not None:
            self._socket.close()
        self._socket = None

    def _launch_worker(self, imports: Sequence[str], start: Start) -> Child:
        return self._fork(
            {"kind": "worker", "own": dict(start.added), "imports": list(imports)}, (start.output, *start.descriptors)
        )

    def _fork(self, job: dict[str, object], descriptors: tuple[int, ...]) -> Child:
        for _ in range(_TRIES - 1):
            # Something outside may kill the server, or what it has forked for the job.
            with contextlib.suppress(OSError):
                return self._forked(job, descriptors)
        return self._forked(job, descriptors)

    def _forked(self, job: dict[str, object], descriptors: tuple[int, ...]) -> Child:
        status, to_write = os.pipe()
        try:
            socket.send_fds(self._connected(), [json.dumps(job).encode()], [to_write, *descriptors])
        except OSError:
            # Only a server that is gone is given up: the workers of other slots end with it.
            self._drop()
            os.close(status)
            raise
        finally:
            os.close(to_write)
        return Child(status)

    def _connected(self) -> socket.socket:
        """Return the socket of the server, and start it before."""
        if self._socket is None:
            # This kind of socket keeps the bytes of one job together with its descriptors.
            self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            environ = {**worker_environ(self._environ), **self._added}
            if self._modules or not _ask_for_copy(self._environ.get(FORK_SERVER), theirs, environ):
                self._processes.append(start_server(theirs, environ, self._modules))
            theirs.close()
        return self._socket


def start_server(
    listener: socket.socket, environ: Mapping[str, str], modules: Sequence[str] = ()
) -> subprocess.Popen[bytes]:
    """Start a server that imports torch and ``modules``, and takes jobs from a socket."""
    text = Path(fork_server.__file__).read_text("utf-8")
    words = [package_folder(), json.dumps(_isolated_path()), "torch", *modules]
    return subprocess.Popen(
        [sys.executable, "-c", _SERVE, text, str(listener.fileno()), *words],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        pass_fds=(listener.fileno(),), start_new_session=True, env=dict(environ),
    )  # fmt: skip


def _ask_for_copy(given: str | None, listener: socket.socket, environ: Mapping[str, str]) -> bool:
    """Ask a server that is ready for a copy of itself in this process's folder; return whether there is one.

    Args:
        given: Descriptor of that server's socket, which this process was started with.
        listener: Where the copy takes jobs from.
        environ: Its environment.
    """
    job = json.dumps({"kind": "server", "environ": dict(environ), "folder": str(Path.cwd())}).encode()
    if given is None or len(job) > fork_server.JOB_BYTES:
        return False
    with contextlib.suppress(OSError, ValueError), socket.socket(fileno=os.dup(int(given))) as server:
        socket.send_fds(server, [job], [listener.fileno()])
        return True
    return False


@cache
def _isolated_path() -> list[str]:
    """Return the import path of ``python -I``."""
    done = subprocess.run(
        [sys.executable, "-I", "-c", "import json, sys; print(json.dumps(sys.path))"],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True,
    )  # fmt: skip
    found: list[str] = json.loads(done.stdout)
    return found


def preloaded(candidates: Sequence[AnyCandidate]) -> tuple[str, ...]:
    """Return the modules to preload for the candidates, besides those that every worker needs.

    Each fresh process of a finding would import them again, which takes two to four seconds.
    """
    return tuple(dict.fromkeys(name for candidate in candidates for name in candidate.imported_first))


def end_group(pid: int) -> None:
    """End the group of a process, which holds everything that it started."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
