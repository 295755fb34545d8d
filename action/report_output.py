"""The report of a run inside the job: read, cleaned for the upload, explained and shown.

The publisher's own command renders it, so that what a test left in its environment has no part in this.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from action import environment, foreign, inputs, outputs
from action.inputs import StepError
from action.runner import append, commands_stopped, fresh_folder, opened, say

if TYPE_CHECKING:
    from collections.abc import Mapping


def read_report(folder: Path) -> outputs.Report | None:
    """Return what ``report.json`` in ``folder`` says, ``None`` where none can be read."""
    try:
        with os.fdopen(opened(str(folder / "report.json"), os.O_RDONLY), encoding="utf-8") as file:
            return outputs.parse_report(file.read())
    except (OSError, ValueError):
        return None


def explained(environ: Mapping[str, str], said: str, folder: Path | None) -> outputs.Report | None:
    """Say why the command refused to begin, in an annotation and in a report; ``None`` where no folder is ours."""
    lines = outputs.last_lines(said)
    say(outputs.workflow_command("error", "\n".join(["ci-autotest ended with 2 before it compared anything:", *lines])))
    if folder is None:
        return None
    subprocess.run(
        environment.publisher_argv(environ["PACKAGES"], fresh_folder(environ), ["ended", "--", str(folder), *lines]),
        env=inputs.foreign_environ(environ), check=False, stdout=subprocess.DEVNULL,
    )  # fmt: skip
    return read_report(folder)


def tidy(folder: Path) -> None:
    """Remove what must not be uploaded from the report's folder, and say what that was."""
    if folder.is_symlink():
        folder.unlink()
        say(outputs.workflow_command("warning", f"the tests put a link in the place of '{folder}': it was removed."))
    if dropped := foreign.drop_irregular(folder):
        text = f"'{folder}' held {len(dropped)} links or other things that are no files, which were removed: "
        say(outputs.workflow_command("warning", text + ", ".join(sorted(dropped)[:10])))


def show(environ: Mapping[str, str], folder: Path) -> None:
    """Show the summary and the annotations of a report; that they cannot be shown fails nothing."""
    try:
        room = outputs.SUMMARY_LIMIT - Path(environ.get("GITHUB_STEP_SUMMARY", "")).stat().st_size
        append(environ, "GITHUB_STEP_SUMMARY", rendered(environ, folder, "summary", f"--limit={room}"))
    except (OSError, StepError) as error:
        say(outputs.workflow_command("warning", f"the summary is not shown: {error}"))
    say(outputs.shown_commands(rendered(environ, folder, "annotations")))


def rendered(environ: Mapping[str, str], folder: Path, surface: str, *options: str) -> str:
    """Return a surface of the report; nothing, and its reason in the log, where that cannot be made."""
    argv = ["render", str(folder), surface, *options, *inputs.configuration_options(environ)]
    done = subprocess.run(
        environment.publisher_argv(environ["PACKAGES"], fresh_folder(environ), argv),
        env=inputs.foreign_environ(environ), check=False, capture_output=True, text=True, errors="replace",
    )  # fmt: skip
    if done.returncode == 0:
        return done.stdout
    with commands_stopped():
        say(done.stderr)
    say(outputs.workflow_command("warning", f"the {surface} of '{folder}' cannot be made: the log says why."))
    return ""
