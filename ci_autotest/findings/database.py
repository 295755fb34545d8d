"""The database ``.autotest/`` of earlier runs. It may be lost, merged file by file, or damaged without harm.

```
.autotest/history.json                      outcomes, greatest errors and speed of earlier runs
.autotest/durations.json                    seconds per case and share of accepted attempts, by test
.autotest/failed.json                       tests and files that failed when they last ran
.autotest/findings/<id>/entry.json          the case that showed the finding, and whether it is fixed
                       /program.json        its smallest program
                       /tensors.safetensors the program's data
```
It may come from a cache that others can write. So everything is decoded strictly, and a program is checked against the
allow list before it runs.
"""

from __future__ import annotations

import shutil
import time
from typing import TYPE_CHECKING, Annotated, Final, Literal, NamedTuple, TypeVar

import msgspec

from ci_autotest.errors import OutputError
from ci_autotest.report.atomic import write_bytes
from ci_autotest.report.finding_folders import is_finding_id
from ci_autotest.values.past_run import RUNS_AT_MOST, History
from ci_autotest.values.verdict import Kind, Struct

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from ci_autotest.values.past_run import PastRun

FOLDER: Final = ".autotest"
#: Findings that are kept; the oldest fixed ones are dropped first.
FINDINGS_AT_MOST: Final = 200
#: Tests whose durations are kept; those that have not run for longest are dropped first.
TESTS_AT_MOST: Final = 20_000
#: Larger files are not read.
_FILE_BYTES: Final = 64 << 20
_DAY_S: Final = 86_400

_NAME_CHARS: Final = 500
_Name = Annotated[str, msgspec.Meta(max_length=_NAME_CHARS)]
_Natural = Annotated[int, msgspec.Meta(ge=0, le=1 << 62)]
_Seconds = Annotated[float, msgspec.Meta(ge=0, le=1e6)]

_T = TypeVar("_T")


class Learned(Struct, frozen=True, kw_only=True):
    """What earlier runs know about a test.

    Attributes:
        case_s: Seconds of a case on all candidates.
        acceptance: Share of ordinary attempts that the reference accepted.
        day: Day of the last run, counted from 1970.
    """

    case_s: _Seconds
    acceptance: Annotated[float, msgspec.Meta(ge=0, le=1)] = 1.0
    day: _Natural = 0


class Durations(Struct, frozen=True, kw_only=True):
    """The content of ``durations.json``."""

    schema: Literal["ci-autotest/durations/1"] = "ci-autotest/durations/1"
    tests: dict[_Name, Learned] = msgspec.field(default_factory=dict)


class Failed(Struct, frozen=True, kw_only=True):
    """The content of ``failed.json``."""

    schema: Literal["ci-autotest/failed/1"] = "ci-autotest/failed/1"
    tests: tuple[_Name, ...] = ()


class FindingEntry(Struct, frozen=True, kw_only=True):
    """The case that showed a finding; its draws follow from ``seed``, ``test``, ``case`` and ``attempt``."""

    schema: Literal["ci-autotest/entry/1"] = "ci-autotest/entry/1"
    id: _Name
    candidate: _Name
    operator: _Name
    kind: Kind
    test: _Name
    case: _Natural
    attempt: _Natural
    seed: _Natural
    profile: _Name = "ordinary"
    is_fixed: bool = False
    day: _Natural = 0

    @property
    def identity(self) -> tuple[str, str, str]:
        """The identity of the finding, which stays the same between runs."""
        return self.candidate, self.operator, self.kind


class KeptFinding(NamedTuple):
    """A finding of an earlier run with its program."""

    entry: FindingEntry
    program: bytes
    tensors: bytes


