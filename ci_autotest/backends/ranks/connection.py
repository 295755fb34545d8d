"""Connections between a worker and ranks on other machines."""

from __future__ import annotations

import os
import socket
from datetime import timedelta
from typing import Final

from ci_autotest.host.wire import Wire

#: How long ranks and their worker try to reach each other.
KEPT: Final = timedelta(seconds=60)
#: Seconds in which who connects must say who it is: a stranger may say nothing.
GREETING_S: Final = 10.0
#: Bytes of a first message: a candidate's row, or a rank's number.
GREETING_BYTES: Final = 1 << 20
#: A machine that has lost its power says nothing: after 10 s of silence it is asked, and is gone after 15 s more.
_KEEP_ALIVE: Final = ((socket.TCP_KEEPIDLE, 10), (socket.TCP_KEEPINTVL, 5), (socket.TCP_KEEPCNT, 3))


def connected(address: tuple[str, int]) -> socket.socket:
    """Return a connection to an address.

    Raises:
        OSError: There is none to be had.
    """
    found = socket.create_connection(address, KEPT.total_seconds())
    found.settimeout(None)
    return found


def wire_of(connection: socket.socket) -> Wire:
    """Return a wire that takes over a connection."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for option, value in _KEEP_ALIVE:
        connection.setsockopt(socket.IPPROTO_TCP, option, value)
    read_fd = connection.detach()
    return Wire(read_fd, os.dup(read_fd))
