"""Run a test in the process that called it, under pytest or unittest, without isolation."""

from __future__ import annotations

import os
import shlex
import sys
import unittest
from collections import Counter
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from ci_autotest import config as configuration
from ci_autotest.alignment.cases import Contender, accept, differentiate, try_case
from ci_autotest.alignment.tolerance_rules import rules_for
from ci_autotest.backends.devices import device_of
from ci_autotest.backends.eager.backend import TorchBackend
from ci_autotest.backends.operators.identity import refuse_unknown_rows
from ci_autotest.backends.registry import build
from ci_autotest.config import of_reference
from ci_autotest.config.known_differences import accepted_by, apply_known, check_known
from ci_autotest.doc_links import Page, more
from ci_autotest.errors import AuthorError, NoCandidateError, OutputError, UnavailableError
from ci_autotest.in_process_findings import SeenMisalignment, smallest, write_folder
from ci_autotest.program.expectations import has_expectation
from ci_autotest.pytest_options import PYTEST_OPTIONS
from ci_autotest.record.user_operators import declare_operators
from ci_autotest.report.finding_files import located
from ci_autotest.report.finding_folders import FINDINGS
from ci_autotest.report.finding_message import About, advice, finding_of, message_lines
from ci_autotest.report.finding_program import shown_program
from ci_autotest.values.case import root_seed
from ci_autotest.values.finding import Location, counts_against
from ci_autotest.values.result import REFERENCE_CANDIDATE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ci_autotest.backends.protocol import Backend
    from ci_autotest.backends.trace import Attempt
    from ci_autotest.config import Config
    from ci_autotest.in_process_findings import DrawAttempt
    from ci_autotest.kinds import AnyCandidate

#: unittest leaves out the frames of modules that have this name, so a failure shows its message alone.
__unittest = True

#: Printed once, when the first test runs.
NOTICE: Final = "ci-autotest: tests run in this process, without isolation; `ci-autotest run` gives each a worker.\n"


class InProcessSetting(NamedTuple):
    """Everything that a test needs to run in the process that called it.

    Attributes:
        config: The configuration.
        candidates: The candidates to run.
        test: The test's id.
        seed: Root seed.
        cases: Number of cases from pytest's command line; overrides what the test declares.
        folders: Folders with the user's own modules, for a host.
        location: Definition of the test.
        needs_pytest: Whether the test takes fixtures, so that only pytest can run it again.
    """

    config: Config
    candidates: tuple[AnyCandidate, ...]
    test: str
    seed: int
    cases: int | None
    folders: tuple[str, ...]
    location: Location | None = None
    needs_pytest: bool = False


def setting_of(
    file: str, name: str, declared: str | None, arguments: str = "", line: int | None = None
) -> InProcessSetting:
    """Return the setting of a test: the nearest ``autotest.yml`` above its file, else above the current folder.

    Args:
        file: The test's file.
        name: Its qualified name.
        declared: The id that it declares.
        arguments: ``[3-same]`` if it is called with arguments.
        line: The line of its definition.

    Raises:
        ConfigError: The configuration is wrong.
        NoCandidateError: It has no candidate: comparing torch with itself would always pass.
    """
    source, options = Path(file).resolve(), PYTEST_OPTIONS.get()
    config, root = configuration_of(source)
    refuse_unknown_rows([row.operator for row in config.tolerances], "tolerances")
    refuse_unknown_rows([row.operator for row in config.known], "known")
    if not config.candidates and not options.candidates:
        message = (
            f"no candidate to compare {name} with: no {configuration.FILE_NAME} with `candidates:` "
            f"in or above {source.parent} or the current folder. Write one, give pytest --autotest-candidate NAME, or "
            f"use `ci-autotest run --candidate NAME`.{more(Page.NO_CANDIDATE)}"
        )
        raise NoCandidateError(message)
    # Appended, so that the user's folders cannot shadow installed packages.
    for folder in (str(source.parent), str(root)):
        if folder not in sys.path:
            sys.path.append(folder)
    test = (declared or f"{relative_path(source, root)}::{name.replace('.', '::')}") + arguments
    seed = options.seed if options.seed is not None else root_seed(config.seed, os.environ)
    folders = (str(source.parent), str(root))
    return InProcessSetting(
        config,
        configuration.chosen(config, options.candidates),
        test,
        seed,
        options.cases,
        folders,
        None if line is None else Location(file=relative_path(source, root), line=line),
    )


