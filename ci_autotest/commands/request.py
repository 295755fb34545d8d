"""A request of the command line, and the discovery of its tests by the workers."""

from __future__ import annotations

import difflib
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from ci_autotest.config import duration_s, shapes_of
from ci_autotest.discovery import nothing_found, select
from ci_autotest.doc_links import Page
from ci_autotest.errors import UsageError, path_text
from ci_autotest.extensions import source_of
from ci_autotest.run.messages import Broken, Discovered, Hello, ReplacedTest, TestInfo
from ci_autotest.values.amounts import plural
from ci_autotest.values.entry_points import SOURCE
from ci_autotest.values.finding import Location
from ci_autotest.values.result import BrokenTest

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from ci_autotest.commands.keyword_expression import Keywords
    from ci_autotest.config import Config
    from ci_autotest.discovery import Selection
    from ci_autotest.kinds import AnyCandidate
    from ci_autotest.run.pool import Pool

#: Answer for a test file whose name cannot be part of a message.
_NO_TEXT: Final = Broken(message="its path is not UTF-8. Rename the file or the folder that it is in.", traceback="")


@dataclass(frozen=True, slots=True)
class Request:
    """What a command is asked to do, from the command line and the configuration file.

    Args:
        config: The merged configuration.
        root: The configuration's folder; ids of tests are relative to it.
        start: The folder in which the command was started.
        paths: Paths of the command line; if there are none, those of the configuration, or else the default ones.
        candidates: The candidates to run; those named on the command line are required.
        shard: ``(K, N)``.
        baseline: A report to compare with.
        cases: ``--cases``, which also overrides ``@autotest(n=...)``.
        takes_all: ``--cases all``: whether a test whose cases are samples runs all of them.
        device: ``--device``.
        executor: ``local``, or ``ray`` for the workers of a cluster.
        file: The path that ``--config`` gives; ``None`` if the nearest file was used.
        keywords: ``-k``: the tests that run.
        is_last_failed: ``--lf``: whether only tests run that failed when they last ran.
        failures_at_most: ``--maxfail``: suspected findings and broken tests after which no further case begins.
        is_in_process: ``--workers 0``: whether everything runs in this process.
        is_output_shown: ``-s``: whether what tests and kernels print is shown as it comes.
    """

    config: Config
    root: Path
    start: Path
    paths: tuple[str, ...]
    candidates: tuple[AnyCandidate, ...]
    shard: tuple[int, int] = (1, 1)
    baseline: Path | None = None
    cases: int | None = None
    takes_all: bool = False
    device: str | None = None
    executor: str = "local"
    file: Path | None = None
    keywords: Keywords | None = None
    is_last_failed: bool = False
    failures_at_most: int | None = None
    is_in_process: bool = False
    is_output_shown: bool = False

    @property
    def replay(self) -> str:
        """The command that replays a finding with the same configuration, without the finding's folder."""
        return (
            "ci-autotest replay" if self.file is None else f"ci-autotest replay --config {shlex.quote(str(self.file))}"
        )


#: Names of tests that a message lists; of more, only the nearest.
_NAMED: Final = 30


class NothingFoundError(UsageError):
    """Stop because no test was found: nothing can be compared."""

    exit_code = 3
    page = Page.NO_TEST


def hello_for(request: Request, seed: int, selection: Selection | None = None) -> Hello:
    """Return the first message to each worker."""
    config = request.config
    own = (
        module_folders(request, selection)
        if selection is not None
        else (request.root.resolve(), request.start.resolve())
    )
    folders = [str(folder) for folder in own]
    return Hello(
        root=str(request.root.resolve()), folders=folders, seed=seed, strictness=config.strictness,
        reference_device=config.reference.device, candidates=list(request.candidates),
        tolerances=list(config.tolerances), known=list(config.known),
        shapes=shapes_of(request.candidates), case_timeout_s=duration_s(config.case_timeout, "case_timeout"),
        compat=config.compat,
        opinfo=config.opinfo,
    )  # fmt: skip


def module_folders(request: Request, selection: Selection) -> tuple[Path, ...]:
    """Return the folders that may hold modules of candidates: the configuration's, the tests' and the current one."""
    own = [file for file in selection.files if path_text(file) == file and not file.startswith(("builtin:", SOURCE))]
    tests = [(request.root / file).resolve().parent for file in own]
    return tuple(dict.fromkeys([request.root.resolve(), *tests, request.start.resolve()]))


