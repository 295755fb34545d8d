"""A host that the server of a sandbox has forked, seen from the worker."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
from typing import TYPE_CHECKING, Final

import msgspec

from ci_autotest.host.sandbox_server import JOB_BYTES, NUMBER
from ci_autotest.values.sandbox import SANDBOX_SERVERS, SandboxServers

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

#: Seconds that a server may take to import its framework.
_START_S: Final = 120.0


def served_host(
    candidate: str, words: Sequence[str], environ: Mapping[str, str], descriptors: Sequence[int]
) -> SandboxedHost | None:
    """Return a fresh host in the sandbox of a candidate; ``None`` if there is no server that can make one.

    Args:
        candidate: Name of the candidate.
        words: Arguments of the host behind its descriptors.
        environ: Its variables besides those of the sandbox.
        descriptors: Those of the host, and the one that it prints to at first.
    """
    given = os.environ.get(SANDBOX_SERVERS)
    if given is None:
        return None
    servers = msgspec.json.decode(given, type=SandboxServers)
    if candidate not in servers.addresses:
        return None
    job = {"words": [*words], "environ": dict(environ), "memory_bytes": servers.memory_bytes}
    data = json.dumps(job).encode()
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    connection.settimeout(_START_S)
    try:
        if len(data) > JOB_BYTES:
            raise OSError  # noqa: TRY301 - a sandbox of its own takes it
        connection.connect(servers.addresses[candidate])
        socket.send_fds(connection, [data], [*descriptors])
        begun = connection.recv(NUMBER.size)
    except OSError:
        begun = b""
    if begun != NUMBER.pack(0):
        connection.close()
        return None
    connection.settimeout(None)
    return SandboxedHost(connection)


class SandboxedHost:
    """The host, with the methods of ``subprocess.Popen`` that its owner needs.

    Args:
        connection: Where its wait status arrives; the host ends when it is closed.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._code: int | None = None
        #: It has a number in the sandbox only.
        self.pid = 0

    def poll(self) -> int | None:
        """Return the exit status, negative for a signal; ``None`` while it runs."""
        return self._waited(0.0)

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit status.

        Raises:
            subprocess.TimeoutExpired: It is still running.
        """
        code = self._waited(timeout)
        if code is None:
            command = "a host in a sandbox"
            raise subprocess.TimeoutExpired(command, timeout or 0.0)
        return code

    def kill(self) -> None:
        """Kill it, unless it has ended."""
        if self.poll() is None:
            self._connection.shutdown(socket.SHUT_WR)

    def _waited(self, seconds: float | None) -> int | None:
        if self._code is None and select.select([self._connection], [], [], seconds)[0]:
            data = self._connection.recv(NUMBER.size)
            # Without a status the whole sandbox is gone.
            is_told = len(data) == NUMBER.size
            self._code = os.waitstatus_to_exitcode(NUMBER.unpack(data)[0]) if is_told else -signal.SIGKILL
            self._connection.close()
        return self._code
