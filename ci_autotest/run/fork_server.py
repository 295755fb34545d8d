"""The fork server: imports the frameworks once and forks a fresh process for each job.

A spawned process costs one or two seconds of imports. A fork of a process that has run nothing costs milliseconds and
is just as fresh: no thread was started, no operator was called, no user file was imported.

This file imports only the standard library, so that a process can run its text without being able to import this
package: the scripts that it forks run with the package hidden. For workers it forks a server once that imports the
package too. Each job arrives as JSON with its descriptors over a Unix socket. For each job the server forks a keeper.
The keeper forks the job's process, sends its id, waits for it and sends its status.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import json
import os
import runpy
import signal
import socket
import struct
import sys
import time
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from collections.abc import Iterator

#: The form in which a keeper sends a process id, then a wait status.
NUMBER = struct.Struct("<i")
#: What a worker imports, the last two with its first test module.
_WORKER_IMPORTS = ("ci_autotest.run.worker.dispatch", "ci_autotest.testing", "numpy.random")
#: Does before the fork what torch does at the first use of some functions.
_FIRST_USE = "ci_autotest.backends.first_use"
#: Most bytes of a job.
JOB_BYTES = 1 << 16
_DESCRIPTORS = 5
#: Seconds that its children may take to end when a server ends, and between two looks.
_END_S, _LOOK_S = 1.0, 0.005
#: Source: prctl(2).
_PR_SET_PDEATHSIG = 1
#: Where the program found a variable at its start, and how long its value was.
_PLACES: dict[str, tuple[int | None, int]] = {}


def main(descriptor: int, package_folder: str, isolated_path: list[str], modules: list[str]) -> NoReturn:
    """Serve jobs until the parent is gone.

    Args:
        descriptor: The socket's descriptor.
        package_folder: The folder that contains this package, for the workers.
        isolated_path: Import path of the scripts, as ``python -I`` has it.
        modules: Modules to import before the first job.
    """
    _end_with_parent()
    _import(modules)
    signal.signal(signal.SIGCHLD, _reap)
    listener = socket.socket(fileno=descriptor)
    workers: socket.socket | None = None
    while True:
        job, descriptors = _next_job(listener, workers)
        if job["kind"] == "worker":
            workers = workers or _started_workers(listener, package_folder, descriptors)
            if not _send(workers, job, descriptors):
                workers.close()
                workers = _started_workers(listener, package_folder, descriptors)
                # If it cannot import the package it ends, and the job's pipe with it, which tells whoever waits.
                _send(workers, job, descriptors)
        elif job["kind"] == "script":
            _import(job["imports"])
            if os.fork() == 0:
                listener.close()
                if workers is not None:
                    workers.close()
                sys.path[:] = isolated_path
                _keep(job, descriptors)
        else:
            # The copy gets a copy of the server of workers, too.
            workers = workers or _started_workers(listener, package_folder, descriptors)
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            _send(workers, job, [theirs.fileno()])
            theirs.close()
            if os.fork() == 0:
                listener.close()
                workers.close()
                listener, workers = _copied(job, descriptors), ours
                continue
            ours.close()
        for opened in descriptors:
            os.close(opened)


def _import(modules: list[str]) -> None:
    with _without_collection():
        for name in modules:
            with contextlib.suppress(ImportError):
                importlib.import_module(name)


@contextlib.contextmanager
def _without_collection() -> Iterator[None]:
    """Import without looking for garbage: imports leave none, and looking takes a quarter of torch's import."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _reap(*_: object) -> None:
    """Remove the children that have ended, so that their processor time is counted as this process's."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _end() -> NoReturn:
    """End this process when whoever sends jobs is gone; what does not end by then is killed with it."""
    until = time.monotonic() + _END_S
    with contextlib.suppress(ChildProcessError):
        while time.monotonic() < until:
            if not os.waitpid(-1, os.WNOHANG)[0]:
                time.sleep(_LOOK_S)
    os._exit(0)


def _next_job(listener: socket.socket, workers: socket.socket | None = None) -> tuple[dict[str, Any], list[int]]:
    """Return the next job with its descriptors; this process and the server of workers end with whoever sends them."""
    data, descriptors, _, _ = socket.recv_fds(listener, JOB_BYTES, _DESCRIPTORS)
    if not data:
        if workers is not None:
            workers.close()
        _end()
    return json.loads(data), descriptors


def _send(workers: socket.socket, job: dict[str, Any], descriptors: list[int]) -> bool:
    """Send a job to the server of workers, and return whether that is still there."""
    try:
        socket.send_fds(workers, [json.dumps(job).encode()], descriptors)
    except OSError:
        return False  # Something outside killed it.
    return True


def _started_workers(listener: socket.socket, package_folder: str, descriptors: list[int]) -> socket.socket:
    """Fork the server of workers and return its socket; ``listener`` and ``descriptors`` are not for it."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    if os.fork() == 0:
        listener.close()
        ours.close()
        for opened in descriptors:
            os.close(opened)
        _serve_workers(theirs, package_folder)
    theirs.close()
    return ours