class Database:
    """Read and write the folder; a file that cannot be read is ignored, and ``notes`` says so.

    Args:
        folder: It need not exist.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.notes: list[str] = []

    def durations(self) -> dict[str, Learned]:
        """Return what earlier runs know, by test."""
        found = self._decoded("durations.json", Durations)
        return {} if found is None else found.tests

    def history(self) -> tuple[PastRun, ...]:
        """Return earlier runs, oldest first."""
        found = self._decoded("history.json", History)
        return () if found is None else found.runs[-RUNS_AT_MOST:]

    def failed(self) -> tuple[str, ...]:
        """Return the ids of tests, and the files, that failed when they last ran."""
        found = self._decoded("failed.json", Failed)
        return () if found is None else found.tests

    def _decoded(self, name: str, kind: type[_T]) -> _T | None:
        path = self._folder / name
        data = self._read(path)
        if data is None:
            return None
        try:
            return msgspec.json.decode(data, type=kind)
        except (ValueError, RecursionError) as error:
            # msgspec raises its own kinds of ValueError, UnicodeDecodeError for invalid UTF-8, and RecursionError.
            self.notes.append(f"{path} is damaged ({error}) and is left out")
            return None

    def remember(self, run: PastRun) -> None:
        """Add a run to the history; like ``save``, it never fails a run."""
        runs = (*self.history(), run)[-RUNS_AT_MOST:]
        try:
            write_bytes(self._folder / "history.json", msgspec.json.encode(History(runs=runs)) + b"\n")
        except (OSError, OutputError) as error:
            self.notes.append(f"{self._folder} cannot be written ({error}); the history lacks this run")

    def findings(self) -> list[KeptFinding]:
        """Return the findings of earlier runs, in the order of their ids."""
        folder = self._folder / "findings"
        try:
            # Other names are not listed, because the name becomes a path.
            names = sorted(item.name for item in folder.iterdir() if is_finding_id(item.name))
        except OSError:
            return []
        # Merged databases may have more findings than one run keeps.
        kept = [self._kept(folder / name) for name in names[: 2 * FINDINGS_AT_MOST]]
        return [item for item in kept if item is not None]

    def _kept(self, folder: Path) -> KeptFinding | None:
        head, program, tensors = (
            self._read(folder / name) for name in ("entry.json", "program.json", "tensors.safetensors")
        )
        try:
            entry = msgspec.json.decode(head or b"", type=FindingEntry)
        except (ValueError, RecursionError) as error:
            self.notes.append(f"{folder / 'entry.json'} is damaged ({error}) and is left out")
            return None
        # The id becomes a path when the entry is written again.
        if entry.id != folder.name or program is None or tensors is None:
            self.notes.append(f"{folder} is incomplete and is left out")
            return None
        return KeptFinding(entry, program, tensors)

    def _read(self, path: Path) -> bytes | None:
        try:
            # A link could make a run read any file of this user.
            if path.is_symlink() or path.stat().st_size > _FILE_BYTES:
                self.notes.append(f"{path} is a link or too large and is left out")
                return None
            return path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            self.notes.append(f"{path} cannot be read ({error.strerror}) and is left out")
            return None

    def save(self, durations: Mapping[str, Learned], kept: Iterable[KeptFinding]) -> None:
        """Write the database; if the folder cannot be written, that is a note: no run depends on it."""
        # Those that still fail come first, then the newest.
        chosen = sorted(kept, key=lambda item: (item.entry.is_fixed, -item.entry.day, item.entry.id))
        tests = sorted(durations.items(), key=lambda item: (-item[1].day, item[0]))[:TESTS_AT_MOST]
        try:
            for item in chosen[:FINDINGS_AT_MOST]:
                self._save(item)
            for item in chosen[FINDINGS_AT_MOST:]:
                shutil.rmtree(self._folder / "findings" / item.entry.id, ignore_errors=True)
            self._folder.mkdir(parents=True, exist_ok=True)
            # The folder ignores itself, so that nobody commits it by accident.
            write_bytes(self._folder / ".gitignore", b"*\n")
            write_bytes(
                self._folder / "durations.json", msgspec.json.encode(Durations(tests=dict(sorted(tests)))) + b"\n"
            )
        except (OSError, OutputError) as error:
            self.notes.append(f"{self._folder} cannot be written ({error}); the next run learns nothing from this one")

    def save_failed(self, tests: Sequence[str]) -> None:
        """Write the tests and files that failed when they last ran, after ``save``, which has made the folder."""
        known = tuple(name for name in tests if len(name) <= _NAME_CHARS)[:TESTS_AT_MOST]
        try:
            write_bytes(self._folder / "failed.json", msgspec.json.encode(Failed(tests=known)) + b"\n")
        except (OSError, OutputError) as error:
            self.notes.append(f"{self._folder} cannot be written ({error}); --lf does not know this run")

    def _save(self, item: KeptFinding) -> None:
        folder = self._folder / "findings" / item.entry.id
        folder.mkdir(parents=True, exist_ok=True)
        # The entry marks a complete folder, so it is removed first and written last.
        (folder / "entry.json").unlink(missing_ok=True)
        write_bytes(folder / "program.json", item.program)
        write_bytes(folder / "tensors.safetensors", item.tensors)
        write_bytes(folder / "entry.json", msgspec.json.encode(item.entry) + b"\n")


def today() -> int:
    """Return the number of days since 1970."""
    return int(time.time() // _DAY_S)
