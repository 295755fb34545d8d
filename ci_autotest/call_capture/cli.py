"""The command line of ``ci-autotest capture``; it imports only click, so that ``--help`` answers at once."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from ci_autotest.commands.command_options import WholeNumber


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.argument("program", nargs=-1, required=True, type=click.UNPROCESSED, metavar="python SCRIPT [ARGUMENT]...")
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), default=Path("autotests"), help="Folder. Default: autotests."
)
@click.option("--tests", type=WholeNumber(1), metavar="N", default=150, help="Number of tests at most. Default: 150.")
@click.option("--force", "is_forced", is_flag=True, help="Replace the tests of this program that the folder has.")
@click.option("--data", "has_data", is_flag=True, help="Store the elements of first calls; the tests use them.")
def capture(program: tuple[str, ...], output: Path, tests: int, *, is_forced: bool, has_data: bool) -> int:
    """Run a program and write the operator calls that it makes as tests."""
    from ci_autotest.call_capture.command import capture as run_captured  # noqa: PLC0415

    return run_captured(program, output, tests, sys.stderr, is_forced=is_forced, has_data=has_data)
