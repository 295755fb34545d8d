"""The report of a verification: that of its run, with the verdict as its status, and ``verdict.json`` beside it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from ci_autotest.commands.exit_status import ended_by
from ci_autotest.commands.output_writer import ended_early, permissions_in, setting_for, write_surfaces
from ci_autotest.report.atomic import write_bytes
from ci_autotest.report.finding_folders import prepare
from ci_autotest.values.result import BrokenTest, RunError
from ci_autotest.verify.verdict import STATUSES

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from ci_autotest.values.result import RunResult
    from ci_autotest.verify.verdict import VerifyVerdict

VERDICT: Final = "verdict.json"


def write_report(
    verdict: VerifyVerdict, result: RunResult | None, candidate: str, output: Path, environ: Mapping[str, str]
) -> None:
    """Write the report of a verification.

    Args:
        verdict: The verdict.
        result: Its run, whose report is in the folder; ``None`` if there was none, or if nothing of it may be shown.
        candidate: Name of the candidate's file.
        output: The folder.
        environ: Environment, for links.

    Raises:
        OutputError: A file cannot be written.
    """
    if result is None:
        prepare(output)
    told = _with_status(result, verdict, candidate)
    if told != result:
        write_surfaces(told, output, setting_for(told, output, environ, permissions_in(None), is_own=True))
    write_bytes(output / VERDICT, msgspec.json.format(msgspec.json.encode(verdict), indent=2) + b"\n")


def _with_status(result: RunResult | None, verdict: VerifyVerdict, candidate: str) -> RunResult:
    status = STATUSES[verdict.verdict]
    if result is not None and result.exit_code == status:
        return result
    begun = ended_early("", []) if result is None else result
    plain = msgspec.structs.replace(begun, error=None, notes=() if result is None else begun.notes)
    if verdict.verdict == "rejected":
        broken = BrokenTest(test=candidate, message=f"rejected: {verdict.reason}")
        return msgspec.structs.replace(plain, broken=(*plain.broken, broken), exit_code=status)
    if verdict.verdict == "undecided":
        return ended_by(plain, RunError(f"undecided: {verdict.reason}", status))
    return msgspec.structs.replace(plain, notes=(f"accepted: {verdict.reason}", *plain.notes), exit_code=status)
