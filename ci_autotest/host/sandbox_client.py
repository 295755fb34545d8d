"""A process that the server of a sandbox has forked, seen from outside of the sandbox."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
from typing import TYPE_CHECKING, Final, NamedTuple

from ci_autotest.host.sandbox_server import JOB_BYTES, NUMBER

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

#: Seconds that a server may take to import its framework.
_START_S: Final = 120.0


class SandboxJob(NamedTuple):
    """What the server forks.

    Attributes:
        words: Arguments: of a host those behind its descriptors, of a script all.
        environ: Variables besides those of the sandbox.
        memory_bytes: Memory that it may hold; 0: no limit.
        script: Path of a script in the sandbox; empty for a host.
        file_bytes: Size that a file may have that it writes to; 0: no limit.
    """

    words: Sequence[str]
    environ: Mapping[str, str]
    memory_bytes: int = 0
    script: str = ""
    file_bytes: int = 0


def forked_in_sandbox(address: str, job: SandboxJob, descriptors: Sequence[int]) -> SandboxedProcess | None:
    """Return a fresh process in a sandbox; ``None`` if its server is gone or cannot make one.

    Args:
        address: Path of the server's socket.
        job: What it is.
        descriptors: Those of a host, and the one that it prints to; of a script its standard output and its errors.
    """
    data = json.dumps(job._asdict()).encode()
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    connection.settimeout(_START_S)
    try:
        if len(data) > JOB_BYTES:
            raise OSError  # noqa: TRY301 - a sandbox of its own takes it
        connection.connect(address)
        socket.send_fds(connection, [data], [*descriptors])
        begun = connection.recv(NUMBER.size)
    except OSError:
        begun = b""
    if begun != NUMBER.pack(0):
        connection.close()
        return None
    connection.settimeout(None)
    return SandboxedProcess(connection)


class SandboxedProcess:
    """The process, with the methods of ``subprocess.Popen`` that its owner needs.

    Args:
        connection: Where its wait status arrives; the process ends when it is closed.
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
            command = "a process in a sandbox"
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
