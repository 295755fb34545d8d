"""The fork server: imports the frameworks once and forks a fresh process for each job.

A process of its own costs a second or two of imports; a fork of one that has run nothing costs milliseconds, and is as
fresh: no thread was started, no operator was called, no file of the user's was imported.

The rule kept here: standard library only, so that the text of this file can be run by ``python -I`` with this package
hidden. Each job comes as JSON with its descriptors over a Unix socket. A keeper, forked for each job, forks the job's
process, tells its id, waits for it and tells its status.
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

#: How a keeper tells a process id, then a wait status.
NUMBER = struct.Struct("<i")
_JOB_BYTES = 1 << 16
_DESCRIPTORS = 5
#: Source: prctl(2).
_PR_SET_PDEATHSIG = 1


def main(descriptor: int, modules: list[str], hidden: list[str]) -> None:
    """Serve jobs until the parent is gone.

    Args:
        descriptor: Of the socket.
        modules: Imported before the first job.
        hidden: Modules that no job can import.
    """
    _end_with_parent()
    listener = socket.socket(fileno=descriptor)
    for name in modules:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    for name in hidden:
        sys.modules[name] = None  # type: ignore[assignment]
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    listener.send(b".")  # Ready.
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
    """Ask the system to end this process when its parent is gone, however it went; where it can."""
    parent = os.getppid()
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(0)


def _keep(job: dict[str, object], descriptors: list[int]) -> None:
    """Fork the job's process, tell its id and how it ended."""
    _end_with_parent()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    status, output, *others = descriptors
    child = os.fork()
    if child == 0:
        os.close(status)
        os.setpgid(0, 0)
        _run(job, output, others)
    with contextlib.suppress(OSError):  # Here too: who is told the id may end the group at once.
        os.setpgid(child, child)
    for opened in (output, *others):
        os.close(opened)
    os.write(status, NUMBER.pack(child))
    _, ended = os.waitpid(child, 0)
    os.write(status, NUMBER.pack(ended))
    os._exit(0)


def _run(job: dict[str, object], output: int, others: list[int]) -> None:
    """Be the job's process: a worker over two descriptors, or a script."""
    code = 70
    try:
        _end_with_parent()
        nothing = os.open(os.devnull, os.O_RDONLY)
        for opened, wanted in ((nothing, 0), (output, 1), (output, 2)):
            os.dup2(opened, wanted)
        _take({str(name): str(value) for name, value in job["own"].items()})  # type: ignore[attr-defined]
        if job["kind"] == "worker":
            work = importlib.import_module("ci_autotest.run.worker.main").main  # preloaded; a script's process has none
            work([str(opened) for opened in others])
        code = _script(str(job["script"]), [str(path) for path in job["paths"]])  # type: ignore[attr-defined]
    except BaseException as error:  # noqa: BLE001 - the last line of a process: what is left is its status
        sys.excepthook(type(error), error, error.__traceback__)
        code = 1
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _take(own: dict[str, str]) -> None:
    """Take variables of this process's own: what it starts has them, and the system shows them of what it forks.

    What ``/proc`` shows of a process lies where its first program put it: a value of one length is written over there.
    """
    system = ctypes.CDLL(None)
    system.getenv.restype = ctypes.c_void_p
    for name, value in own.items():
        if len(os.environb.get(name.encode(), b"")) == len(value.encode()):
            ctypes.memmove(system.getenv(name.encode()), value.encode(), len(value.encode()))
        os.environ[name] = value


def _script(path: str, paths: list[str]) -> int:
    """Run a script as ``python -I`` would, and return its status."""
    sys.path += paths
    sys.argv = [path]
    try:
        runpy.run_path(path, run_name="__main__")
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    return 0
