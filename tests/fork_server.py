"""A fork server that the commands of many tests share, so that each does not import torch again."""

from __future__ import annotations

import atexit
import json
import os
import socket
import threading
from contextlib import contextmanager
from tempfile import TemporaryFile
from typing import TYPE_CHECKING

from ci_autotest.run.fork_client import JUDGE_IMPORTS, SCRIPT_IMPORTS, Child, start_server
from ci_autotest.run.orphan_processes import TOKEN, new_token
from ci_autotest.run.worker_start import FORK_SERVER, worker_environ

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator, Sequence
    from pathlib import Path

#: The socket of this process's server, once there is one; the server ends with this process.
_held: list[tuple[socket.socket, subprocess.Popen[bytes]]] = []
_is_unused: list[bool] = []


@contextmanager
def unused() -> Iterator[None]:
    """Start commands in this block without the shared server, as users do."""
    _is_unused.append(True)
    try:
        yield
    finally:
        _is_unused.pop()


def variables() -> dict[str, str]:
    """Return the environment variable that names the server; its value is the descriptor that a command must get.

    The first call starts the server. It would end with a thread that starts it, so only the main thread does.
    """
    server = _server()
    return {FORK_SERVER: str(server.fileno())} if server is not None else {}


def script_run(script: Path, paths: Sequence[str], timeout_s: float) -> tuple[int, str] | None:
    """Run a script as ``python -I`` would with this package hidden; return its status and what it wrote.

    Returns ``None`` if there is no server for it.
    """
    server = _server()
    if server is None:
        return None
    status, to_write = os.pipe()
    with TemporaryFile() as output:
        job = {
            "kind": "script", "script": str(script), "paths": list(paths), "own": {}, "needs_package": False, "imports": [],
        }  # fmt: skip
        socket.send_fds(server, [json.dumps(job).encode()], [to_write, output.fileno()])
        os.close(to_write)
        ended = Child(status).wait(timeout_s)
        output.seek(0)
        return ended, output.read().decode(errors="replace")


def _end() -> None:
    for held, process in _held:
        held.close()
        process.wait()


def _server() -> socket.socket | None:
    if _is_unused or not (_held or threading.current_thread() is threading.main_thread()):
        return None
    if not _held:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        modules = (*SCRIPT_IMPORTS, *JUDGE_IMPORTS)
        process = start_server(theirs, {**worker_environ(os.environ), TOKEN: new_token()}, modules)
        theirs.close()
        _held.append((ours, process))
        atexit.register(_end)
    return _held[0][0]
