"""The servers of sandboxes of a run: each worker, and each fresh process of a finding, gets its hosts from them.

A sandbox takes a second or two to start and to import torch, and the search for the smallest sequence of calls asks
for dozens of fresh hosts.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from ci_autotest.errors import UnavailableError
from ci_autotest.host.main import BOOT
from ci_autotest.kinds import SubstituteCandidate
from ci_autotest.run.worker_start import package_folder, worker_environ
from ci_autotest.values.sandbox import (
    SANDBOX_SERVERS,
    SandboxServers,
    kept_environ,
    sandbox_servers,
    sandboxed,
    seen_folders,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ci_autotest.kinds import AnyCandidate

_BOOT: Final = BOOT.replace("ci_autotest.host.main", "ci_autotest.host.sandbox_server")
#: What a host imports, beside the user's functions.
_IMPORTS: Final = (
    "torch", "numpy", "ci_autotest.host.main", "ci_autotest.host.loop",
    "ci_autotest.backends.substitute.isolated_kernels",
)  # fmt: skip
_BACKLOG: Final = 64


class SandboxStarter:
    """Starts a server for each candidate in a sandbox.

    Args:
        candidates: The candidates of the run.
        root: The configuration's folder.
        environ: The parent's environment, which may name servers that are there already.
        memory_bytes: Memory that a host may hold; 0: no limit.
    """

    def __init__(
        self, candidates: Sequence[AnyCandidate], root: Path, environ: Mapping[str, str], memory_bytes: int
    ) -> None:
        self._processes: list[subprocess.Popen[bytes]] = []
        self._folder = ""
        addresses = dict(sandbox_servers(environ).addresses)
        for candidate in candidates:
            if (
                isinstance(candidate, SubstituteCandidate)
                and candidate.is_sandboxed
                and candidate.name not in addresses
            ):
                # A sandbox that cannot be made is told by the worker, which makes one itself.
                with contextlib.suppress(UnavailableError, OSError):
                    addresses[candidate.name] = self._start(candidate, root, environ)
        servers = SandboxServers(addresses=addresses, memory_bytes=memory_bytes)
        #: Variables that name the servers to workers.
        self.variables: dict[str, str] = {SANDBOX_SERVERS: msgspec.json.encode(servers).decode()} if addresses else {}

    def _start(self, candidate: SubstituteCandidate, root: Path, environ: Mapping[str, str]) -> str:
        command = sandboxed(seen_folders(candidate.sandbox or (), root))
        self._folder = self._folder or tempfile.mkdtemp(prefix="ci-autotest-sandboxes-")
        address = str(Path(self._folder, str(len(self._processes))))
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
            listener.bind(address)
            listener.listen(_BACKLOG)
            kept = {**kept_environ(worker_environ(environ)), **candidate.env}
            own = [word for name, value in kept.items() for word in ("--setenv", name, value)]
            package = str(Path(package_folder(), "ci_autotest"))
            words = [sys.executable, "-I", "-c", _BOOT, package, str(listener.fileno()), *_IMPORTS]
            self._processes.append(
                subprocess.Popen(
                    [*command, *own, "--", *words], pass_fds=(listener.fileno(),), env=kept, start_new_session=True,
                    stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                )
            )  # fmt: skip
        return address

    def close(self) -> None:
        """End the servers and everything that they forked."""
        for process in self._processes:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        if self._folder:
            shutil.rmtree(self._folder, ignore_errors=True)
        self._processes, self._folder = [], ""
