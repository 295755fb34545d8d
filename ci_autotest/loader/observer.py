"""The processes that observe a data loader: one for each rank, each in a session of its own, ended with its workers."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from ci_autotest.errors import AuthorError
from ci_autotest.loader.observations import Observations, ObserverTask
from ci_autotest.loader.repro import Subject
from ci_autotest.loader.source import factory_of
from ci_autotest.loader.trial import judged
from ci_autotest.run.worker_start import package_folder, worker_environ
from ci_autotest.values.process_end import exit_text

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ci_autotest.loader.declaration import LoaderDeclaration
    from ci_autotest.loader.trial import Judgement

#: As a worker starts: the current folder is not on the import path.
_START: Final = (
    "import sys; sys.path[:] = [p for p in sys.path if p]; sys.path.append(sys.argv.pop(1)); "
    "from ci_autotest.loader.process import main; main(sys.argv[1:])"
)
_LOOK_S: Final = 0.05
#: Bytes of what the processes printed that an error shows.
_OUTPUT_BYTES: Final = 4000


class Asked(NamedTuple):
    """A loader to observe.

    Attributes:
        root: The configuration's folder.
        folders: Appended to the import path.
        file: File of the test, or ``loader:MODULE:FACTORY``.
        name: Its qualified name there.
        seed: Seed of the global generators.
        declaration: Numbers of workers, epochs and ranks.
    """

    root: str
    folders: Sequence[str]
    file: str
    name: str
    seed: int
    declaration: LoaderDeclaration

    @property
    def subject(self) -> Subject:
        """How a repro makes the loader."""
        options = self.declaration
        factory = factory_of(self.file)
        return Subject(
            self.root, "" if factory else self.file, factory or self.name, options.workers, options.epochs,
            options.ranks, self.seed,
        )  # fmt: skip


class LoaderError(AuthorError):
    """A loader cannot be observed.

    Args:
        message: Why, in a sentence.
        output: What its processes printed, or the traceback of the user's code.
    """

    def __init__(self, message: str, output: str = "") -> None:
        super().__init__(message)
        self.output = output


def judgement_of(
    asked: Asked, timeout_s: float, environ: Mapping[str, str], tick: Callable[[], None] = lambda: None
) -> Judgement:
    """Return the judgement on a loader; arguments and errors are those of ``observe``."""
    return judged(observe(asked, timeout_s, environ, tick), asked.subject)


def observe(
    asked: Asked, timeout_s: float, environ: Mapping[str, str], tick: Callable[[], None] = lambda: None
) -> list[Observations]:
    """Return what each rank observed of its loader.

    Args:
        asked: The loader.
        timeout_s: Seconds that all ranks together may take.
        environ: Environment of the processes; they get it without secrets.
        tick: Called while they run.

    Raises:
        LoaderError: A process hangs, dies, or could not observe its loader. No process is left.
    """
    with tempfile.TemporaryDirectory(prefix="ci-autotest-loader-") as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        output = stack.enter_context((folder / "output").open("w+b"))
        started, ranks = [], asked.declaration.ranks
        port = _free_port() if ranks > 1 else 0
        for rank in range(ranks):
            task = ObserverTask(
                root=asked.root, folders=list(asked.folders), file=asked.file, name=asked.name, seed=asked.seed,
                rank=rank, result=str(folder / f"{rank}.json"),
            )  # fmt: skip
            process = _started(task, {**worker_environ(environ), **_rank_environ(rank, ranks, port)}, output.fileno())
            # This is registered at once, so that no process is left if a later rank cannot be started.
            stack.callback(_end, process)
            started.append(process)
        _wait(started, time.monotonic() + timeout_s, timeout_s, tick)
        output.seek(0, os.SEEK_END)
        output.seek(max(0, output.tell() - _OUTPUT_BYTES))
        printed = output.read().decode(errors="backslashreplace")
        # A rank that failed is read first: the others were ended while they waited for it.
        order = sorted(range(ranks), key=lambda rank: not started[rank].poll())
        found = {rank: _result(folder / f"{rank}.json", started[rank], printed) for rank in order}
        return [found[rank] for rank in range(ranks)]


def _started(task: ObserverTask, environ: Mapping[str, str], output: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", _START, package_folder(), msgspec.json.encode(task).decode()],
        stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True, env=dict(environ),
    )  # fmt: skip


def _rank_environ(rank: int, ranks: int, port: int) -> dict[str, str]:
    """Return the variables that ``torchrun`` sets on one machine.

    Source:
        PyTorch's documentation of torchrun, "Environment Variables".
    """
    if ranks == 1:
        return {}
    count = str(ranks)
    return {
        "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": count, "LOCAL_WORLD_SIZE": count,
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
    }  # fmt: skip


def _free_port() -> int:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        port: int = held.getsockname()[1]
        return port


def _wait(processes: Sequence[subprocess.Popen[bytes]], end: float, timeout_s: float, tick: Callable[[], None]) -> None:
    """Wait until all processes have ended; a rank that waits for one that failed is not waited for.

    Raises:
        LoaderError: The time is up.
    """
    # The other ranks may wait forever for one that has failed, for example in a collective operation.
    while any(process.poll() is None for process in processes) and not any(process.poll() for process in processes):
        tick()
        if time.monotonic() > end:
            lost = [code for process in processes for code in _lost_children(process.pid)]
            why = (
                # Torch raises in a signal handler, and may interrupt code that then keeps a lock.
                f"{len(lost)} of its workers {exit_text(lost[0])}, and it waits."
                if lost
                else "a worker, the dataset or the function hangs. Raise case_timeout if it needs longer."
            )
            message = f"its loader did not finish in {timeout_s:g} s: {why}"
            raise LoaderError(message)
        time.sleep(_LOOK_S)


def _lost_children(pid: int) -> list[int]:
    """Return how children of a process ended of which it has not heard, as ``subprocess`` has it; 0 is left out.

    Source:
        proc(5): the state and the status of a process are fields 3 and 52; empty on a system without ``/proc``.
    """
    found = []
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            for child in children.read_text().split():
                fields = Path(f"/proc/{child}/stat").read_text(errors="replace").rpartition(")")[2].split()
                if fields[0] == "Z" and (code := os.waitstatus_to_exitcode(int(fields[49]))):
                    found.append(code)
    return found


def _result(file: Path, process: subprocess.Popen[bytes], printed: str) -> Observations:
    """Return the observations of a rank.

    Raises:
        LoaderError: Its process died, or could not observe its loader.
    """
    try:
        seen = msgspec.json.decode(file.read_bytes(), type=Observations)
    except (OSError, msgspec.DecodeError) as error:
        status = process.poll()
        how = f"ended with status {status}" if status is None or status >= 0 else f"was ended by signal {-status}"
        message = f"the process that ran its loader {how}, without a result."
        raise LoaderError(message, printed) from error
    if seen.error:
        message = f"its loader failed: {seen.error}"
        raise LoaderError(message, seen.traceback)
    return seen


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a process and its session's group, which holds the workers of its loader."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
