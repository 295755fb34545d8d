"""The command ``run``: goes stage by stage from the request to the report and its exit status.

It keeps the state of the run, of which the report is made however the run ends, and writes the notes that a reader of
the report must know beside the findings.
"""

from __future__ import annotations

import platform
import time
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from ci_autotest import config as configuration
from ci_autotest.commands.budget import Budget, not_run_note
from ci_autotest.commands.case_counts import left_notes, uncompared
from ci_autotest.commands.case_dispatch import CasePlan, execute, learned_of, loader_info, needs_no_candidate
from ci_autotest.commands.executors import Surroundings, means_for
from ci_autotest.commands.exit_status import ended_by, not_written
from ci_autotest.commands.output_writer import permissions_of, read_report, setting_for, write_surfaces
from ci_autotest.commands.request import (
    NothingFoundError,
    Request,
    cases_counted,
    discover_tests,
    hello_for,
    module_folders,
)
from ci_autotest.commands.run_result import Circumstances, make_result
from ci_autotest.commands.run_statistics import Ledger
from ci_autotest.commands.selected_tests import chosen_tests, failed_after
from ci_autotest.commands.selected_tests import is_part as is_part_of
from ci_autotest.commands.signals import Signals
from ci_autotest.config import shapes_of
from ci_autotest.config.known_differences import apply_known, ending_rows, unmatched, valid_on
from ci_autotest.discovery import nothing_found, select
from ci_autotest.errors import AutotestError, OutputError, UnavailableError
from ci_autotest.extensions import TIMING, part
from ci_autotest.findings.database import FOLDER, Database
from ci_autotest.findings.own_tests import unrepeated_notes
from ci_autotest.findings.regressions import Regressions, kept_of, regressed, replay_kept
from ci_autotest.findings.tools import Allowance, Tools
from ci_autotest.findings.triage import Triage, look_at
from ci_autotest.report.finding_folders import check_writable, prepare
from ci_autotest.run.orphan_processes import adopt, children, end_left_behind, end_others
from ci_autotest.run.pool import Pool
from ci_autotest.values.amounts import plural
from ci_autotest.values.case import root_seed
from ci_autotest.values.expected_failures import accept_expected
from ci_autotest.values.past_run import past_run
from ci_autotest.values.result import REFERENCE_CANDIDATE, CandidateInfo, Environment, RunError
from ci_autotest.version import VERSION

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from ci_autotest.commands.executors import Means
    from ci_autotest.commands.progress import Progress
    from ci_autotest.discovery import Selection
    from ci_autotest.findings.database import KeptFinding, Learned
    from ci_autotest.values.finding import Finding
    from ci_autotest.values.result import BrokenTest, RunResult
    from ci_autotest.values.speed import SpeedResult

#: Greatest number of remarks on one test.
_REMARKS: Final = 10


@dataclass(slots=True)
class RunState:
    """State of a run.

    Args:
        choice: What ``-k`` and ``--lf`` have chosen, in words.
        foreign: How many tests of the files do not use ``@autotest``, in words.
        is_part: Whether fewer tests run than a run without arguments has.
        is_stopped: Whether ``--maxfail`` has ended the cases.
        untimed: What ended the timing early.
        unused: What the executor could not use, in words.
        failure: The error that ended the run after it had begun.
        unwritten: Sentences about what could not be written.
    """

    request: Request
    selection: Selection
    seed: int
    output: Path
    budget: Budget
    database: Database
    learned: dict[str, Learned]
    infos: list[CandidateInfo] = field(default_factory=list)
    torch: str = ""
    plan: CasePlan | None = None
    ledger: Ledger = field(default_factory=lambda: Ledger([], ()))
    broken: list[BrokenTest] = field(default_factory=list)
    triage: Triage = field(default_factory=Triage)
    regressions: Regressions = field(default_factory=Regressions)
    is_interrupted: bool = False
    is_part: bool = False
    is_stopped: bool = False
    choice: str = ""
    foreign: str = ""
    failure: AutotestError | None = None
    unwritten: list[str] = field(default_factory=list)
    speed: list[SpeedResult] = field(default_factory=list)
    untimed: str = ""
    unused: Sequence[str] = ()
    baseline: RunResult | None = None

    @property
    def failures(self) -> int:
        """Number of suspected findings and broken tests so far."""
        broken = sum(bool(entry.broken) for entry in self.ledger.tests.values())
        # `--maxfail` ends a run while its cases run, which is before any finding is confirmed.
        return self.ledger.suspected + broken + len(self.broken)


class Timing(NamedTuple):
    """What candidates are timed with.

    Attributes:
        tools: The tools of the run.
        factor: ``slower_factor``.
        baseline: The results of an earlier run.
        say: Prints a line.
    """

    tools: Tools
    factor: float
    baseline: Sequence[SpeedResult]
    say: Callable[[str], None]


