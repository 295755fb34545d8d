"""What the commands of the command line have in common: a request of its options, a run that is shown, a status.

Only click is imported before a command runs, so that ``--help`` answers at once.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from ci_autotest.commands.request import Request
    from ci_autotest.values.result import RunResult


def requested(paths: tuple[str, ...], given: dict[str, Any], *, needs_candidate: bool = True) -> Request:
    """Return the request of a command line, from the current folder; arguments are those of ``request_of``."""
    from ci_autotest.commands.request_parsing import request_of  # noqa: PLC0415

    return request_of(paths, given, Path.cwd(), needs_candidate=needs_candidate)


def run_and_show(request: Request, *, is_quiet: bool, is_verbose: bool, is_json: bool) -> int:
    """Run tests, and print the result."""
    # The imports of the commands are inside functions, to keep --help quick.
    from ci_autotest.commands.progress import Progress  # noqa: PLC0415
    from ci_autotest.commands.result_text import Display, show_as  # noqa: PLC0415
    from ci_autotest.commands.run import run as run_session  # noqa: PLC0415

    stream = sys.stderr if is_json else sys.stdout
    # A debugger in this process shares the terminal with the progress.
    is_live = stream.isatty() and not request.is_in_process and os.environ.get("TERM") != "dumb"
    result = run_session(request, os.environ, Progress(stream, is_live=is_live, is_quiet=is_quiet))
    folder = (request.start / request.config.output).resolve()
    show_as(result, str(folder), stream, Display(is_quiet, is_verbose, is_json))
    return status_of(result)


def status_of(result: RunResult) -> int:
    """Return a run's exit status; print the error that ended it, if one did."""
    if result.error is not None:
        click.echo(result.error.message, err=True)
    return result.exit_code
