"""The command ``list``: lists the tests, or the cases that each shard would run."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from itertools import groupby, islice
from typing import TYPE_CHECKING, Final

from ci_autotest.commands.case_dispatch import CasePlan, cases_of
from ci_autotest.commands.executors import single_processes
from ci_autotest.commands.request import Request, discovered, hello_for
from ci_autotest.commands.selected_tests import chosen_tests
from ci_autotest.findings.database import FOLDER, Database
from ci_autotest.plan import shard_of
from ci_autotest.run.pool import Pool
from ci_autotest.values.amounts import plural
from ci_autotest.values.case import GRID_AT_MOST
from ci_autotest.values.judgement import FAILED, FINE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import TextIO

    from ci_autotest.run.messages import TestInfo
    from ci_autotest.values.result import BrokenTest

_SILENCE_S: Final = 300.0
#: Ranges of cases that are printed of one test.
_RANGES_AT_MOST: Final = 50


def list_tests(request: Request, environ: Mapping[str, str], stream: TextIO, shards: int | None = None) -> int:
    """Print the tests by file, and the files that cannot be imported; with ``shards``, the cases of each shard."""
    if shards is not None:
        shard_of(f"1/{shards}")  # Refuses more shards than a run may have.
    nothing = replace(request, candidates=())  # Nothing runs, so no candidate is started.
    with (
        single_processes(nothing, environ, _SILENCE_S) as executor,
        closing(Pool(executor, hello_for(nothing, 0))) as pool,
    ):
        found = discovered(pool, request)
    tests = chosen_tests(found.tests, request, ()).tests
    if shards is None:
        _show_tests(tests, request, stream)
    else:
        _show_shards(tests, request, stream, shards)
    _show_broken(found.broken, stream)
    stream.write(f"{found.note}\n" if found.note else "")
    files = len({test.location.file for test in tests})
    stream.write(f"{plural(len(tests), 'test')} in {plural(files, 'file')}\n")
    return FAILED if found.broken else FINE


def _show_tests(tests: Sequence[TestInfo], request: Request, stream: TextIO) -> None:
    for file, own in groupby(tests, key=lambda test: test.location.file):
        stream.write(f"{file}\n")
        for test in own:
            cases = plural(cases_of(test, request), "case")
            if test.grid:
                too_many = f"; {GRID_AT_MOST:,} are allowed" if test.grid > GRID_AT_MOST else ""
                cases += f", a grid of {test.grid:,} points{too_many}"
            stream.write(f"  {test.id}  line {test.location.line}, {cases}\n")


def _show_broken(broken: Sequence[BrokenTest], stream: TextIO) -> None:
    for item in broken:
        stream.write(f"{item.test} {item.message}\n{item.traceback}\n")


def _show_shards(tests: Sequence[TestInfo], request: Request, stream: TextIO, count: int) -> None:
    """Print the cases of each shard by test, and the seconds that they took in earlier runs."""
    learned = Database(request.root / FOLDER).durations()
    for index in range(1, count + 1):
        plan = CasePlan(tests, replace(request, shard=(index, count)), learned)
        own = [share for share in plan.shares if share.cases]
        cases = sum(len(share.cases) for share in own)
        seconds = sum(len(share.cases) * plan.case_s[share.test] for share in own)
        known = f", about {seconds:.1f} s" if any(test.id in learned for test in tests) else ""
        stream.write(f"shard {index}/{count}: {plural(cases, 'case')} of {plural(len(own), 'test')}{known}\n")
        for share in own:
            stream.write(f"  {tests[share.test].id}  cases {_ranges(share.cases)}\n")


def _ranges(cases: Sequence[int]) -> str:
    """Return numbers as ranges, for example ``0, 10-19``; the first ones if there are many."""
    if isinstance(cases, range):
        return f"{cases[0]}-{cases[-1]}" if len(cases) > 1 else str(cases[0])
    runs = (list(run) for _, run in groupby(enumerate(cases), key=lambda pair: pair[1] - pair[0]))
    found = [
        f"{run[0][1]}-{run[-1][1]}" if len(run) > 1 else str(run[0][1]) for run in islice(runs, _RANGES_AT_MOST + 1)
    ]
    return ", ".join(found[:_RANGES_AT_MOST] + ["..."] * (len(found) > _RANGES_AT_MOST))