def run(request: Request, environ: Mapping[str, str], progress: Progress) -> RunResult:
    """Run the tests, write the report, and return the result with its exit status.

    Raises:
        AutotestError: The request cannot be run.
    """
    begun = time.monotonic()
    # Everything that can be refused is refused here, before the report of an earlier run is removed.
    baseline = read_report(request.baseline) if request.baseline is not None else None
    state = _begun(request, environ, begun)
    state.baseline = baseline
    signals = Signals()
    # Said before anything heavy starts.
    names = ", ".join(candidate.name for candidate in request.candidates)
    on = f" on {names}" if names else ""  # Data loaders have no candidate of the configuration.
    progress.say(f"seed {state.seed}: {plural(len(state.selection.files), 'test file')}{on}")
    echo = progress.echo if request.is_output_shown else None
    means = means_for(request, Surroundings(environ, signals.interruptible, echo))
    known = frozenset(children())
    adopt()
    end_left_behind()
    # Signals are held back except during the stages, so that every stage that has run gets into the report.
    with signals.installed(), signals.held():
        try:
            with progress.shown(), signals.let_through():
                _stages(state, means, (signals, environ, progress))
        except KeyboardInterrupt:
            state.is_interrupted = True
        except (OutputError, UnavailableError) as error:
            if state.plan is None:
                raise
            state.failure = error  # What ran so far is reported, with the exit status of this error.
        finally:
            signals.over()
            means.close()
            state.unused = means.notes
            end_others(known)
        if state.plan is None:
            prepare(state.output)
        result = _result(state, environ)
        if request.shard == (1, 1) and not result.is_partial:
            state.database.remember(past_run(result, time_s=time.time()))
        permissions = permissions_of(msgspec.structs.replace(request.config, candidates=request.candidates))
        setting = setting_for(result, state.output, environ, permissions, is_own=True)
        return write_surfaces(result, state.output, setting)


def _begun(request: Request, environ: Mapping[str, str], begun: float) -> RunState:
    config = request.config
    seed = root_seed(config.seed, environ)
    selection = select(request.paths or config.paths, request.root, request.start if request.paths else request.root)
    output = (request.start / config.output).resolve()
    if not selection.files:
        raise NothingFoundError(nothing_found(selection))
    check_writable(output)
    total_s = None if config.budget is None else configuration.duration_s(config.budget, "budget")
    database = Database(request.root / FOLDER)
    budget = Budget(time.monotonic, begun, total_s)
    is_part = is_part_of(selection, request) or request.keywords is not None
    return RunState(request, selection, seed, output, budget, database, database.durations(), is_part=is_part)


def _stages(state: RunState, means: Means, world: tuple[Signals, Mapping[str, str], Progress]) -> None:
    """Run all stages; each stores its result in ``state`` before the next one starts."""
    signals, environ, progress = world
    request = state.request
    hello = hello_for(request, state.seed, state.selection)
    folders = module_folders(request, state.selection)
    tools = Tools(
        lambda: means.executor.start(None), means.fork_client, hello, state.output, folders, state.seed, environ,
        configuration.duration_s(request.config.case_timeout, "case_timeout"), shown=request.config.output,
        replay=request.replay, allowance=Allowance(state.budget.deadline), show=progress.stage,
        unwritten=state.unwritten,
        known=valid_on(request.config.known, datetime.now(timezone.utc).date()),
    )  # fmt: skip
    progress.stage("importing torch and the candidates")
    pool = Pool(means.executor, hello)
    try:
        ready = pool.ready()
        state.infos, state.torch = ready.candidates, ready.torch
        _refuse_missing(state.infos, request)
        found = discover_tests(pool, state.selection, cases_counted(request), progress.stage)
        state.broken, state.foreign = found.broken, found.note
        tests, state.choice = chosen_tests(
            found.tests, request, state.database.failed() if request.is_last_failed else ()
        )
        state.is_part |= len(tests) < len(found.tests)
        # A broken test says what is wrong with it, whatever candidates there are.
        if not (request.candidates or state.broken or needs_no_candidate(tests, state.selection)):
            configuration.chosen(request.config, ())
        state.infos = [*state.infos, *loader_info(tests, state.infos, state.torch)]
        for said in filter(None, (state.choice, state.foreign)):
            progress.say(said)
        state.plan = plan = CasePlan(tests, request, state.learned)
        prepare(state.output)
        state.ledger = ledger = plan.ledger(state.infos, tools.known)
        by_id = {test.id: test for test in tests}
        # Only the first shard replays findings of earlier runs: the others would count them again.
        kept = state.database.findings() if request.shard[0] == 1 else ()
        state.regressions = replay_kept(kept, by_id, (*ledger.candidates, REFERENCE_CANDIDATE), tools)
        try:
            _cases(state, pool, tools, (signals, progress))
            regressed(state.regressions, by_id, tools, state.triage.findings)
        except (KeyboardInterrupt, AutotestError):
            with signals.held():
                regressed(state.regressions, by_id, tools, state.triage.findings, is_over=True)
            raise
        if not state.is_stopped:  # Whoever wants the first failure does not wait for times.
            earlier = state.baseline.speed if state.baseline is not None else ()
            timing = Timing(tools, request.config.slower_factor, earlier, progress.say)
            state.untimed = part(TIMING)(ledger, request.candidates, timing, state.speed)
    finally:
        pool.close()