class FoundTests(NamedTuple):
    """What the test files of a request define.

    Attributes:
        tests: In order.
        broken: Files that cannot be imported, and tests that a later definition with their name replaces.
        foreign: With ``--compat``: the number of tests that do not use ``@autotest``.
    """

    tests: list[TestInfo]
    broken: list[BrokenTest]
    foreign: int = 0

    @property
    def note(self) -> str:
        """Say how many tests do not use ``@autotest``; empty if all do, or if nobody asked."""
        if not self.foreign:
            return ""
        are = "is" if self.foreign == 1 else "are"
        return (
            f"{plural(self.foreign, 'test')} without @autotest {are} not run: only bodies with @autotest are recorded"
        )


def discovered(pool: Pool, request: Request) -> FoundTests:
    """Return what the files of a request define; no test runs."""
    paths = request.paths or request.config.paths
    selection = select(paths, request.root, request.start if request.paths else request.root)
    if not selection.files:
        raise NothingFoundError(nothing_found(selection))
    return discover_tests(pool, selection, cases_counted(request))


def cases_counted(request: Request) -> int | None:
    """Return the number up to which the samples of a test are counted; ``None`` for all of them."""
    return None if request.takes_all else request.cases or request.config.cases


def discover_tests(
    pool: Pool, selection: Selection, cases: int | None = None, show: Callable[[str], None] = lambda _: None
) -> FoundTests:
    """Return the selected tests in order, and what is wrong with the others.

    Args:
        pool: Its first worker imports the files.
        selection: Files, and the names that are wanted of each.
        cases: Cases of a test with samples; ``None``: all.
        show: Shows which file is imported.

    Raises:
        UsageError: Two tests have the same id, or a file has no test of the requested name.
    """
    tests: list[TestInfo] = []
    broken: list[BrokenTest] = []
    foreign = 0
    for number, file in enumerate(selection.files, 1):
        show(f"importing the tests: file {number:,} of {len(selection.files):,}, {path_text(file)}")
        # A name that is not UTF-8 cannot be sent to a worker, so this file is reported as broken.
        name = path_text(file)
        found = pool.discover(file, selection.wanted.get(file, ()), cases) if name == file else _NO_TEXT
        if isinstance(found, Discovered):
            tests += _wanted(file, found.tests, selection)
            broken += _lost(file, found.lost, selection)
            foreign += found.foreign
        else:
            source, location = source_of(name), Location(file=name, line=1)
            broken.append(
                BrokenTest(
                    test=source.shown(name) if source is not None else name,
                    message=f"does not import: {found.message}",
                    traceback=found.traceback,
                    location=location,
                )
            )
    seen: dict[str, TestInfo] = {}
    for test in tests:
        if test.id in seen and not source_of(test.file):
            first, second = seen[test.id].location, test.location
            message = (
                f"two tests have the id '{test.id}': {first} and {second}. Give one of them another @autotest(id=...)."
            )
            raise UsageError(message)
        seen[test.id] = test
    # A family and its source may both have been asked for.
    tests = list(seen.values())
    if not tests and not broken:
        raise NothingFoundError(nothing_found(selection))
    return FoundTests(tests, broken, foreign)


def _lost(file: str, lost: Sequence[ReplacedTest], selection: Selection) -> list[BrokenTest]:
    """Return the selected tests of a file that a later definition with their name replaces."""
    names = selection.wanted.get(file)
    return [
        # The id is that of the test that replaces it, so the line is part of the name.
        BrokenTest(
            test=f"{file}::{each.name.replace('.', '::')} (line {each.line})",
            message=each.message,
            location=Location(file=file, line=each.line),
        )
        for each in lost
        if names is None or any(_is_in(each.name, name) or name.startswith(f"{each.name}.") for name in names)
    ]


def _wanted(file: str, found: list[TestInfo], selection: Selection) -> list[TestInfo]:
    names = selection.wanted.get(file)
    if names is None:
        return found
    known = {test.name for test in found}
    for name in names:
        if not any(_is_in(test.name, name) for test in found):
            raise UsageError(_no_test(file, name, sorted(known)))
    return [test for test in found if any(_is_in(test.name, name) for name in names)]


def _no_test(file: str, name: str, known: list[str]) -> str:
    """Return that a file has no test of a name, with the names that it has, or the nearest ones of many."""
    if len(known) <= _NAMED:
        return f"{file} has no test '{name}'. It has {', '.join(known) or 'none'}."
    nearest = difflib.get_close_matches(name, known, 3, 0.5)
    hint = f"Did you mean {' or '.join(map(repr, nearest))}? " if nearest else ""
    return f"{file} has no test '{name}'. {hint}It has {len(known):,}, which `ci-autotest list {file}` prints."


def _is_in(test: str, name: str) -> bool:
    """Return whether a test is the one of that name, a method of that class, or a row of its ``parametrize``."""
    return test == name or test.startswith((f"{name}.", f"{name}["))
