"""The process of a server of ranks (``backends/ranks/nodes/rank_node``): start it in its own interpreter, end it."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

#: The current folder is not on the import path: a `torch/` there would be imported instead of the real one.
_START: Final = (
    "import sys; sys.path[:] = [p for p in sys.path if p]; sys.path.append(sys.argv.pop(1)); "
    "from ci_autotest.backends.ranks.nodes.rank_node import main; main(sys.argv[1:])"
)
_PACKAGE: Final = str(Path(__file__).resolve().parents[2])


class NodeProcess:
    """The process of the server of ranks on this machine.

    Args:
        host: Address of this machine on which it listens.
        secret: What a worker must say.
        environ: Its environment.

    Raises:
        OSError: There is no port to be had, or it cannot be started.
    """

    def __init__(self, host: str, secret: str, environ: Mapping[str, str]) -> None:
        # The address is known at once, and whoever connects waits until the server has imported PyTorch.
        with socket.create_server((host, 0)) as listener:
            self._address: tuple[str, int] = listener.getsockname()[:2]
            fd = listener.fileno()
            self._process = subprocess.Popen(
                [sys.executable, "-c", _START, _PACKAGE, str(fd)],
                stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, pass_fds=[fd], start_new_session=True,
                env=dict(environ),
            )  # fmt: skip
        assert self._process.stdin is not None  # noqa: S101 - it is a pipe
        with self._process.stdin as pipe:
            pipe.write(secret.encode() + b"\n")

    def address(self) -> tuple[str, int]:
        """Return the host and the port of the server."""
        return self._address

    def pid(self) -> int:
        """Return the process of the server, whose group has all ranks on this machine."""
        return self._process.pid

    def close(self) -> None:
        """End the server and all ranks on this machine."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
