"""The command line of ``ci-autotest verify``; it imports only click, so that ``--help`` answers at once."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import click

from ci_autotest.commands.command_options import WholeNumber


@click.command()
@click.argument("reference")
@click.argument("candidate")
@click.option("--json", "is_json", is_flag=True, help="Print the verdict as one JSON document.")
@click.option("--seed", type=WholeNumber(0), metavar="N", help="Repeat a verification; its cases are then not hidden.")
@click.option("--budget", metavar="DURATION", default="60s", help="Time for the cases. Default: 60s.")
@click.option("--forward-only", "is_forward_only", is_flag=True, help="Compare values and no gradients.")
@click.option("--public", "is_public", is_flag=True, help="Show nothing of the hidden cases.")
@click.option("--allow", multiple=True, metavar="OPERATOR", help="An operator that the candidate may call; repeatable.")
@click.option(
    "--no-authentic", "asks_authenticity", flag_value=False, default=True, help="Do not ask who did the work."
)
@click.option(
    "--include",
    multiple=True,
    type=click.Path(path_type=Path, exists=True, file_okay=False, resolve_path=True),
    help="A folder that the candidate sees besides its file; repeatable.",
)
@click.option(
    "--output",
    type=click.Path(path_type=Path, file_okay=False, resolve_path=True),
    help="Also write the report of the run and verdict.json into this folder.",
)
def verify(**given: Any) -> int:
    """Judge CANDIDATE by REFERENCE: files, FILE:NAME or MODULE:NAME. It runs in a sandbox, on hidden cases."""
    from ci_autotest.verify.command import Verification  # noqa: PLC0415
    from ci_autotest.verify.command import verify as give_verdict  # noqa: PLC0415

    return give_verdict(Verification(**given), os.environ, sys.stdout)
