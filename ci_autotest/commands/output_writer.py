"""Writer of the output folder: every file of a report comes from one result; reports are read back here, too."""

from __future__ import annotations

import platform
import re
from contextlib import suppress
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ci_autotest import config as configuration
from ci_autotest.commands.exit_status import ended_by, not_written
from ci_autotest.config.called_names import called_names
from ci_autotest.errors import ConfigError, OutputError, UsageError
from ci_autotest.github.environ import COMMIT
from ci_autotest.kinds import ModuleCandidate
from ci_autotest.kinds.compilers import options_of
from ci_autotest.page.document import render_page
from ci_autotest.program.repro.permissions import Permissions
from ci_autotest.report import junit, report_json, sarif
from ci_autotest.report.annotations import annotate
from ci_autotest.report.atomic import is_full, write_text
from ci_autotest.report.comment_text import LEAST, SUMMARY_LIMIT, render_comment, render_summary
from ci_autotest.report.document import Words
from ci_autotest.report.evidence import Evidence, evidence_of
from ci_autotest.report.finding_folders import FINDINGS
from ci_autotest.report.finding_text import Setting
from ci_autotest.report.links import Links, folder_of
from ci_autotest.report.markdown_text import heading, size
from ci_autotest.report.verdict_line import verdict
from ci_autotest.values.result import Environment, RunError, RunResult, Summary
from ci_autotest.version import VERSION

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ci_autotest.report.evidence import Source
    from ci_autotest.values.finding import Finding

REPORT = "report.json"
PAGE: Final = "index.html"
#: Upper limit in bytes for a program or tensor file that a page shows; a shrunk case has a few thousand.
_MOST_READ_BYTES: Final = 64 << 20


def links_from(environ: Mapping[str, str], result: RunResult) -> Links | None:
    """Return the links of a workflow run, ``None`` outside of a workflow."""
    server, repository = environ.get("GITHUB_SERVER_URL"), environ.get("GITHUB_REPOSITORY")
    merged = environ.get("GITHUB_SHA")
    if not server or not repository or not merged:
        return None
    run = environ.get("GITHUB_RUN_ID", "")
    address = f"{server}/{repository}/actions/runs/{run}" if run else ""
    digest = re.fullmatch(r"(?:sha256:)?([0-9a-f]{64})", environ.get("ARTIFACT_DIGEST", ""))
    pull = re.fullmatch(r"refs/pull/([1-9][0-9]{0,17})/merge", environ.get("GITHUB_REF", ""))
    # GITHUB_SHA of a pull request is a merge that no branch holds, so pages link to the head, as the comment does. The
    # variable comes from the action, because a test can rewrite the event's file.
    head = environ.get("AUTOTEST_HEAD_SHA", "")
    return Links(
        server=server, repository=repository, sha=head if pull and re.fullmatch(COMMIT, head) else merged,
        prefix=result.environment.folder, run=address, artifact=environ.get("ARTIFACT_URL", ""),
        run_id=int(run) if run.isdecimal() else 0, artifact_name=environ.get("ARTIFACT_NAME", ""),
        digest=digest[1] if digest else "", pull=int(pull[1]) if pull else 0,
    )  # fmt: skip


def permissions_in(config: Path | None) -> Permissions:
    """Return what the text of a program from outside may name: what a configuration names, and new kernels."""
    file = configuration.find(Path.cwd()) if config is None else config
    try:
        # A job that only comments need not have the packages that add kinds: their rows permit nothing.
        found = permissions_of(
            configuration.read(file, has_all_kinds=False) if file is not None else configuration.Config()
        )
    except ConfigError:
        found = permissions_of(configuration.Config())
    return replace(found, has_new_kernels=True)


def permissions_of(config: configuration.Config) -> Permissions:
    """Return what a program from outside may name: the kernels, folders, options and mappings of a configuration."""
    rows: dict[str, list[Mapping[str, object]]] = {}
    for candidate in config.candidates:
        if isinstance(candidate, ModuleCandidate):
            rows.setdefault(candidate.module, []).append(candidate.mapping)
    return Permissions(
        names=configuration.named_by(config.candidates, config.paths),
        folders=frozenset(filter(None, map(_folder, config.paths or ("autotests",)))),
        options=tuple(filter(None, map(options_of, config.candidates))),
        environs=tuple(candidate.environ for candidate in config.candidates if candidate.environ),
        calls=cache(lambda module: called_names(module, *rows.get(module, ()))),
    )


def _folder(path: str) -> str:
    """Return the folder of a configured path, as it is written."""
    path = path.partition("::")[0].removeprefix("./")
    return path.rpartition("/")[0] if path.endswith(".py") else path.rstrip("/")


def saved_programs(output: Path, permissions: Permissions, *, is_own: bool) -> Source:
    """Return a lookup of the programs in an output folder, with their tensors; it reads each of them once.

    Args:
        output: The folder.
        permissions: What the programs may name.
        is_own: Whether this process has just written the folder, so that the report's own text is shown. Otherwise a
            test may have changed the report since, and the text is generated from the checked program.
    """
    found: dict[str, Evidence] = {}

    def source(finding: Finding) -> Evidence:
        if finding.id not in found:
            given = replace(permissions, is_of_this_run=is_own)
            evidence = _saved(output / FINDINGS / finding.id, finding, given)
            found[finding.id] = replace(evidence, program=finding.program) if is_own else evidence
        return found[finding.id]

    return source


