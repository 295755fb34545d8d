"""The command ``power``: how much the tests would notice, by mutants of the reference that run as candidates."""

from __future__ import annotations

import platform
import time
from collections import deque
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, NamedTuple

import click
import msgspec
from rich.console import Console

from ci_autotest import config as configuration
from ci_autotest.commands.case_dispatch import cases_of
from ci_autotest.commands.executors import Surroundings, means_for
from ci_autotest.commands.line_width import wrapped
from ci_autotest.commands.output_writer import REPORT, permissions_of, read_report, setting_for, write_surfaces
from ci_autotest.commands.request import NothingFoundError, cases_counted, discover_tests, hello_for
from ci_autotest.commands.selected_tests import chosen_tests
from ci_autotest.commands.signals import Signals
from ci_autotest.discovery import nothing_found, select
from ci_autotest.errors import OutputError
from ci_autotest.report.finding_folders import check_writable
from ci_autotest.report.power_text import power_lines, power_sentence
from ci_autotest.report.report_json import text_of
from ci_autotest.run.messages import Broken, MutantsTried, TryMutants
from ci_autotest.run.pool import Pool
from ci_autotest.run.worker_loss import WorkerLostError
from ci_autotest.values.amounts import plural
from ci_autotest.values.case import root_seed
from ci_autotest.values.judgement import FAILED, FINE, INTERRUPTED, NOTHING
from ci_autotest.values.power import EXPLAINING, FAILURES, PowerResult, TestPower, UnscoredReason, power_of_tests
from ci_autotest.values.result import Environment, RunResult, Summary
from ci_autotest.version import VERSION

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path
    from typing import TextIO

    from ci_autotest.commands.progress import Progress
    from ci_autotest.commands.request import Request
    from ci_autotest.commands.result_text import Display
    from ci_autotest.run.messages import FromWorker, TestInfo
    from ci_autotest.values.result import BrokenTest, CandidateInfo
    from ci_autotest.values.verdict import Kind

#: Times that a test is sent again if its worker was killed from outside.
_KILLED_AT_MOST: Final = 3


class PowerRequest(NamedTuple):
    """What is asked for.

    Attributes:
        fail_under: The least score; ``None`` if any will do.
        mutants: Mutants of a test at most.
        sources: Mutants of torch's Python decompositions at most, besides.
    """

    fail_under: float | None
    mutants: int
    sources: int = 0


class PowerMeasurement(NamedTuple):
    """The power with the report that it is a part of, and the exit status of the command."""

    power: PowerResult
    report: RunResult
    exit_code: int


def power(request: Request, wanted: PowerRequest, environ: Mapping[str, str], progress: Progress) -> PowerMeasurement:
    """Try mutants on the tests, and write the result into the report.

    A report of a run that is in the output folder keeps its other parts.

    Raises:
        AutotestError: The request cannot be run.
    """
    begun, config = time.monotonic(), request.config
    seed = root_seed(config.seed, environ)
    selection = select(request.paths or config.paths, request.root, request.start if request.paths else request.root)
    if not selection.files:
        raise NothingFoundError(nothing_found(selection))
    output = (request.start / config.output).resolve()
    check_writable(output)
    progress.say(f"seed {seed}: {plural(len(selection.files), 'test file')}, mutants of the reference as candidates")
    signals = Signals()
    asked = request.candidates
    # Replacements say which operators count; no other candidate is started.
    request = replace(request, candidates=tuple(each for each in asked if each.replaced))
    total_s = None if config.budget is None else configuration.duration_s(config.budget, "budget")
    trial = _Trial(
        request, wanted, seed, None if total_s is None else begun + total_s,
        tolerances=asked[0].name if len(asked) == 1 else "", has_all=len(request.candidates) < len(asked),
    )  # fmt: skip
    is_interrupted = False
    means = means_for(request, Surroundings(environ, signals.interruptible))
    with signals.installed(), signals.held():
        try:
            with progress.shown(), signals.let_through():
                pool = Pool(means.executor, hello_for(request, seed, selection))
                try:
                    ready = pool.ready()
                    found = discover_tests(pool, selection, cases_counted(request), progress.stage)
                    trial.broken = found.broken
                    tests = chosen_tests(found.tests, request, ()).tests
                    trial.run(pool, tests, ready.candidates, progress)
                finally:
                    pool.close()
        except KeyboardInterrupt:
            is_interrupted = True
        finally:
            signals.over()
            means.close()
        measured = trial.result()
        code = INTERRUPTED if is_interrupted else exit_code(measured, trial.broken)
        report = _report(output, measured, trial.broken, environ, code)
        report = msgspec.structs.replace(report, interrupted=report.interrupted or is_interrupted)
        permissions = permissions_of(request.config)
        written = write_surfaces(report, output, setting_for(report, output, environ, permissions, is_own=True))
        if written.exit_code == OutputError.exit_code and report.exit_code != written.exit_code:
            code = written.exit_code
        return PowerMeasurement(measured, written, code)


def show_power(found: PowerMeasurement, output: str, stream: TextIO, display: Display) -> None:
    """Write the powerless tests, the survivors with their reasons and the score; with ``--json`` also the report."""
    width = Console(file=stream).width if stream.isatty() else None
    for broken in found.report.broken if not found.report.results else ():
        stream.write(f"broken: {broken.test}: {broken.message}\n")
    for line in power_lines(found.power, has_all=display.is_verbose) if not display.is_quiet else ():
        stream.write(f"{wrapped(line, width)}\n")
    stream.write(f"{wrapped(power_sentence(found.power), width)}\n")
    stream.write(f"seed {found.power.seed}; report in {output}; exit status {found.exit_code}\n")
    if display.is_json:
        click.echo(text_of(found.report), nl=False)


