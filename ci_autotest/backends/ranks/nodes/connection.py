"""Connections between a worker and ranks on other machines."""

from __future__ import annotations

import os
import socket
import struct
from typing import Final

from ci_autotest.host.wire import Wire

#: Seconds for which ranks and their worker try to reach each other.
REACH_S: Final = 60.0
#: Seconds without a byte that the other end takes after which it is lost. A network that finds another way needs less.
SEND_S: Final = 20.0
#: Seconds in which who connects must say who it is: a stranger may say nothing.
GREETING_S: Final = 10.0
#: Bytes of a first message: a candidate's row, or a rank's number.
GREETING_BYTES: Final = 1 << 20
#: A machine that has lost its power says nothing: after 10 s of silence it is asked, and is gone after 15 s more.
_KEEP_ALIVE: Final = ((socket.TCP_KEEPIDLE, 10), (socket.TCP_KEEPINTVL, 5), (socket.TCP_KEEPCNT, 3))
_GONE_S: Final = 25.0
#: Source: socket(7), ``SO_RCVTIMEO`` and ``SO_SNDTIMEO``: seconds and microseconds.
_TIME: Final = struct.Struct("@ll")


def connected(address: tuple[str, int]) -> socket.socket:
    """Return a connection to an address.

    Raises:
        OSError: There is none to be had.
    """
    found = socket.create_connection(address, REACH_S)
    found.settimeout(None)
    return found


def wire_of(connection: socket.socket, send_s: float = SEND_S, receive_s: float = 0.0) -> Wire:
    """Return a wire that takes over a connection.

    Args:
        connection: The connection.
        send_s: Seconds without a byte that the other end takes after which sending to it fails.
        receive_s: Seconds without a byte from the other end after which it is gone in the middle of a frame; 0: no
            limit, also for who waits for the next frame.
    """
    # The first one for what waits in this machine because the other end does not read; the second one, which the system
    # must not apply before it, for what is on its way.
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _time(send_s))
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, _time(receive_s))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(1000 * max(send_s, _GONE_S)))
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for option, value in _KEEP_ALIVE:
        connection.setsockopt(socket.IPPROTO_TCP, option, value)
    read_fd = connection.detach()
    return Wire(read_fd, os.dup(read_fd))


def _time(seconds: float) -> bytes:
    return _TIME.pack(int(seconds), int(seconds % 1 * 1e6))
