"""The command line: parses, wires, and turns errors into one message and an exit status. No logic.

Nothing but click is imported before a command runs, so that ``--help`` answers at once.
"""

from __future__ import annotations

import os
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ci_autotest.commands.signals import INTERRUPTED, Signals, end_at_once, ignore
from ci_autotest.commands.terminal import outlast_readers
from ci_autotest.errors import AutotestError, ConfigError, OutputError, UnavailableError
from ci_autotest.version import VERSION

if TYPE_CHECKING:
    from collections.abc import Callable

    from ci_autotest.commands.init import System
    from ci_autotest.commands.request import Request
    from ci_autotest.values.result import RunResult

#: As in ``config.values``, which imports more than ``--help`` may wait for.
_FAIL_ON = ("misaligned", "new", "never", "flaky", "leniency")
#: A fault of this package: EX_SOFTWARE of sysexits.h, so that no caller takes it for a finding.
_FAULT = 70
#: As in ``config.values`` likewise.
_CASES_AT_MOST = 1_000_000_000


class _Number(click.IntRange):
    """A whole number in a range; anything else is refused in our own words, with what is allowed."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the number.

        Raises:
            ConfigError: It is none, or out of range.
        """
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter:
            option = param.opts[0] if param is not None else "the number"
            allowed = f"{self.min} or more" if self.max is None else f"from {self.min} to {self.max:,}"
            message = f"{option} is {str(value)[:80]!r}. Give a whole number, {allowed}."
            raise ConfigError(message) from None


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120})
@click.version_option(VERSION, prog_name="ci-autotest")
def cli() -> None:
    """Operator-alignment testing: one program on PyTorch and on a candidate, every tensor and gradient compared."""


def _config_options(command: Callable[..., Any]) -> Callable[..., Any]:
    config = click.option(
        "--config",
        type=click.Path(path_type=Path),
        help="autotest.yml; the nearest one above unless given.",
    )
    settings = click.option(
        "--set",
        multiple=True,
        metavar="KEY=YAML",
        help="A key of autotest.yml, over what the file says; repeatable.",
    )
    candidate = click.option(
        "--candidate",
        multiple=True,
        metavar="NAME",
        help="Run this candidate; repeatable; all of the file unless given.",
    )
    return config(settings(candidate(command)))


_BASELINE = "FILE|DIR|auto"
_BASELINE_HELP = "A report to tell new, known and fixed findings by; auto is the base branch's last."
_artifact_option = click.option(
    "--artifact-name", default="ci-autotest-report", help="Name under which reports are uploaded."
)


@cli.command()
@click.argument("paths", nargs=-1, metavar="[PATH[::TEST] | builtin:suite[::FAMILY]]...")
@_config_options
@click.option("--cases", type=_Number(1, _CASES_AT_MOST), help="Cases per test; overrides @autotest(n=...).")
@click.option(
    "--budget",
    metavar="DURATION",
    help="Of the whole run, such as 10m; what was not run is reported.",
)
@click.option("--seed", metavar="N|random|commit", help="Root seed; the same seed gives the same inputs.")
@click.option(
    "--strictness",
    type=click.Choice(["tolerance", "ulp", "bitwise"]),
    help="How tolerances are read.",
)
@click.option("--workers", metavar="N|auto", help="Worker processes; one per core unless given.")
@click.option("--memory", metavar="SIZE|auto|off", help="Resident memory that a worker may hold, such as 4GiB.")
@click.option(
    "--executor",
    type=click.Choice(["local", "ray"]),
    help="Where workers run: on this machine, or on a Ray cluster (ci-autotest[ray]).",
)
@click.option("--shard", metavar="K/N", default="1/1", help="Run the K-th of N parts.")
@click.option(
    "--device",
    type=click.Choice(["auto", "cpu", "cuda"]),
    help="Where candidates without a device of their own run.",
)
@click.option(
    "--baseline",
    type=click.Path(path_type=Path),
    help="A report to tell new, known and fixed findings by.",
)
@click.option(
    "--fail-on",
    type=click.Choice(_FAIL_ON),
    help="Which findings end with status 1.",
)
@click.option("--output", metavar="DIR", help="Folder of the report; autotest-report unless given.")
def run(paths: tuple[str, ...], **given: Any) -> int:
    """Run tests on the candidates and write a report."""
    from ci_autotest.commands.progress import show_result  # noqa: PLC0415 - after --help
    from ci_autotest.commands.run import run as run_session  # noqa: PLC0415 - likewise

    request = _request(paths, given)
    result = run_session(request, os.environ, sys.stdout)
    show_result(result, sys.stdout, str((request.start / request.config.output).resolve()))
    return _status(result)


