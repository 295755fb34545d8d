"""The start of a worker process: its command line and its environment."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

#: The current folder is not on the worker's import path: a `torch/` or `json.py` there would be imported instead of the
#: real one.
_START: Final = (
    "import sys; sys.path[:] = [p for p in sys.path if p]; sys.path.append(sys.argv.pop(1)); "
    "from ci_autotest.run.worker.main import main; main(sys.argv[1:])"
)
#: Parts of names of variables that a worker never gets, because it runs foreign code.
_SECRET: Final = (
    "TOKEN", "KEY", "CREDENTIAL", "SECRET", "PASSWORD", "ACTIONS_RUNTIME", "ACTIONS_ID", "GITHUB_OUTPUT", "GITHUB_ENV",
    "GITHUB_PATH", "GITHUB_STEP_SUMMARY", "GITHUB_STATE",
)  # fmt: skip

#: Environment variable with the descriptor of a socket to a fork server that has imported torch already.
FORK_SERVER: Final = "CI_AUTOTEST_FORK_SERVER"

#: One thread, the fault handler on, no TF32.
#:
#: Source: NVIDIA's documentation of ``NVIDIA_TF32_OVERRIDE``, and cuBLAS's of ``CUBLAS_WORKSPACE_CONFIG``
#: (reproducible results need one of two values).
WORKER_VARIABLES: Final = MappingProxyType({
    "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "PYTHONFAULTHANDLER": "1", "NVIDIA_TF32_OVERRIDE": "0",
    "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
})  # fmt: skip


class ProcessHandle(Protocol):
    """A started process, as far as its owner needs it."""

    @property
    def pid(self) -> int:
        """The id of the process and of its group."""

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit status, negative for a signal; raise ``subprocess.TimeoutExpired`` if it is still running."""

    def kill(self) -> None:
        """Kill it, with what it started where that is known."""


class Start(NamedTuple):
    """How to start a worker's process.

    Attributes:
        descriptors: The descriptors to read from and to write to, and that of the progress beacon.
        output: Descriptor for what the worker prints.
        environ: The parent's environment; the worker gets it without secrets.
        added: Variables for this worker only.
    """

    descriptors: tuple[int, int, int]
    output: int
    environ: Mapping[str, str]
    added: Mapping[str, str]


Launch: TypeAlias = "Callable[[Start], ProcessHandle]"


def spawn(start: Start) -> subprocess.Popen[bytes]:
    """Start a worker in its own interpreter and session."""
    return subprocess.Popen(
        [sys.executable, "-c", _START, package_folder(), *map(str, start.descriptors)],
        stdin=subprocess.DEVNULL, stdout=start.output, stderr=start.output, pass_fds=start.descriptors,
        # In a session of its own, so that its whole group can be ended, and Ctrl-C in a terminal does not reach it.
        start_new_session=True, env={**worker_environ(start.environ), **start.added},
    )  # fmt: skip


def package_folder() -> str:
    """Return the folder that contains this package."""
    return str(Path(__file__).resolve().parents[2])


def worker_environ(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment for foreign code: no secrets, and the variables of a worker."""
    # The descriptor of a server is closed in other processes, so its number means nothing there.
    left_out = (*_SECRET, FORK_SERVER)
    kept = {name: value for name, value in environ.items() if not any(word in name.upper() for word in left_out)}
    return {**kept, **WORKER_VARIABLES}
