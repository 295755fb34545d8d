"""Commands as forks of a process that has imported the command line: a command begins in a tenth of the time.

A test that looks at processes, signals or limits starts commands as users do (``fork_server.unused``). Each command has
a session, an environment and standard streams of its own, and ends as a program does.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import pkgutil
import runpy
import signal
import socket
import subprocess
import sys
import threading
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, TYPE_CHECKING, Any

from ci_autotest.run.fork_client import Child
from ci_autotest.run.fork_server import JOB_BYTES, NUMBER, _end_with_parent
from ci_autotest.run.worker_start import FORK_SERVER

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

#: What commands import, and none of it torch.
PACKAGES = ("ci_autotest.commands", "ci_autotest.report", "ci_autotest.page")
#: A variable whose name begins so is read when an interpreter, NumPy or the allocator starts.
AT_START = ("PYTHON", "LD_", "LC_", "LANG", "OMP_", "OPENBLAS_", "MKL_", "NPY_", "NUMPY_", "MALLOC_", "GLIBC_")
#: The socket of this process's server, once there is one, and its environment; the server ends with this process.
_held: list[tuple[socket.socket, subprocess.Popen[bytes], dict[str, str]]] = []


def command_run(
    words: Sequence[str], folder: Path, environ: Mapping[str, str], workers: int, timeout_s: float
) -> tuple[int, str, str] | None:
    """Run a command; return its status and what it wrote. Returns ``None`` if it has to be started as users do.

    Args:
        words: The command line.
        folder: Its working folder.
        environ: Its environment.
        workers: The descriptor of the fork server that it takes its workers from.
        timeout_s: Seconds after which it is ended.

    Raises:
        subprocess.TimeoutExpired: It was ended; what it wrote is in the error.
    """
    data = json.dumps({"words": list(words), "folder": str(folder), "environ": dict(environ)}).encode()
    server = start()
    if server is None or len(data) > JOB_BYTES or _is_other_at_start(environ):
        return None
    status, to_write = os.pipe()
    with TemporaryFile() as out, TemporaryFile() as err:
        try:
            socket.send_fds(server, [data], [to_write, out.fileno(), err.fileno(), workers])
        except OSError:  # The server is gone; the next command starts another.
            os.close(status)
            _end()
            return None
        finally:
            os.close(to_write)
        child = Child(status)
        is_late = False
        try:
            ended = child.wait(timeout_s)
        except subprocess.TimeoutExpired:
            is_late = True
            os.killpg(child.pid, signal.SIGTERM)
            ended = child.wait()
        texts = [_text(file) for file in (out, err)]
    if is_late:
        raise subprocess.TimeoutExpired(list(words), timeout_s, *texts)
    return ended, texts[0], texts[1]


def start() -> socket.socket | None:
    """Return the server's socket, or ``None``: it would end with a thread that starts it, so only the main thread does."""
    if not (_held or threading.current_thread() is threading.main_thread()):
        return None
    if not _held:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        words = [sys.executable, "-m", "tests.command_server", str(theirs.fileno())]
        process = subprocess.Popen(
            words,
            cwd=Path(__file__).parent.parent,
            # NumPy's pool of threads would be there when the server forks.
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
        )
        theirs.close()
        _held.append((ours, process, dict(os.environ)))
        atexit.register(_end)
    return _held[0][0]


def _is_other_at_start(environ: Mapping[str, str]) -> bool:
    """Whether a command needs other variables than the server was started with."""
    own = _held[0][2]
    return any(own.get(name) != environ.get(name) for name in {*environ, *own} if name.startswith(AT_START))


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode(errors="replace")


def _end() -> None:
    while _held:
        held, process, _ = _held.pop()
        held.close()
        process.wait()


def _serve(descriptor: int) -> None:
    """Fork a process for each job, which returns; the server does not."""
    for name in PACKAGES:
        for found in pkgutil.iter_modules(import_module(name).__path__, f"{name}."):
            import_module(found.name)
    import_module("ci_autotest.cli")
    listener = socket.socket(fileno=descriptor)
    while True:
        data, descriptors, _, _ = socket.recv_fds(listener, JOB_BYTES, 4)
        if not data:
            sys.exit()
        if os.fork() == 0:
            listener.close()
            _keep(descriptors[0], descriptors[1:])
            _become(json.loads(data), descriptors[1:])
            return
        for opened in descriptors:
            os.close(opened)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG) != (0, 0):
                pass


def _keep(status: int, others: Sequence[int]) -> None:
    """Fork the command's process, which returns; send its id and its status as a fork server's keeper does."""
    _end_with_parent()
    child = os.fork()
    if child == 0:
        _end_with_parent()
        os.close(status)
        os.setsid()
        return
    for opened in others:
        os.close(opened)
    os.write(status, NUMBER.pack(child))
    os.write(status, NUMBER.pack(os.waitpid(child, 0)[1]))
    os._exit(0)


def _become(job: Mapping[str, Any], descriptors: Sequence[int]) -> None:
    """Make this process what a shell would have started."""
    out, err, workers = descriptors
    os.chdir(job["folder"])
    os.environ.clear()
    os.environ.update({**job["environ"], FORK_SERVER: str(workers)})
    nothing = os.open(os.devnull, os.O_RDONLY)
    for opened, wanted in ((nothing, 0), (out, 1), (err, 2)):
        os.dup2(opened, wanted)
        os.close(opened)
    sys.argv[1:] = job["words"]
    sys.path[0] = job["folder"]


if __name__ == "__main__":
    _serve(int(sys.argv[1]))
    runpy.run_module("ci_autotest", run_name="__main__", alter_sys=True)