def configuration_of(source: Path) -> tuple[Config, Path]:
    """Return the nearest configuration above a file, else above the current folder, and its folder."""
    path = configuration.find(source.parent) or configuration.find(Path.cwd())
    config = configuration.read(path) if path else configuration.Config()
    check_known(config, str(path))
    return config, (path.parent if path else Path.cwd()).resolve()


def relative_path(source: Path, root: Path) -> str:
    """Return a path relative to the configuration's folder, if it is in it."""
    return source.relative_to(root).as_posix() if source.is_relative_to(root) else source.as_posix()


def run_here(declared: Any, setting: InProcessSetting, draw: DrawAttempt) -> None:
    """Run a test's cases and raise on the first misalignment that is not a known difference.

    Args:
        declared: The test's declaration.
        setting: Configuration, candidates and seed.
        draw: Makes an attempt.

    Raises:
        AssertionError: A candidate is misaligned.
        AuthorError: Nothing was compared.
        ConfigError: A candidate names an operator that torch does not have.
        UnavailableError: A candidate is not available.
    """
    __tracebackhide__ = True
    config = setting.config
    declare_operators(setting.candidates)
    with ExitStack() as stack:
        contenders = {}
        for candidate in setting.candidates:
            backend = _backend(candidate, setting.folders)
            stack.callback(backend.close)
            rules = rules_for(config.tolerances, config.strictness, candidate.name, declared)
            accepts = accepted_by(config.known, candidate.name, datetime.now().astimezone().date())
            contenders[candidate.name] = Contender(backend, rules, accepts=accepts)
        rules = rules_for(config.tolerances, config.strictness, REFERENCE_CANDIDATE, declared)
        own = Contender(TorchBackend(is_candidate=True), rules)
        _run_cases(declared, setting, draw, contenders, own)


def _backend(candidate: AnyCandidate, folders: tuple[str, ...]) -> Backend:
    try:
        return build(candidate, device_of(candidate), folders)
    except UnavailableError as error:
        name = f"candidate '{candidate.name}'"
        # Some reasons already start with the candidate's name.
        reason = str(error).removeprefix(f"{name}: ")
        message = f"{name} is not available: {reason}"
        raise UnavailableError(message) from error


def stop_unittest(args: tuple[Any, ...]) -> None:
    """Stop the unittest run that a test belongs to, if any: all other tests would fail with the same message.

    It is called while the error is handled.

    Args:
        args: Arguments of the test; the first may be its ``TestCase``.
    """
    # A test case has no public way to its result. Under pytest it is no TestResult, and the plugin ends the session.
    outcome = getattr(args[0] if args else None, "_outcome", None)
    result = getattr(outcome, "result", None)
    if isinstance(result, unittest.TestResult):
        if getattr(outcome, "expecting_failure", False):  # Else the run would be green, and the other tests not run.
            result.addError(args[0], sys.exc_info())
        result.stop()


def _run_cases(
    declared: Any,
    setting: InProcessSetting,
    draw: DrawAttempt,
    contenders: Mapping[str, Contender],
    own: Contender,
) -> None:
    """Run the cases; ``own`` is PyTorch as a candidate, which is held against what a case expects."""
    __tracebackhide__ = True
    compared: Counter[str] = Counter()
    reasons: dict[str, str] = {}
    refusal = skipped = ""
    reference = TorchBackend()
    for case in range(_count(declared, setting)):
        found = accept(case, draw, contenders, lambda _case, _name, _number: None)
        refusal, skipped = found.refusal or refusal, skipped or found.given_up
        for candidate in setting.candidates:
            lenient = found.lenient.get(candidate.name)
            if lenient is not None:
                seen = SeenMisalignment(
                    lenient.judged, candidate, contenders[candidate.name], reference, (case, lenient.number)
                )
                _raise_failure(seen, lenient.profile, setting, draw)
        if found.attempt is None:
            _note_untested(found.untested(case, len(declared.examples), declared.grid or 0), setting)
            compared.update(found.answered)
            continue
        differentiate(found.attempt, reference)
        for candidate in _held(found.attempt, setting):
            contender = contenders.get(candidate.name, own)
            judged = try_case(found.attempt, contender, reference)
            noted = judged._replace(verdict=msgspec.structs.replace(judged.verdict, notes=found.attempt.notes))
            seen = SeenMisalignment(noted, candidate, contender, reference, (case, found.number))
            _raise_failure(seen, found.attempt.profile, setting, draw, found.attempt)
            # A misalignment that gets here is a known difference: it was compared all the same.
            compared[candidate.name] += not found.attempt.untested and judged.verdict.outcome in {
                "aligned",
                "misaligned",
            }
            untested = found.attempt.untested
            reasons[candidate.name] = untested.detail if untested is not None else judged.verdict.oracle
    for name in contenders:
        count = compared[name]
        if not count and skipped and not (reasons.get(name) or refusal):
            raise unittest.SkipTest(skipped)
        if not count:
            reason = reasons.get(name) or refusal or "no case was accepted"
            text = f"{setting.test} compared nothing on {name}: {reason}."
            raise AuthorError(text)