def exit_code(measured: PowerResult, broken: Sequence[BrokenTest]) -> int:
    """Return the exit status: what cannot be run or a low score, then a test without one."""
    if broken or measured.is_too_low or any(test.unscored in FAILURES for test in measured.tests):
        return FAILED
    return NOTHING if measured.score is None or measured.unmeasured else FINE


@dataclass(slots=True)
class _Trial:
    """The tests of a command, and what is known of them.

    Args:
        request: What is asked for, with the candidates that replace operators.
        wanted: The mutants.
        seed: Root seed.
        deadline: Monotonic seconds after which no test begins; ``None``: never.
        tolerances: The candidate whose rows of ``tolerances`` hold: the only one, if there is only one.
        has_all: Whether a candidate computes every operator, so that all of them count.
        found: The power of the tests that have ended.
        broken: Files that cannot be imported.
    """

    request: Request
    wanted: PowerRequest
    seed: int
    deadline: float | None
    tolerances: str = ""
    has_all: bool = False
    found: dict[str, TestPower] = field(default_factory=dict)
    broken: Sequence[BrokenTest] = ()

    def run(self, pool: Pool, tests: Sequence[TestInfo], infos: Sequence[CandidateInfo], progress: Progress) -> None:
        """Try the mutants of every test."""
        operators = [] if self.has_all else sorted({name for info in infos for name in info.replaces})
        for test in tests:
            unscored = UnscoredReason.LOADER if test.candidate else UnscoredReason.NOT_RUN
            self.found[test.id] = TestPower(test=test.id, unscored=unscored)
        waiting = deque(
            TryMutants(
                test=test, cases=cases_of(test, self.request), seed=self.seed, mutants=self.wanted.mutants,
                sources=self.wanted.sources,
                operators=operators, tolerances=self.tolerances,
            )
            for test in tests
            if not test.candidate
        )  # fmt: skip
        total = len(waiting)
        progress.begin(total, "tests")
        killed: dict[str, int] = {}
        for message, answer in pool.ask_each(waiting):
            again = self._ended(message, answer, killed)
            if again is not None:
                waiting.appendleft(again)
            if self.deadline is not None and time.monotonic() > self.deadline:
                waiting.clear()
            left = sum(each.unscored is UnscoredReason.NOT_RUN for each in self.found.values())
            progress.update(message.test.id, total - left, 0)

    def _ended(
        self, message: TryMutants, answer: FromWorker | WorkerLostError, killed: dict[str, int]
    ) -> TryMutants | None:
        """Keep the answer to a request; return the request that follows it, if there is one."""
        test = message.test.id
        if isinstance(answer, WorkerLostError):
            if answer.is_killed:
                killed[test] = killed.get(test, 0) + 1
                if killed[test] <= _KILLED_AT_MOST:
                    return message
                # No mutant did that, so that none of them counts as noticed.
                why = f"the system killed its worker {killed[test]} times. Free memory, or give fewer --workers"
                self.found[test] = TestPower(test=test, unscored=UnscoredReason.LOST, why=why)
                return None
            if answer.spot.attempt == EXPLAINING:  # The mutant ran on all cases, and none noticed it.
                unexplained = [*message.unexplained, answer.spot.candidate]
                return msgspec.structs.replace(message, unexplained=unexplained)
            if answer.spot.candidate >= 0:  # A mutant has ended it, which costs no other mutant.
                kind: Kind = "timeout" if answer.timed_out else "crash"
                return msgspec.structs.replace(message, lost={**message.lost, answer.spot.candidate: kind})
            why = f"the worker {answer.reason}"
            self.found[test] = TestPower(test=test, unscored=UnscoredReason.LOST, why=why)
        elif isinstance(answer, MutantsTried):
            # A test can forge its worker's messages: the answer is about this test and no other.
            self.found[test] = msgspec.structs.replace(answer.power, test=test)
        else:
            why = answer.message if isinstance(answer, Broken) else "a worker answered out of turn"
            self.found[test] = TestPower(test=test, unscored=UnscoredReason.BROKEN, why=why)
        return None

    def result(self) -> PowerResult:
        """Return what is known so far."""
        return power_of_tests(self.found.values(), self.seed, self.wanted.fail_under, self.tolerances)


def _report(
    output: Path, measured: PowerResult, broken: Sequence[BrokenTest], environ: Mapping[str, str], code: int
) -> RunResult:
    """Return the report of the run in the output folder with the power, or a report of the power alone."""
    if (output / REPORT).is_file():
        before = read_report(output)
        if before.results:
            return msgspec.structs.replace(before, power=measured, exit_code=before.exit_code or code)
    return RunResult(
        seed=measured.seed,
        environment=Environment(
            ci_autotest=VERSION, python=platform.python_version(),
            platform=f"{platform.system()} {platform.machine()}", commit=environ.get("GITHUB_SHA", ""),
        ),
        candidates=(), results=(), findings=(), summary=Summary(broken=len(broken)), broken=tuple(broken),
        power=measured, exit_code=code,
    )  # fmt: skip
