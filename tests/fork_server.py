"""A fork server that the commands of many tests share, so that each does not import torch again."""

from __future__ import annotations

import os
import socket
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ci_autotest.run.fork_client import SCRIPT_IMPORTS, end_group, start_server
from ci_autotest.run.orphan_processes import TOKEN, new_token
from ci_autotest.run.worker_start import FORK_SERVER, worker_environ

if TYPE_CHECKING:
    from collections.abc import Iterator

#: The socket of the server, while there is one.
_held: list[socket.socket] = []


@contextmanager
def shared() -> Iterator[None]:
    """Keep a server for the commands that are started in this block; call it in the main thread."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    process = start_server(theirs, {**worker_environ(os.environ), TOKEN: new_token()}, SCRIPT_IMPORTS)
    theirs.close()
    _held.append(ours)
    try:
        yield
    finally:
        _held.remove(ours)
        ours.close()
        end_group(process.pid)
        process.wait()


@contextmanager
def unused() -> Iterator[None]:
    """Start commands in this block without the shared server, as users do."""
    held = _held[:]
    _held.clear()
    try:
        yield
    finally:
        _held.extend(held)


def variables() -> dict[str, str]:
    """Return the environment variable that names the server; its value is the descriptor that a command must get."""
    return {FORK_SERVER: str(_held[-1].fileno())} if _held else {}