def _serve_workers(listener: socket.socket, package_folder: str) -> NoReturn:
    """Import what workers need, and fork a worker for each job."""
    try:
        _end_with_parent()
        sys.path.append(package_folder)
        with _without_collection():
            for name in _WORKER_IMPORTS:
                importlib.import_module(name)
            importlib.import_module(_FIRST_USE).prepare()
        while True:
            job, descriptors = _next_job(listener)
            _import(job.get("imports", []))
            if os.fork() == 0:
                listener.close()
                if job["kind"] == "worker":
                    _keep(job, descriptors)
                listener = _copied(job, descriptors)
                continue
            for opened in descriptors:
                os.close(opened)
    finally:
        os._exit(1)


def _copied(job: dict[str, Any], descriptors: list[int]) -> socket.socket:
    """Make this process a server of its own, with another environment and folder; return its socket."""
    _end_with_parent()
    os.setsid()
    os.chdir(job["folder"])
    for name in [name for name in os.environ if name not in job["environ"]]:
        del os.environ[name]
    _set_own_variables(job["environ"])
    return socket.socket(fileno=descriptors[0])


def _end_with_parent() -> None:
    """Make the system end this process when its parent dies, where the system can (Linux)."""
    parent = os.getppid()
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(0)


def _keep(job: dict[str, Any], descriptors: list[int]) -> NoReturn:
    """Fork the job's process, and send its id and its wait status."""
    _end_with_parent()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    status, output, *others = descriptors
    child = os.fork()
    if child == 0:
        os.close(status)
        os.setpgid(0, 0)
        _run(job, output, others)
    # The child does this too, but whoever receives the id may end the group before the child has run.
    with contextlib.suppress(OSError):
        os.setpgid(child, child)
    for opened in (output, *others):
        os.close(opened)
    os.write(status, NUMBER.pack(child))
    _, ended = os.waitpid(child, 0)
    os.write(status, NUMBER.pack(ended))
    os._exit(0)


def _run(job: dict[str, Any], output: int, others: list[int]) -> NoReturn:
    """Run the job in this process: a worker or a script."""
    code = 70
    try:
        _end_with_parent()
        nothing = os.open(os.devnull, os.O_RDONLY)
        for opened, wanted in ((nothing, 0), (output, 1), (output, 2)):
            os.dup2(opened, wanted)
        _set_own_variables({str(name): str(value) for name, value in job["own"].items()})
        if job["kind"] == "worker":
            work = importlib.import_module("ci_autotest.run.worker.main").main  # hidden from scripts
            work([str(opened) for opened in others])
        if not job["needs_package"]:
            sys.modules["ci_autotest"] = None  # type: ignore[assignment]
        code = _script(str(job["script"]), [str(path) for path in job["paths"]])
    except BaseException as error:  # noqa: BLE001 - the process ends here and reports only its status
        sys.excepthook(type(error), error, error.__traceback__)
        code = 1
    finally:
        # This process is a copy of the server and must not return into its loop, whatever fails here.
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _set_own_variables(own: dict[str, str]) -> None:
    """Set environment variables for this process and its children, and for what ``/proc`` shows of it.

    ``/proc/<pid>/environ`` shows the memory in which the program found its environment at its start. A forked process
    shares that text with its parent, so a value of the same length is also overwritten there.
    """
    system = ctypes.CDLL(None)
    system.getenv.restype = ctypes.c_void_p
    for name, value in own.items():
        key, text = name.encode(), value.encode()
        # After the first change the system's own copy is elsewhere.
        place, length = _PLACES.setdefault(name, (system.getenv(key), len(os.environb.get(key, b""))))
        if place and length == len(text):
            ctypes.memmove(place, text, length)
        os.environ[name] = value


def _script(path: str, paths: list[str]) -> int:
    """Run a script as ``python -I`` would, and return its exit status."""
    sys.path += paths
    sys.argv = [path]
    try:
        runpy.run_path(path, run_name="__main__")
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    return 0
