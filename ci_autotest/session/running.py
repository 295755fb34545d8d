"""The command ``run``: configuration to exit status, stage by stage."""

from __future__ import annotations

import os
import platform
import time
from contextlib import suppress
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from ci_autotest import config as configuration
from ci_autotest.case import root_seed
from ci_autotest.discovery import nothing_found, select
from ci_autotest.errors import OutputError, UnavailableError
from ci_autotest.known import apply_known, unmatched
from ci_autotest.plan import blocks, shares
from ci_autotest.report.artifacts import check_writable, prepare
from ci_autotest.result import BrokenTest, CandidateInfo, Environment, Finding, RunResult
from ci_autotest.run.nursery import Nursery, preloaded
from ci_autotest.run.pool import Lost, Part, Pool, Task, Wrong
from ci_autotest.run.process import WorkerProcess
from ci_autotest.session.findings import CONFIRMED_AT_MOST, make_finding, unconfirmed
from ci_autotest.session.ledger import Ledger
from ci_autotest.session.made import Workshop
from ci_autotest.session.progress import Progress
from ci_autotest.session.requested import NothingFoundError, Request, discover_tests, hello_for, module_folders
from ci_autotest.session.results import Circumstances, make_result
from ci_autotest.session.surfaces import read_baseline, setting_for, write_surfaces
from ci_autotest.version import VERSION

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import TextIO

    from ci_autotest.config import Config
    from ci_autotest.run.messages import TestInfo
    from ci_autotest.session.ledger import Suspect


#: Cases that may end their worker, per test and candidate, before the rest is left alone.
LOST_AT_MOST: Final = 5


def run(request: Request, environ: Mapping[str, str], stream: TextIO) -> RunResult:
    """Run, write the report, and return the result with its exit status.

    Raises:
        AutotestError: What was asked for cannot be run.
    """
    begun = time.monotonic()
    config = request.config
    seed = root_seed(config.seed, environ)
    # Everything that can be refused is refused before the output folder is touched.
    baseline = read_baseline(request.baseline) if request.baseline is not None else None
    selection = select(
        request.paths or config.paths,
        request.root,
        request.start if request.paths else request.root,
    )
    output = (request.start / config.output).resolve()
    if not selection.files:
        raise NothingFoundError(nothing_found(selection))
    check_writable(output)
    deadline = None if config.budget is None else begun + configuration.duration_s(config.budget, "budget")
    hello = hello_for(request, seed, selection)
    silence_s = configuration.duration_s(config.case_timeout, "case_timeout")
    workshop = Workshop(
        Nursery(environ, silence_s, preloaded(request.candidates)),
        hello,
        output,
        module_folders(request, selection),
        seed,
        environ,
        silence_s,
        shown=config.output,
    )
    stream.write(f"seed {seed}\n")
    pool = Pool(lambda: WorkerProcess(environ, silence_s), hello, _workers(config))
    interrupted = False
    ledger: Ledger | None = None
    broken: list[BrokenTest] = []
    findings: list[Finding] = []
    infos: list[CandidateInfo] = []
    try:
        infos = pool.ready().candidates
        _refuse_missing(infos, request)
        tests, broken = discover_tests(pool, selection)
        ledger = _plan(tests, request, infos)
        prepare(output)
        _execute(pool, ledger, deadline, stream)
        pool.close()
        _make_findings(ledger, workshop, (deadline, stream), findings)
    except KeyboardInterrupt:
        interrupted = True
    finally:
        pool.close()
        workshop.nursery.close()
    if ledger is None:
        ledger = Ledger([], ())
        prepare(output)
    known = apply_known(tuple(findings), config.known, datetime.now(timezone.utc).date())
    # Part of a run calls part of the replacements: only a whole one can say that one was never called.
    is_partial = interrupted or bool(selection.wanted) or not ledger.is_complete
    is_whole = not is_partial and request.shard == (1, 1)
    told = Circumstances(
        seed=seed, environment=_environment(pool, environ, request.root), candidates=tuple(infos), shard=request.shard,
        interrupted=interrupted, notes=_notes(infos, config, known, is_whole=is_whole), broken=tuple(broken),
        baseline=baseline, fail_on=config.fail_on,
        is_partial=is_partial,
        duration_s=time.monotonic() - begun,
    )  # fmt: skip
    result = make_result(ledger, known, told)
    write_surfaces(result, output, setting_for(result, output, environ, is_own=True))
    return result


def _workers(config: Config) -> int:
    if isinstance(config.workers, int):
        return config.workers
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _refuse_missing(infos: list[CandidateInfo], request: Request) -> None:
    required = {candidate.name for candidate in request.candidates if candidate.required}
    for info in infos:
        if not info.available and info.name in required:
            message = f"candidate '{info.name}' is required and not available: {info.reason}"
            if f"'{info.name}' asks for" in info.reason:
                message = info.reason
            raise UnavailableError(message)


def _plan(tests: list[TestInfo], request: Request, infos: list[CandidateInfo]) -> Ledger:
    counts = [request.cases or test.n or request.config.cases for test in tests]
    shared = shares(counts, request.shard)
    available = tuple(info.name for info in infos if info.available)
    return Ledger([(test, share.cases) for test, share in zip(tests, shared, strict=True)], available)