@cli.command(name="list")
@click.argument("paths", nargs=-1)
@_config_options
@click.option("--cases", type=_Number(1, _CASES_AT_MOST), help="Cases per test; overrides @autotest(n=...).")
@click.option("--shards", type=_Number(1), metavar="N", help="Print which cases each of N shards would run.")
def list_command(paths: tuple[str, ...], **given: Any) -> int:
    """List tests with their ids, lines and numbers of cases; with --shards, who would run what."""
    from ci_autotest.commands.list import list_tests  # noqa: PLC0415 - after --help

    shards = given.pop("shards")
    request = _request(paths, given, needs_candidate=False)
    with Signals().installed():
        return list_tests(request, os.environ, sys.stdout, shards)


@cli.command()
@click.argument("test", required=False, metavar="[PATH::TEST]")
@_config_options
@click.option("--case", type=_Number(0), default=0, help="Which one, from 0.")
@click.option("--edit", multiple=True, metavar="SITE=VALUE", help="Draw this instead; repeatable.")
@click.option("--log", type=click.Path(path_type=Path, exists=True), help="What this command printed, edited.")
@click.option("--seed", metavar="N", help="Root seed.")
def draws(test: str | None, case: int, edit: tuple[str, ...], log: Path | None, **given: Any) -> int:
    """Print the draws of a case, edit them, and run it again from them."""
    from ci_autotest.commands.draw_log import asked_for  # noqa: PLC0415 - after --help
    from ci_autotest.commands.draws import draws as draw_again  # noqa: PLC0415 - likewise

    request = _request((), given, needs_candidate=False)
    wanted = asked_for(test, case, edit, log, request.config.seed)
    request = _request((wanted.test,), given, needs_candidate=False)
    with Signals().installed():
        return draw_again(wanted, request, os.environ, sys.stdout)


@cli.command()
@click.argument("path", type=click.Path(path_type=Path))
@_config_options
def replay(path: Path, **given: Any) -> int:
    """Run a finding's saved program again on its candidate."""
    from ci_autotest.commands.replay import replay as replay_program  # noqa: PLC0415 - after --help

    request = _request((), given, needs_candidate=False)
    with Signals().installed():
        return replay_program(path, request, os.environ, sys.stdout)


@cli.command()
@click.argument("folders", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--output",
    type=click.Path(path_type=Path),
    default=Path("autotest-report"),
    help="Folder of the merged report.",
)
@click.option(
    "--fail-on",
    type=click.Choice(_FAIL_ON),
    default="misaligned",
    help="Which findings end with status 1.",
)
@click.option("--baseline", metavar=_BASELINE, default="", help=_BASELINE_HELP)
@_artifact_option
def report(folders: tuple[Path, ...], output: Path, fail_on: str, baseline: str, artifact_name: str) -> int:
    """Merge the reports of the shards of one run."""
    from ci_autotest.commands.progress import show_result  # noqa: PLC0415 - after --help
    from ci_autotest.commands.report import report as merge_reports  # noqa: PLC0415 - likewise

    result = merge_reports(folders, output, fail_on, (baseline, artifact_name), os.environ)
    show_result(result, sys.stdout, str(output))
    return _status(result)


_named_option = click.option(
    "--config",
    type=click.Path(path_type=Path),
    help="autotest.yml that lists the kernels a shown program may name; the nearest one above unless given.",
)


@cli.command()
@click.argument("folder", type=click.Path(path_type=Path))
@click.argument("surface", type=click.Choice(["summary", "annotations"]))
@click.option("--limit", type=_Number(0), help="Bytes that the summary may have.")
@_named_option
def render(folder: Path, surface: str, limit: int | None, config: Path | None) -> int:
    """Print a surface of a report, made anew from report.json."""
    from ci_autotest.commands.output_writer import rendered  # noqa: PLC0415 - after --help

    # Bytes: the summary is UTF-8 whatever the runner's locale is, and `--limit` counts them.
    click.echo(rendered(folder, surface, limit, os.environ, config).encode(errors="backslashreplace"), nl=False)
    return 0


@cli.command(hidden=True)
@click.argument("folder", type=click.Path(path_type=Path))
@click.argument("lines", nargs=-1)
def ended(folder: Path, lines: tuple[str, ...]) -> int:
    """Write the report of a run that ended with 2 before it compared anything: the action's own."""
    from ci_autotest.commands.output_writer import ended_early, write_surfaces  # noqa: PLC0415 - likewise
    from ci_autotest.report.finding_text import Setting  # noqa: PLC0415 - after --help

    write_surfaces(ended_early(os.environ.get("GITHUB_RUN_ID", ""), lines), folder, Setting())
    return 0