def _cases(state: RunState, pool: Pool, tools: Tools, world: tuple[Signals, Progress]) -> None:
    """Run the cases and make findings of the failing ones; a run that is stopped reports them as first seen."""
    signals, progress = world
    plan, ledger, triage = state.plan, state.ledger, state.triage
    assert plan is not None  # noqa: S101 - the caller has made it
    try:
        with signals.held():
            try:
                execute(
                    pool, ledger, plan.tasks(ledger, state.learned),
                    lambda: signals.is_pending or _is_over(state), progress,
                )  # fmt: skip
                pool.close()
            finally:
                triage.left = ledger.suspects()
        look_at(triage, tools, progress.say, signals.held)
    except (KeyboardInterrupt, AutotestError):
        with signals.held():
            triage.tell_as_seen(tools)
        raise


def _is_over(state: RunState) -> bool:
    """Return whether no further case begins: the time is up, or there are as many failures as asked for."""
    ledger, most = state.ledger, state.request.failures_at_most
    state.is_stopped = most is not None and state.failures >= most and not ledger.is_complete
    return state.is_stopped or state.budget.is_over(has_found=ledger.has_suspects)


def _result(state: RunState, environ: Mapping[str, str]) -> RunResult:
    request, ledger = state.request, state.ledger
    if request.is_in_process:  # No process was fresh.
        state.triage.findings = [msgspec.structs.replace(item, confirmed=False) for item in state.triage.findings]
    rows, today = request.config.known, datetime.now(timezone.utc).date()
    known = apply_known(state.triage.findings, rows, today)
    known = accept_expected(known, state.plan.tests if state.plan is not None else ())
    # An incomplete run may miss a replacement's operator, so only a complete run reports it as never called.
    is_whole = ledger.is_complete and not state.is_interrupted and state.failure is None
    is_partial = state.is_part or not is_whole
    if ledger.holds_reference:
        info = CandidateInfo(name=REFERENCE_CANDIDATE, backend="torch", version=state.torch)
        state.infos = [*state.infos, info]
    _learn(state)  # Before the notes, which say what could not be written.
    circumstances = Circumstances(
        seed=state.seed, environment=_environment(state, environ), candidates=tuple(state.infos), shard=request.shard,
        shapes=shapes_of(request.candidates), interrupted=state.is_interrupted,
        notes=run_notes(state, known, is_whole=not is_partial and request.shard == (1, 1)),
        broken=tuple(state.broken), baseline=state.baseline, fail_on=request.config.fail_on, is_partial=is_partial,
        duration_s=time.monotonic() - state.budget.begun, plan=_shared_plan(state),
        fixed=tuple(" ".join(entry.identity) for entry in state.regressions.fixed),
        unrepeated=frozenset(state.triage.unrepeated), speed=apply_known(state.speed, rows, today),
    )  # fmt: skip
    result = make_result(ledger, known, circumstances)
    if state.failure is not None:
        result = ended_by(result, RunError(str(state.failure), state.failure.exit_code))
    if state.plan is not None and request.shard == (1, 1):
        is_whole = {each.name for each in request.config.candidates} <= {each.name for each in request.candidates}
        state.database.save_failed(failed_after(result, state.database.failed(), has_all_candidates=is_whole))
    return not_written(result, state.unwritten)


def _shared_plan(state: RunState) -> str:
    """Return the digest of a shard's plan, which `report` compares; nothing if the run has only one shard."""
    return state.plan.digest if state.plan is not None and state.request.shard != (1, 1) else ""


def _learn(state: RunState) -> None:
    """Save what the next run wants to know; not for shards, which must all plan alike: ``report`` does it."""
    if state.plan is None or state.request.shard != (1, 1):
        return
    kept: dict[str, KeptFinding] = {item.entry.id: item for item in state.regressions.kept}
    for finding in state.triage.findings:
        item = kept_of(finding, state.output)
        if item is not None:
            kept[finding.id] = item
    state.database.save(learned_of(state.ledger, state.learned), kept.values())


