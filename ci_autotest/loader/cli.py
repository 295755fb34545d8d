"""The command line of ``ci-autotest loader``; it imports only click, so that ``--help`` answers at once."""

from __future__ import annotations

from typing import Any

import click

from ci_autotest.commands.command_options import (
    WholeNumber,
    config_option,
    display_options,
    fail_on_option,
    set_option,
)
from ci_autotest.commands.invocation import requested, run_and_show


@click.command()
@click.argument("factory", metavar="MODULE:FACTORY")
@click.option("--workers", type=WholeNumber(2), default=4, metavar="N", help="Workers of the loader. Default: 4.")
@click.option("--epochs", type=WholeNumber(1), default=2, metavar="N", help="Epochs that are compared. Default: 2.")
@click.option(
    "--ranks", type=WholeNumber(1), default=1, metavar="N", help="Processes, as torchrun starts them. Default: 1."
)
@config_option
@set_option
@click.option("--seed", metavar="N|random|commit", help="Root seed.")
@click.option("--output", metavar="DIR", help="Folder of the report. Default: autotest-report.")
@fail_on_option
@display_options
def loader(factory: str, workers: int, epochs: int, ranks: int, **given: Any) -> int:
    """Test a data loader: FACTORY is a function of MODULE that returns a Dataset, a DataLoader, or make(seed)."""
    from ci_autotest.loader.source import factory_file  # noqa: PLC0415

    display = {name: given.pop(name) for name in ("is_quiet", "is_verbose", "is_json")}
    request = requested((factory_file(factory, workers=workers, epochs=epochs, ranks=ranks),), given)
    return run_and_show(request, **display)
