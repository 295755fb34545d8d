"""The command ``report``: merges the shards of one run, and saves what the next run learns from it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from ci_autotest.commands.baseline import against
from ci_autotest.commands.exit_status import not_written, settled
from ci_autotest.commands.output_writer import permissions_in, read_report, setting_for, write_surfaces
from ci_autotest.errors import OutputError
from ci_autotest.findings.database import FOLDER, Database, Learned, today
from ci_autotest.findings.regressions import kept_of
from ci_autotest.report.comment_text import render_finding
from ci_autotest.report.finding_folders import FILES, FINDINGS, check_writable, is_finding_id, write_finding
from ci_autotest.report.merge import merge
from ci_autotest.values.past_run import past_run

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ci_autotest.values.finding import Finding
    from ci_autotest.values.result import FailOn, RunResult


def report(
    folders: tuple[Path, ...], output: Path, fail_on: FailOn, baseline: tuple[str, str], environ: Mapping[str, str]
) -> RunResult:
    """Merge the shards of one run and write the report; ``baseline`` is the option and the artifact's name."""
    parts = [read_report(folder) for folder in folders]
    merged = merge(parts)
    check_writable(output)
    result = settled(against(merged, *baseline, environ), fail_on)
    failures = [_copied(finding, _origin(finding, parts, folders), output) for finding in result.findings]
    result = not_written(result, [failure for failure in failures if failure])
    if len(parts) > 1:
        _learn(result, output, Database(Path.cwd() / FOLDER))
    return write_surfaces(result, output, setting_for(result, output, environ, permissions_in(None), is_own=False))


def _origin(finding: Finding, parts: Sequence[RunResult], folders: Sequence[Path]) -> Path:
    """Return the folder of the shard that has the merged finding, because its files are there."""
    for part, folder in zip(parts, folders, strict=True):
        for other in part.findings:
            # Merging adds up the counts of all shards; everything else is taken from one shard.
            if other == msgspec.structs.replace(
                finding, cases=other.cases, of_cases=other.of_cases, tests=other.tests, hits=other.hits,
                known=other.known, variants=other.variants,
            ):  # fmt: skip
                return folder
    return folders[0]


def _copied(finding: Finding, folder: Path, output: Path) -> str:
    """Copy a finding's folder; return the error message, or nothing."""
    try:
        _copy(finding, folder, output)
    except OutputError as error:
        return str(error)
    return ""


def _copy(finding: Finding, folder: Path, output: Path) -> None:
    source, target = folder / FINDINGS / finding.id, output / FINDINGS / finding.id
    if not is_finding_id(finding.id) or not source.is_dir() or source.resolve() == target.resolve():
        return
    files = {name: (source / name).read_bytes() for name in sorted(FILES) if (source / name).is_file()}
    if files:
        # The page shows the counts of all shards, so it is written anew.
        write_finding(target, {**files, "README.md": render_finding(finding).encode()})


def _learn(result: RunResult, output: Path, database: Database) -> None:
    """Save durations and findings for the next run: shards write none, because all of them must plan alike."""
    durations = database.durations()
    for item in result.results:
        cases = item.attempts.accepted
        if cases:
            durations[item.test] = Learned(case_s=item.duration_s / cases, day=today())
    kept = {item.entry.id: item for item in database.findings()}
    for finding in result.findings:
        found = kept_of(finding, output)
        if found is not None:
            kept[finding.id] = found
    database.save(durations, kept.values())
    if not result.is_partial and not result.interrupted:
        database.remember(past_run(result, time_s=time.time()))
