"""Reader of downloaded reports: decodes strictly from an archive that is never unpacked, and loads no tensor file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ci_autotest.errors import PublishError
from ci_autotest.github.archive import opened
from ci_autotest.report import report_json
from ci_autotest.report.evidence import MOST_PROGRAM_BYTES, Evidence, evidence_of
from ci_autotest.report.finding_folders import FINDINGS

if TYPE_CHECKING:
    from typing import BinaryIO

    from ci_autotest.github.archive import Archive
    from ci_autotest.program.repro.permissions import Permissions
    from ci_autotest.report.evidence import Source
    from ci_autotest.values.finding import Finding
    from ci_autotest.values.result import RunResult


@dataclass(frozen=True)
class Downloaded:
    """A report and the lookup of its programs."""

    result: RunResult
    source: Source


def read_downloaded(name: str, file: BinaryIO, permissions: Permissions | None = None) -> Downloaded:
    """Return the report in an artifact.

    Args:
        name: Name of the artifact, for messages.
        file: Its archive; it must stay open as long as the report is used.
        permissions: What its programs may name; ``None``: nothing of the user's.

    Raises:
        PublishError: The archive is damaged, or its report or a program is no plain file within the limits.
        OutputError: Its report is damaged, or has another version.
    """
    archive = opened(name, file)
    content = archive.read("report.json", report_json.GREATEST_SIZE_BYTES)
    result = report_json.parsed(content, f"report.json of artifact '{name}'")
    return Downloaded(result, _source(archive, permissions))


def _source(archive: Archive, permissions: Permissions | None) -> Source:
    """Return what finds the programs of an archive; each is read once."""
    found: dict[str, Evidence | None] = {}

    def source(finding: Finding) -> Evidence | None:
        if finding.id not in found:
            found[finding.id] = _evidence(archive, finding, permissions)
        return found[finding.id]

    return source


def _evidence(archive: Archive, finding: Finding, permissions: Permissions | None) -> Evidence | None:
    entry = f"{FINDINGS}/{finding.id}/program.json"
    if entry not in archive:
        return None
    try:
        return evidence_of(finding, archive.read(entry, MOST_PROGRAM_BYTES), None, permissions)
    except PublishError as error:
        return Evidence(refusal=str(error))