@cli.command()
@click.argument("folder", required=False, type=click.Path(path_type=Path))
@click.option("--run-id", type=_Number(1), help="Publish the artifacts of this run instead of a folder.")
@_artifact_option
@click.option("--name", default="ci-autotest", help="Name of the check: one comment for each.")
@click.option("--leg", default="", help="Leg of a matrix, a section of the comment: a name, or GitHub's JSON.")
@click.option("--legs", type=_Number(1), default=1, help="How many legs publish to the comment.")
@click.option(
    "--when",
    type=click.Choice(["always", "changes", "failures"]),
    default="always",
    help="What begins a comment; one that is there is always brought up to date.",
)
@click.option(
    "--baseline",
    metavar=f"{_BASELINE}|auto-if-any",
    default="",
    help=f"{_BASELINE_HELP} auto-if-any says nothing where there is none.",
)
@click.option("--output", type=click.Path(path_type=Path), help="Folder for the reports of --run-id, by artifact.")
@_named_option
def comment(**given: Any) -> int:
    """Post or update the comment of a report on its pull request."""
    from ci_autotest.commands.comment import Publication  # noqa: PLC0415 - after --help
    from ci_autotest.commands.comment import comment as publish_comment  # noqa: PLC0415 - likewise

    return publish_comment(Publication(**given), os.environ, sys.stdout)


@cli.command()
@click.argument("candidate", nargs=-1, metavar="[CANDIDATE]...")
@click.option("--config", type=click.Path(path_type=Path), help="autotest.yml; the nearest one above unless given.")
@click.option("--set", multiple=True, metavar="KEY=YAML", help="A key of autotest.yml, over what the file says.")
def doctor(**given: Any) -> int:
    """Say whether candidates can be used here, which of the suite's operators they have, and what is missing."""
    from ci_autotest.commands.doctor import doctor as examine  # noqa: PLC0415 - after --help

    request = _request((), given, needs_candidate=False)
    with Signals().installed():
        return examine(request, os.environ, sys.stdout)


@cli.command()
@click.option("--ci", type=click.Choice(["github", "gitlab", "jenkins"]), default="github", help="The CI system.")
def init(ci: System) -> int:
    """Write autotest.yml, a first test and the files of a CI system into this repository; what is there stays."""
    from ci_autotest.commands.init import init as write_files  # noqa: PLC0415 - after --help

    return write_files(Path.cwd(), sys.stdout, ci)


def _request(paths: tuple[str, ...], given: dict[str, Any], *, needs_candidate: bool = True) -> Request:
    """Return what was asked for: command line over file over defaults."""
    from ci_autotest.commands.request_parsing import request_of  # noqa: PLC0415 - after --help

    return request_of(paths, given, Path.cwd(), needs_candidate=needs_candidate)


def _status(result: RunResult) -> int:
    """Return a run's status; where a run could not end as it should, its last note says why, and stands here too."""
    if result.notes and result.exit_code in {OutputError.exit_code, UnavailableError.exit_code}:
        click.echo(result.notes[-1], err=True)
    return result.exit_code


def _usage(error: click.ClickException) -> str:
    """Return a usage error as one sentence and where to look."""
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        return error.format_message()
    context = error.ctx if isinstance(error, click.UsageError) else None
    command = context.command_path if context is not None else "ci-autotest"
    said = error.format_message()
    return f"{said if said.endswith(('.', '?', ')')) else f'{said}.'} See {command} --help."


def main() -> None:
    """Run the command line and exit with its status."""
    end_at_once()
    outlast_readers()
    try:
        status = cli.main(prog_name="ci-autotest", standalone_mode=False)
    except click.exceptions.Exit as error:
        status = error.exit_code
    except (click.Abort, KeyboardInterrupt):
        click.echo("interrupted", err=True)
        status = INTERRUPTED
    except click.ClickException as error:
        click.echo(_usage(error), err=True)
        status = ConfigError.exit_code
    except AutotestError as error:
        click.echo(str(error), err=True)
        status = error.exit_code
    except Exception as error:  # noqa: BLE001 - the last resort: a status that no finding has
        traceback.print_exc()
        click.echo(
            f"a fault of ci-autotest itself ({type(error).__name__}); please report it with the lines above", err=True
        )
        status = _FAULT
    ignore()
    sys.exit(status if isinstance(status, int) else 0)