def _saved(folder: Path, finding: Finding, permissions: Permissions) -> Evidence:
    program, tensors = _content(folder / "program.json"), _content(folder / "tensors.safetensors")
    return Evidence() if program is None or tensors is None else evidence_of(finding, program, tensors, permissions)


def _content(path: Path) -> bytes | None:
    try:
        with path.open("rb") as file:
            data = file.read(_MOST_READ_BYTES + 1)
    except OSError:
        return None
    return data if len(data) <= _MOST_READ_BYTES else None


def setting_for(
    result: RunResult, output: Path, environ: Mapping[str, str], permissions: Permissions, *, is_own: bool
) -> Setting:
    """Return the links and programs of a page; ``permissions`` and ``is_own`` as for ``saved_programs``."""
    links = links_from(environ, result)
    if links is not None and links.run_id and links.artifact_name:  # Then the lines beside a program download it.
        permissions = replace(permissions, report=folder_of(links.run_id))
    return Setting(links=links, source=saved_programs(output, permissions, is_own=is_own))


def write_surfaces(result: RunResult, output: Path, setting: Setting) -> RunResult:
    """Write every file of the report; report.json last, because its presence means that the others are complete.

    If the disk is full, the other files are removed to make room for report.json, from which they can be made again.

    Returns:
        The result as it is in report.json: with a note and status 2 if a file could not be written.
    """
    with suppress(OSError):  # If this fails, each file reports its own error.
        output.mkdir(parents=True, exist_ok=True)  # A test may have removed it.
    surfaces: dict[str, Callable[[Path], None]] = {
        "junit.xml": lambda path: junit.write(result, path),
        "summary.md": lambda path: write_text(path, render_summary(result, setting=setting)),
        "comment.md": lambda path: write_text(path, render_comment(result, setting=setting)),
        "results.sarif": lambda path: sarif.write(result, path),
        PAGE: lambda path: write_text(path, render_page(result, setting)),
    }
    failures = _written(surfaces, output)
    whole = not_written(result, failures)
    failure = _failure(partial(report_json.write, whole), output / REPORT)
    for page in (output / name for name in reversed(surfaces) if (output / name).is_file()):
        if failure is None or not is_full(failure):
            break
        page.unlink()
        failures.append(f"{page} is left out, to make room for {REPORT}: No space left on device.")
        whole = not_written(result, failures)
        failure = _failure(partial(report_json.write, whole), output / REPORT)
    return whole if failure is None else not_written(result, [str(failure), *_written(surfaces, output)])


def _written(surfaces: Mapping[str, Callable[[Path], None]], output: Path) -> list[str]:
    """Write files; return a sentence for each that could not be written."""
    failures = [_failure(write, output / name) for name, write in surfaces.items()]
    return [str(failure) for failure in failures if failure is not None]


def _failure(write: Callable[[Path], None], path: Path) -> OutputError | None:
    try:
        write(path)
    except OutputError as error:
        return error
    return None


def ended_early(run_id: str, lines: Sequence[str]) -> RunResult:
    """Return the result of a run that refused to start or left no report; the last of ``lines`` says why."""
    sentence = f"{f'run {run_id} ' if run_id else ''}ended before it compared anything"
    return without_report(f"{sentence}: {lines[-1]}" if lines else f"{sentence}.", *lines[:-1])


def without_report(why: str, *more: str) -> RunResult:
    """Return a result that has nothing but notes, the first of which is the verdict."""
    empty = RunResult(
        seed=0,
        environment=Environment(ci_autotest=VERSION, python=platform.python_version(), platform=platform.platform()),
        candidates=(), results=(), findings=(), summary=Summary(), notes=more,
    )  # fmt: skip
    return ended_by(empty, RunError(why, UsageError.exit_code))


def rendered(
    folder: Path, surface: str, limit: int | None, environ: Mapping[str, str], config: Path | None = None
) -> str:
    """Return the summary, the annotations or the page of a report, generated from report.json.

    Args:
        folder: Output folder of a run.
        surface: ``summary``, ``annotations`` or ``page``.
        limit: Upper limit of the summary in bytes.
        environ: Environment of a workflow step, for links.
        config: The configuration whose kernels a program may name; the nearest one if ``None``.

    Raises:
        AutotestError: There is no report, or it is damaged.
    """
    result = read_report(folder)
    if surface == "annotations":
        return "".join(f"{command}\n" for command in annotate(result, result.environment.folder))
    setting = setting_for(result, folder, environ, permissions_in(config), is_own=False)
    if surface == "page":
        return render_page(result, setting)
    room = min(SUMMARY_LIMIT if limit is None else limit, SUMMARY_LIMIT)
    if room < LEAST:
        # One step's summary may have 1 MiB, and the job may have written to it before.
        begin = heading(3, Words(verdict(result), room))
        short = f"{begin}\n\nThere is no room for the summary: it is in the artifact, in summary.md.\n"
        return short if size(short) <= room else ""
    return render_summary(result, limit=room, setting=setting)


def read_report(path: Path) -> RunResult:
    """Return the report of an output folder or of a report.json.

    Raises:
        UsageError: There is no report.json.
        OutputError: It is damaged.
    """
    file = path / REPORT if path.is_dir() else path
    if not file.is_file():
        message = f"'{path}' holds no {REPORT}. Give the output folder of a run."
        raise UsageError(message)
    return report_json.read(file)