def _refuse_missing(infos: list[CandidateInfo], request: Request) -> None:
    required = {candidate.name for candidate in request.candidates if candidate.required}
    for info in infos:
        if not info.available and info.name in required:
            message = f"candidate '{info.name}' is required and not available: {_why_not_available(info)}"
            raise UnavailableError(message)


def _environment(state: RunState, environ: Mapping[str, str]) -> Environment:
    return Environment(
        ci_autotest=VERSION, python=platform.python_version(), platform=f"{platform.system()} {platform.machine()}",
        torch=state.torch, commit=environ.get("GITHUB_SHA", ""), folder=_in_repository(state.request.root, environ),
    )  # fmt: skip


def _in_repository(root: Path, environ: Mapping[str, str]) -> str:
    """Return the configuration's folder relative to the checkout; empty at its top or outside of a workflow."""
    workspace = environ.get("GITHUB_WORKSPACE", "")
    inside = bool(workspace) and root.resolve().is_relative_to(Path(workspace).resolve())
    found = root.resolve().relative_to(Path(workspace).resolve()).as_posix() if inside else ""
    return "" if found == "." else found


def run_notes(state: RunState, findings: tuple[Finding, ...], *, is_whole: bool) -> tuple[str, ...]:
    """Return the sentences that every reader must see."""
    known = state.request.config.known
    notes = [
        f"candidate {info.name!r} was skipped: {_why_not_available(info)}" for info in state.infos if not info.available
    ]
    if state.request.device == "cuda":
        notes += [
            f"candidate {each.name!r} stayed on the CPU: --device cuda is not for ranks that are simulated, nor for "
            "those of another framework"
            for each in state.request.candidates
            if each.stays_on_cpu
        ]
    if shapes := shapes_of(state.request.candidates):
        notes.append(
            f"the cases of a test share {shapes} sets of sizes and choices, with new data each time, because a "
            "candidate compiles for every shape (`shapes:` of a candidate)"
        )
    notes += [
        f"{each.name} was not timed: {why}" for each in state.request.candidates if each.speed and (why := each.untimed)
    ]
    notes += [state.untimed] if state.untimed else []
    notes += state.unused
    notes += [said for said in (state.choice, state.foreign) if said]
    if state.is_stopped:
        notes.append(f"stopped after {plural(state.failures, 'failure')} (-x or --maxfail)")
    if state.request.is_in_process:
        notes.append(
            "everything ran in one process (--workers 0): no finding was confirmed in a fresh process, and no case "
            "had a time limit"
        )
    differences: list[Finding | SpeedResult] = [*findings, *state.speed]
    today = datetime.now(timezone.utc).date()
    notes += ending_rows(differences, known, today)
    if is_whole:
        notes += unmatched(differences, known, today)
    if state.ledger.passed:
        reasons = ", ".join(sorted({error.reason for error in state.ledger.passed}))
        notes.append(
            f"workers were lost {len(state.ledger.passed)} times ({reasons}), and no case repeats it; their cases were "
            "run again, and that result counts"
        )
    notes += [
        f"fixed: {entry.operator} ({entry.kind}) on {entry.candidate} no longer fails; it is kept as a regression case"
        for entry in state.regressions.fixed
    ]
    notes += [
        f"{entry.info.id}: {entry.tally.outside} cases have an input that may have been computed outside of the "
        "recorded steps, by numpy or another library; both sides get it as an input, and it is not compared"
        for entry in state.ledger.tests.values()
        if entry.tally.outside
    ]
    notes += [
        f"{name} has no {', '.join(usage.left_out)}: left out of its modules, and not compared"
        for name, usage in state.ledger.usage.items()
        if usage.left_out
    ]
    notes += [
        f"{test} on {name}: {note}"
        for (test, name), pair in state.ledger.pairs.items()
        for note in uncompared(pair.added.cost)
    ]
    notes += [f"{test}: {remark}" for test in state.ledger.tests for remark in _few(state.ledger.remarks.get(test, ()))]
    notes += dict.fromkeys(state.ledger.cut)
    notes += left_notes(state.ledger.left)
    notes += unrepeated_notes(state.triage.unrepeated)
    notes += [note for note in (not_run_note(state.ledger), *state.regressions.refused, *state.database.notes) if note]
    return tuple(notes)


def _few(remarks: Collection[str]) -> list[str]:
    """Return the first remarks on a test; a grid may have a million points that the reference rejects."""
    rest = len(remarks) - _REMARKS
    return sorted(remarks)[:_REMARKS] + ([f"and {rest:,} more such notes"] if rest > 0 else [])


def _why_not_available(info: CandidateInfo) -> str:
    """Return why a candidate is not available, without its name, which the caller's sentence has."""
    return info.reason.removeprefix(f"candidate '{info.name}': ")
