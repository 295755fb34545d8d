"""What a service has ready: a fork server that has imported torch, and sandboxes, each for one verification."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from ci_autotest.run.fork_client import end_group, start_server
from ci_autotest.run.sandbox_servers import SandboxStarter
from ci_autotest.run.worker_start import FORK_SERVER, worker_environ
from ci_autotest.values.sandbox import SANDBOX_SERVERS, WARM_SANDBOX, WarmSandbox
from ci_autotest.verify.subject import CANDIDATE, candidate_row

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator, Mapping

_END_S: Final = 3.0


class PreparedSandbox(NamedTuple):
    """A sandbox that no candidate has been in.

    Attributes:
        folder: The folder of the verification.
        starter: Holds the server of the sandbox.
    """

    folder: Path
    starter: SandboxStarter

    @property
    def variables(self) -> dict[str, str]:
        """The variables by which ``verify`` takes it; none if this system has no sandbox."""
        servers = self.starter.variables.get(SANDBOX_SERVERS)
        if servers is None:
            return {}
        return {WARM_SANDBOX: msgspec.json.encode(WarmSandbox(folder=str(self.folder), variable=servers)).decode()}

    def close(self) -> None:
        """End the server and remove the folder."""
        self.starter.close()
        shutil.rmtree(self.folder, ignore_errors=True)


class WarmServers:
    """Both, begun anew when the interpreter or a package has changed.

    Args:
        environ: The environment of all processes; they get it without secrets.
        spares: Sandboxes that are prepared ahead.
    """

    def __init__(self, environ: Mapping[str, str], spares: int) -> None:
        self._environ, self._spares = environ, spares
        self._lock, self._users = threading.Lock(), 0
        self._sandboxes: list[PreparedSandbox] = []
        # The system ends what a thread has started with that thread, so all is started by one that stays.
        self._starter = ThreadPoolExecutor(1, "ci-autotest-starter")
        self._starter.submit(self._start).result()

    def _start(self) -> None:
        self._stamp = installed_stamp()
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._process: subprocess.Popen[bytes] = start_server(theirs, worker_environ(self._environ))
        theirs.close()
        self._fill()

    def _fill(self) -> None:
        while len(self._sandboxes) < self._spares:
            folder = Path(tempfile.mkdtemp(prefix="ci-autotest-verify-")).resolve()
            (folder / CANDIDATE).mkdir()
            starter = SandboxStarter([candidate_row(folder, [])], folder, self._environ, 0)
            self._sandboxes.append(PreparedSandbox(folder, starter))

    @contextlib.contextmanager
    def fork_server(self) -> Iterator[tuple[int, dict[str, str]]]:
        """Yield the descriptor of the fork server's socket, and the variable that names it to a process."""
        with self._lock:
            # What was forked ends with its server, so nobody may use it when it is begun anew.
            is_over = self._process.poll() is not None or self._stamp != installed_stamp()
            if is_over and not self._users:
                self._end()
                self._starter.submit(self._start).result()
            self._users += 1
            descriptor = self._socket.fileno()
        try:
            yield descriptor, {FORK_SERVER: str(descriptor)}
        finally:
            with self._lock:
                self._users -= 1

    def sandbox(self) -> PreparedSandbox:
        """Take a sandbox; the next one is begun at once."""
        with self._lock:
            taken = self._sandboxes.pop(0)
            self._starter.submit(self._fill).result()
            return taken

    def close(self) -> None:
        """End everything."""
        with self._lock:
            self._end()
        self._starter.shutdown()

    def _end(self) -> None:
        self._socket.close()
        for sandbox in self._sandboxes:
            sandbox.close()
        self._sandboxes = []
        # The server ends by itself with its socket.
        with contextlib.suppress(Exception):
            self._process.wait(_END_S)
        end_group(self._process.pid)
        self._process.wait()


def installed_stamp() -> tuple[tuple[str, int, int], ...]:
    """Return the interpreter and the installed packages as files with their time and size."""
    records = [Path(sys.executable).resolve()]
    for folder in dict.fromkeys(sys.path):
        with contextlib.suppress(OSError):
            records += [Path(entry.path, "RECORD") for entry in os.scandir(folder) if entry.name.endswith(".dist-info")]
    found = []
    for path in sorted(records):
        with contextlib.suppress(OSError):
            status = path.stat()
            found.append((str(path), status.st_mtime_ns, status.st_size))
    return tuple(found)