def _count(declared: Any, setting: InProcessSetting) -> int:
    """Return the number of cases of a test; each example and each point of a grid is one."""
    own = (declared.grid or 0) + len(declared.examples)
    return max(setting.cases or declared.n or (0 if declared.grid else setting.config.cases), own)


def _held(attempt: Attempt, setting: InProcessSetting) -> tuple[AnyCandidate, ...]:
    """Return what a case is compared on: PyTorch too, if the case expects a value."""
    own = (of_reference(),) if has_expectation(attempt.program.steps) else ()
    return (*setting.candidates, *own)


def _note_untested(note: str, setting: InProcessSetting) -> None:
    if note:
        sys.stderr.write(f"ci-autotest: {setting.test}: {note}\n")


def _raise_failure(
    seen: SeenMisalignment, profile: str, setting: InProcessSetting, draw: DrawAttempt, accepted: Attempt | None = None
) -> None:
    """Raise the message that ``ci-autotest run`` prints for a misalignment, unless it is a known difference.

    Raises:
        AssertionError: It is none.
    """
    __tracebackhide__ = True
    verdict, candidate = seen.judged.verdict, seen.candidate
    if verdict.outcome != "misaligned":
        return
    case, attempt = seen.at
    about = About(
        candidate.name, setting.test, setting.test.rpartition("::")[2], case, setting.seed, profile,
        location=setting.location, attempt=attempt,
    )  # fmt: skip
    finding = finding_of(verdict, about)
    if not counts_against(apply_known((finding,), setting.config.known, datetime.now().astimezone().date())[0]):
        return
    shown = smallest(seen, accepted, draw)
    # A shrunk program is too small to show a pattern, so the finding keeps that of the case as it was found.
    finding = finding_of(msgspec.structs.replace(shown.verdict, pattern=verdict.pattern, notes=verdict.notes), about)
    output, folder, folders = PYTEST_OPTIONS.get().output, "", tuple(map(Path, setting.folders))
    limit_s = configuration.duration_s(setting.config.case_timeout, "case_timeout")
    unwritten: list[str] = []
    if output:
        finding = msgspec.structs.replace(finding, repro=f"{FINDINGS}/{finding.id}/repro.py")
        try:
            folder = write_folder(shown, finding, output, folders, limit_s)
        except OutputError as error:  # The misalignment counts for more.
            finding = msgspec.structs.replace(finding, repro=None)
            unwritten = [f"  not written: {error}"]
    recording = located(shown.recording, folders, limit_s, output)
    program = [f"    {line}".rstrip() for line in shown_program(recording, finding).text.splitlines()]
    what = "the same again" if setting.needs_pytest else "confirmed in a fresh process, with a report"
    again = f"  {what}: {_command(setting)}"
    hints = [f"  {line}" for line in advice(finding, recording.note)]
    raise AssertionError("\n".join([*message_lines(finding, folder), *hints, *program, *unwritten, again]))


def _command(setting: InProcessSetting) -> str:
    if setting.needs_pytest:
        # What pytest calls a row of parametrize is not known here, so that it runs all rows.
        return shlex.join(["pytest", setting.test.partition("[")[0], "--autotest-seed", str(setting.seed)])
    words = ["ci-autotest", "run", setting.test, "--seed", str(setting.seed)]
    words += ["--cases", str(setting.cases)] if setting.cases is not None else []
    words += [word for name in PYTEST_OPTIONS.get().candidates for word in ("--candidate", name)]
    return shlex.join(words)
