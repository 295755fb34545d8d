"""The command line of ``ci-autotest power``; it imports only click, so that ``--help`` answers at once."""

from __future__ import annotations

import os
import sys
from typing import Any

import click

from ci_autotest.commands.command_options import (
    STRICTNESS,
    WholeNumber,
    candidate_options,
    cases_option,
    display_options,
    keywords_option,
    score_of,
    tests_argument,
)
from ci_autotest.commands.invocation import requested


@click.command()
@tests_argument
@candidate_options
@cases_option
@click.option("--fail-under", metavar="SCORE", help="End with status 1 if the score of all tests is below this.")
@click.option("--mutants", type=WholeNumber(1, 10_000), default=20, metavar="N", help="Mutants of a test. Default: 20.")
@click.option(
    "--sources",
    type=WholeNumber(0, 10_000),
    default=0,
    metavar="N",
    help="Also N changes in the source of torch's Python decompositions for each test. Default: 0.",
)
@click.option("--budget", metavar="DURATION", help="Time for all tests, such as 10m. Tests left over are reported.")
@click.option("--seed", metavar="N|random|commit", help="Root seed of the draws and of the choice of mutants.")
@click.option("--strictness", type=click.Choice(STRICTNESS), help="What counts as aligned, as for run.")
@click.option("--workers", metavar="N|auto", help="Number of worker processes. Default: one per core.")
@click.option("--memory", metavar="SIZE|auto|off", help="Resident memory that each worker may use, such as 4GiB.")
@click.option("--output", metavar="DIR", help="Folder of the report, added to that of a run. Default: autotest-report.")
@keywords_option
@display_options
def power(paths: tuple[str, ...], *, fail_under: str | None, mutants: int, sources: int, **given: Any) -> int:
    """Measure how much tests notice: mutants of the reference run as candidates, and the survivors say why."""
    from ci_autotest.commands.progress import Progress  # noqa: PLC0415
    from ci_autotest.commands.result_text import Display  # noqa: PLC0415
    from ci_autotest.power.command import PowerRequest, show_power  # noqa: PLC0415
    from ci_autotest.power.command import power as measure  # noqa: PLC0415

    display = Display(*(given.pop(name) for name in ("is_quiet", "is_verbose", "is_json")))
    wanted = PowerRequest(score_of(fail_under), mutants, sources)
    request = requested(paths, {**given, "is_json": display.is_json}, needs_candidate=False)
    stream = sys.stderr if display.is_json else sys.stdout
    is_live = stream.isatty() and os.environ.get("TERM") != "dumb"
    found = measure(request, wanted, os.environ, Progress(stream, is_live=is_live, is_quiet=display.is_quiet))
    show_power(found, str((request.start / request.config.output).resolve()), stream, display)
    return found.exit_code
