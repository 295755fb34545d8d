"""The command ``history``: outcomes, greatest errors and speed over runs, as small plots."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ci_autotest.commands.output_writer import read_report
from ci_autotest.errors import UsageError
from ci_autotest.findings.database import FOLDER, Database
from ci_autotest.page.document import render_history, run_name
from ci_autotest.report.atomic import write_text
from ci_autotest.report.trend import trends
from ci_autotest.values.past_run import past_run

if TYPE_CHECKING:
    from typing import TextIO

    from ci_autotest.values.past_run import PastRun

#: Bars of a plot in the terminal.
_RUNS_SHOWN: Final = 60


def history(folders: tuple[Path, ...], output: Path | None, stream: TextIO) -> int:
    """Print the trends of runs, and write them as a page if asked.

    Args:
        folders: Output folders of runs, oldest first; without any, what ``.autotest/`` has kept.
        output: The page to write.
        stream: Where to print.

    Raises:
        UsageError: There is no run to show.
    """
    runs = [past_run(read_report(folder), folder.name) for folder in folders] if folders else _kept(stream)
    if not runs:
        message = f"{FOLDER}/ has kept no run yet. Run the tests first, or name the output folders of runs."
        raise UsageError(message)
    shown = runs[-_RUNS_SHOWN:]
    stream.write(f"{len(runs)} runs, {run_name(runs[0])} to {run_name(runs[-1])}\n")
    found = trends(shown)
    width = max(len(trend.name) for trend in found)
    for group, own in groupby(found, key=lambda trend: trend.group):
        stream.write(f"\n{group}\n")
        for trend in own:
            stream.write(f"  {trend.name:{width}}  {trend.bars}  {trend.last}\n")
    if output is not None:
        write_text(output, render_history(runs))
        stream.write(f"\npage in {output}\n")
    return 0


def _kept(stream: TextIO) -> list[PastRun]:
    database = Database(Path.cwd() / FOLDER)
    runs = database.history()
    for note in database.notes:
        stream.write(f"{note}\n")
    return list(runs)
