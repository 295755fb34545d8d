"""The fork server: imports the frameworks once and forks a fresh process for each job.

A spawned process costs one or two seconds of imports. A fork of a process that has run nothing costs milliseconds and
is just as fresh: no thread was started, no operator was called, no user file was imported.

This file imports only the standard library, so that ``python -I`` can run its text with this package hidden. Each job
arrives as JSON with its descriptors over a Unix socket. For each job the server forks a keeper. The keeper forks the
job's process, sends its id, waits for it and sends its status.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import json
import os
import runpy
import signal
import socket
import struct
import sys

#: The form in which a keeper sends a process id, then a wait status.
NUMBER = struct.Struct("<i")
_JOB_BYTES = 1 << 16
_DESCRIPTORS = 5
#: Source: prctl(2).
_PR_SET_PDEATHSIG = 1


def main(descriptor: int, modules: list[str], hidden: list[str]) -> None:
    """Serve jobs until the parent is gone.

    Args:
        descriptor: The socket's descriptor.
        modules: Modules to import before the first job.
        hidden: Modules that no job can import.
    """
    _end_with_parent()
    listener = socket.socket(fileno=descriptor)
    for name in modules:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    for name in hidden:
        sys.modules[name] = None  # type: ignore[assignment]
    # Nobody waits for the keepers: with this the system removes them as they end.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    listener.send(b".")  # `ForkClient.is_warm` waits for this byte.
    while True:
        data, descriptors, _, _ = socket.recv_fds(listener, _JOB_BYTES, _DESCRIPTORS)
        if not data:
            os._exit(0)
        if os.fork() == 0:
            listener.close()
            _keep(json.loads(data), descriptors)
        for opened in descriptors:
            os.close(opened)


def _end_with_parent() -> None:
    """Make the system end this process when its parent dies, where the system can (Linux)."""
    parent = os.getppid()
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(0)


def _keep(job: dict[str, object], descriptors: list[int]) -> None:
    """Fork the job's process, and send its id and its wait status."""
    _end_with_parent()
    # While the signal is ignored, `waitpid` finds no child.
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


def _run(job: dict[str, object], output: int, others: list[int]) -> None:
    """Run the job in this process: a worker or a script."""
    code = 70
    try:
        _end_with_parent()
        nothing = os.open(os.devnull, os.O_RDONLY)
        for opened, wanted in ((nothing, 0), (output, 1), (output, 2)):
            os.dup2(opened, wanted)
        _set_own_variables({str(name): str(value) for name, value in job["own"].items()})  # type: ignore[attr-defined]
        if job["kind"] == "worker":
            work = importlib.import_module("ci_autotest.run.worker.main").main  # hidden from scripts
            work([str(opened) for opened in others])
        if job["needs_package"]:
            for name in [name for name, module in sys.modules.items() if module is None]:  # type: ignore[redundant-expr]
                del sys.modules[name]
        code = _script(str(job["script"]), [str(path) for path in job["paths"]])  # type: ignore[attr-defined]
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
        if len(os.environb.get(name.encode(), b"")) == len(value.encode()):
            ctypes.memmove(system.getenv(name.encode()), value.encode(), len(value.encode()))
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
