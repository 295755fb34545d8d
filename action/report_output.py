"""The report of a run in its job: reads it, cleans its folder for the upload, and shows it.

The publisher's isolated command renders the report, because a test may have changed its own environment.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from action import environment, foreign, outputs
from action.errors import StepError
from action.runner import append, commands_stopped, fresh_folder, opened, say

if TYPE_CHECKING:
    from collections.abc import Mapping


def read_report(folder: Path) -> outputs.Report | None:
    """Return the fields of ``report.json`` in ``folder``, ``None`` if it cannot be read."""
    try:
        with os.fdopen(opened(str(folder / "report.json"), os.O_RDONLY), encoding="utf-8") as file:
            return outputs.parse_report(file.read())
    except (OSError, ValueError):
        return None


def explained(environ: Mapping[str, str], output: str, folder: Path | None) -> outputs.Report | None:
    """Report why the command refused to start, in an annotation and, if ``folder`` is given, in a report."""
    lines = outputs.last_lines(output)
    say(outputs.workflow_command("error", "\n".join(["ci-autotest ended with 2 before it compared anything:", *lines])))
    if folder is None:
        return None
    subprocess.run(
        environment.publisher_argv(environ["PACKAGES"], fresh_folder(environ), ["ended", "--", str(folder), *lines]),
        env=foreign.foreign_environ(environ), check=False, stdout=subprocess.DEVNULL,
    )  # fmt: skip
    return read_report(folder)


def tidy(folder: Path) -> None:
    """Remove everything from the report's folder that must not be uploaded, and warn about it."""
    if folder.is_symlink():
        folder.unlink()
        say(outputs.workflow_command("warning", f"the tests replaced '{folder}' by a link, which was removed."))
    if dropped := foreign.drop_irregular(folder):
        text = f"'{folder}' had {len(dropped)} entries that are links or other special files; they were removed: "
        say(outputs.workflow_command("warning", text + ", ".join(sorted(dropped)[:10])))


def surfaces(environ: Mapping[str, str], folder: Path, config: list[str]) -> tuple[str, str]:
    """Return the summary and the annotations of a report."""
    try:
        room = outputs.SUMMARY_LIMIT - Path(environ.get("GITHUB_STEP_SUMMARY", "")).stat().st_size
    except OSError:
        room = outputs.SUMMARY_LIMIT  # `show` says what is wrong with the file.
    summary = rendered(environ, folder, "summary", f"--limit={room}", *config)
    return summary, rendered(environ, folder, "annotations", *config)


def show(environ: Mapping[str, str], summary: str, annotations: str) -> None:
    """Show the summary and the annotations of a report; if that fails, the step only warns."""
    try:
        append(environ, "GITHUB_STEP_SUMMARY", summary)
    except (OSError, StepError) as error:
        say(outputs.workflow_command("warning", f"the summary is not shown: {error}"))
    say(outputs.shown_commands(annotations))


def rendered(environ: Mapping[str, str], folder: Path, surface: str, *options: str) -> str:
    """Return the summary or the annotations of the report; if that fails, log the reason and return nothing."""
    argv = ["render", str(folder), surface, *options]
    done = subprocess.run(
        environment.publisher_argv(environ["PACKAGES"], fresh_folder(environ), argv),
        env=foreign.foreign_environ(environ), check=False, capture_output=True, text=True, errors="replace",
    )  # fmt: skip
    if done.returncode == 0:
        return done.stdout
    with commands_stopped():
        say(done.stderr)
    say(outputs.workflow_command("warning", f"the {surface} of '{folder}' cannot be rendered: the log says why."))
    return ""
