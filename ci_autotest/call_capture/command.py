"""The command ``capture``: runs a program, and writes the operator calls that it makes as tests.

The program has the terminal: what this command says goes to standard error when the program has ended.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ci_autotest.call_capture.journal import read_journal
from ci_autotest.call_capture.tests_folder import check_folder, write_tests
from ci_autotest.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import TextIO

    from ci_autotest.call_capture.observation import Capture

#: Options of Python that take the next word.
_WITH_VALUE: Final = frozenset({"-W", "-X", "--check-hash-based-pycs"})
#: Status of a program that ended with 0 and of which nothing was captured.
NOTHING: Final = 3
_EXAMPLE: Final = "Write for example: ci-autotest capture -o autotests python train.py"


@dataclass(frozen=True, slots=True)
class PythonProgram:
    """A program of Python, as it is called.

    Args:
        python: The interpreter, with its options.
        kind: ``script``, ``module`` or ``command``.
        target: The file, the module's name, or the text.
        arguments: The program's own.
    """

    python: tuple[str, ...]
    kind: str
    target: str
    arguments: tuple[str, ...]

    @property
    def name(self) -> str:
        """What the tests are named after."""
        return {"script": Path(self.target).name, "module": self.target.rpartition(".")[2], "command": "command"}[
            self.kind
        ]


def program_of(words: Sequence[str]) -> PythonProgram:
    """Return the program of a command line such as ``python -u train.py --steps 3``.

    Raises:
        UsageError: It calls no program of Python.
    """
    first, *rest = words or [""]
    if first.endswith(".py"):
        return PythonProgram((sys.executable,), "script", first, tuple(rest))
    if not Path(first).name.startswith(("python", "pypy")):
        message = f"capture runs a program of Python, and '{first}' is none. {_EXAMPLE}"
        raise UsageError(message)
    options: list[str] = []
    while rest and rest[0].startswith("-") and rest[0] != "-":
        option = rest.pop(0)
        if option in {"-m", "-c"} and rest:
            target = rest.pop(0)
            return PythonProgram((first, *options), "module" if option == "-m" else "command", target, tuple(rest))
        options += [option, *([rest.pop(0)] if option in _WITH_VALUE and rest else [])]
    if not rest or rest[0] == "-":
        message = f"'{' '.join(words)}' names no script, module (-m) or text (-c). {_EXAMPLE}"
        raise UsageError(message)
    return PythonProgram((first, *options), "script", rest[0], tuple(rest[1:]))


def capture(words: Sequence[str], folder: Path, limit: int, stream: TextIO, *, is_forced: bool, has_data: bool) -> int:
    """Run a program, write its calls as tests, and return its exit status.

    Args:
        words: The program's command line.
        folder: Where the tests go.
        limit: Number of tests at most.
        stream: Where to print.
        is_forced: Whether tests that the folder has are replaced.
        has_data: Whether the elements of first calls are stored beside the tests.

    Raises:
        UsageError: The program cannot be run, or its tests exist.
    """
    program = program_of(words)
    check_folder(folder, program.name, is_forced=is_forced)
    with tempfile.TemporaryDirectory(prefix="ci-autotest-") as place:
        journal, spool = Path(place, "calls"), Path(place, "data") if has_data else None
        status = _run(program, journal, spool)
        found = read_journal(journal)
        if found is None:
            message = (
                f"'{program.python[0]}' could not start the capture (exit status {status}). Install ci-autotest in the "
                "environment of that interpreter, or name another one."
            )
            raise UsageError(message)
        _print_end(found, program, status, stream)
        for line in write_tests(found, folder, program.name, limit, spool):
            stream.write(f"{line}\n")
    if found.calls:
        stream.write(f"run them: ci-autotest run {folder}\n")
    if status < 0:
        return 128 - status
    return status or (0 if found.calls else NOTHING)


def _print_end(found: Capture, program: PythonProgram, status: int, stream: TextIO) -> None:
    """Say how the program ended, unless it ended as it should."""
    if status:
        how = f"by signal {-status} ({signal.Signals(-status).name})" if status < 0 else f"with status {status}"
        stream.write(f"{program.name} ended {how}; what it called until then is captured.\n")
    elif not found.is_complete:
        stream.write(f"{program.name} ended without leaving Python (os._exit); its calls were not counted.\n")


def _run(program: PythonProgram, journal: Path, spool: Path | None) -> int:
    """Run the program in a process of its own, and return its status; negative if a signal ended it."""
    files = [str(journal), "" if spool is None else str(spool)]
    command = [*program.python, "-m", "ci_autotest.call_capture", *files, program.kind, program.target]
    try:
        process = subprocess.Popen([*command, *program.arguments])
    except OSError as error:
        message = f"'{program.python[0]}' cannot be run: {error.strerror}. {_EXAMPLE}"
        raise UsageError(message) from error
    with _signals_for(process):
        return process.wait()


@contextmanager
def _signals_for(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """Leave signals to the program: the terminal sends it Ctrl-C itself, the others are passed on."""
    before = {
        signal.SIGINT: signal.signal(signal.SIGINT, lambda *_: None),
        **{
            number: signal.signal(number, lambda received, _: process.send_signal(received))
            for number in (signal.SIGTERM, signal.SIGHUP)
        },
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