def _execute(pool: Pool, ledger: Ledger, deadline: float | None, stream: TextIO) -> None:
    """Run every block; events go into the ledger, and what cannot be run is left out."""
    entries = list(ledger.tests.values())
    counts = [len(entry.cases) for entry in entries]
    if not ledger.candidates:
        return
    positions = blocks(shares(counts, (1, 1)))
    tasks = [
        Task(entries[test].info, tuple(entries[test].cases[i] for i in at), ledger.candidates) for test, at in positions
    ]
    progress = Progress(stream, sum(counts) * len(ledger.candidates), is_terminal=stream.isatty())
    for event in pool.run(tasks, deadline, lambda task: _still_wanted(ledger, task)):
        match event:
            case Part(task, done):
                ledger.part(task.test.id, done)
            case Lost(task):
                ledger.lost(event)
            case Wrong(task, wrong):
                ledger.broken(task.test.id, wrong.message, wrong.traceback)
        progress.update(event.task.test.id, ledger.done, ledger.suspected)
    progress.end()


def _still_wanted(ledger: Ledger, task: Task) -> Task | None:
    """Return what is left of a task: not of a broken test, not on a candidate that ended too many workers."""
    test = task.test.id
    if ledger.tests[test].broken:
        return None
    names = tuple(name for name in task.candidates if len(ledger.pairs[test, name].lost) < LOST_AT_MOST)
    return task._replace(candidates=names) if names else None


def _make_findings(
    ledger: Ledger, workshop: Workshop, limits: tuple[float | None, TextIO], found: list[Finding]
) -> None:
    """Make findings of the suspects, into ``found``: what was made before an interruption is kept, the rest as seen.

    Findings of one identity, as crashes that are located later may be, are one.
    """
    deadline, stream = limits
    progress = Progress(stream, 0, is_terminal=stream.isatty())
    suspects = ledger.suspects()
    for i, suspect in enumerate(suspects):
        # A share of what the run took is left for confirming, even when the budget is spent.
        late = deadline is not None and time.monotonic() > deadline and i >= 1
        is_left = late or i >= CONFIRMED_AT_MOST
        try:
            finding = unconfirmed(suspect, workshop) if is_left else _made(suspect, workshop, progress)
        except KeyboardInterrupt:
            for other in suspects[i:]:
                _add(found, unconfirmed(other, workshop))
            raise
        progress.say(f"{finding.outcome.replace('_', ' ')}: {finding.headline}")
        _add(found, finding)


def _add(found: list[Finding], finding: Finding) -> None:
    at = next((i for i, other in enumerate(found) if other.identity == finding.identity), None)
    if at is None:
        found.append(finding)
    else:
        found[at] = _united(found[at], finding)


def _made(suspect: Suspect, workshop: Workshop, progress: Progress) -> Finding:
    """Return the finding, or the suspect as it is when making it fails: no report is lost for it."""
    try:
        return make_finding(suspect, workshop)
    except OutputError:
        raise
    except Exception as error:  # noqa: BLE001 - a fault of ours while one finding is made must not cost the run
        progress.say(
            f"a finding could not be confirmed or shrunk ({type(error).__name__}: {error}); it is kept as seen"
        )
        return unconfirmed(suspect, workshop)


def _united(first: Finding, second: Finding) -> Finding:
    """Return one finding of two with one identity; the first stays, unless only the second is confirmed."""
    kept, other = (second, first) if second.confirmed and not first.confirmed else (first, second)
    return msgspec.structs.replace(
        kept,
        cases=kept.cases + other.cases,
        of_cases=kept.of_cases + other.of_cases,
        tests=tuple(dict.fromkeys(kept.tests + other.tests)),
        hits=kept.hits + other.hits,
    )


def _notes(
    infos: list[CandidateInfo], config: Config, findings: tuple[Finding, ...], *, is_whole: bool
) -> tuple[str, ...]:
    notes = [f"candidate {info.name!r} was skipped: {info.reason}" for info in infos if not info.available]
    if is_whole:
        notes += unmatched(findings, config.known, datetime.now(timezone.utc).date())
    return tuple(notes)


def _environment(pool: Pool, environ: Mapping[str, str], root: Path) -> Environment:
    torch = ""
    with suppress(UnavailableError):
        torch = pool.torch
    return Environment(
        ci_autotest=VERSION, python=platform.python_version(), platform=f"{platform.system()} {platform.machine()}",
        torch=torch, commit=environ.get("GITHUB_SHA", ""), folder=_in_repository(root, environ),
    )  # fmt: skip


def _in_repository(root: Path, environ: Mapping[str, str]) -> str:
    """Return the configuration's folder relative to the checkout, empty at its top or outside a workflow."""
    workspace = environ.get("GITHUB_WORKSPACE", "")
    inside = bool(workspace) and root.resolve().is_relative_to(Path(workspace).resolve())
    found = root.resolve().relative_to(Path(workspace).resolve()).as_posix() if inside else ""
    return "" if found == "." else found
