"""The command line: parses options, calls the command, and turns errors into one message and an exit status.

Only click is imported before a command runs, so that ``--help`` answers at once.
"""

from __future__ import annotations

import os
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ci_autotest.commands.command_options import (
    BASELINE,
    BASELINE_HELP,
    FAIL_ON,
    STRICTNESS,
    WholeNumber,
    artifact_option,
    candidate_options,
    cases_option,
    compat_option,
    config_option,
    display_options,
    fail_on_option,
    kernels_option,
    keywords_option,
    runner_options,
    set_option,
    tests_argument,
    usage_of,
)
from ci_autotest.commands.completion import candidates_of, tests_of
from ci_autotest.commands.invocation import requested, run_and_show, status_of
from ci_autotest.commands.signals import INTERRUPTED, Signals, end_at_once, ignore
from ci_autotest.commands.terminal import outlast_readers
from ci_autotest.doc_links import more
from ci_autotest.errors import AutotestError, ConfigError
from ci_autotest.extensions import COMMANDS, HANDED_OUT, part
from ci_autotest.version import VERSION

if TYPE_CHECKING:
    from ci_autotest.commands.init import System
    from ci_autotest.values.result import FailOn


#: Status of a fault in ci-autotest itself: EX_SOFTWARE of sysexits.h, which no caller takes for a finding.
_FAULT = 70


class _Commands(click.Group):
    """The commands: those below, and those of optional parts, which are imported when they are asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*super().list_commands(ctx), *COMMANDS})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in COMMANDS:
            command: click.Command = part(COMMANDS[cmd_name])
            return command
        return super().get_command(ctx, cmd_name)


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120})
@click.version_option(VERSION, prog_name="ci-autotest")
def cli() -> None:
    """Run programs on PyTorch and on a candidate, and compare every tensor and gradient."""


@cli.command()
@tests_argument
@candidate_options
@cases_option
@compat_option
@click.option("--budget", metavar="DURATION", help="Time for the whole run, such as 10m. Cases left over are reported.")
@click.option("--seed", metavar="N|random|commit", help="Root seed; the same seed gives the same inputs.")
@click.option(
    "--strictness",
    type=click.Choice(STRICTNESS),
    help="What counts as aligned: the tolerance, twice the reference's own error, 4 ULP, or the same bits.",
)
@click.option(
    "--workers",
    metavar="N|auto",
    help="Number of worker processes. Default: one per core. 0: run in this process, for breakpoint() and print.",
)
@click.option("--memory", metavar="SIZE|auto|off", help="Resident memory that each worker may use, such as 4GiB.")
@click.option(
    "--executor",
    type=click.Choice(["local", "ray"]),
    help="Where the workers run: on this machine, or on a Ray cluster (needs ci-autotest[ray]).",
)
@click.option("--shard", metavar="K/N", default="1/1", help="Run the K-th of N parts.")
@click.option(
    "--device",
    type=click.Choice(["auto", "cpu", "cuda"]),
    help="Device of the candidates for which autotest.yml sets none.",
)
@click.option(
    "--baseline",
    type=click.Path(path_type=Path),
    help="Report to compare with: findings are marked as new, still there or fixed.",
)
@fail_on_option
@click.option("--speed", is_flag=True, default=None, help="Also time what is aligned, at larger sizes.")
@click.option(
    "--warm", "is_warm", is_flag=True, help="Begin from a running `ci-autotest serve`, which has torch imported."
)
@click.option("--output", metavar="DIR", help="Folder of the report. Default: autotest-report.")
@runner_options
@display_options
def run(paths: tuple[str, ...], *, is_quiet: bool, is_verbose: bool, is_json: bool, is_warm: bool, **given: Any) -> int:
    """Run tests on the candidates and write a report."""
    if is_warm:
        _begin_warm()
    request = requested(paths, {**given, "is_json": is_json})
    return run_and_show(request, is_quiet=is_quiet, is_verbose=is_verbose, is_json=is_json)


@cli.command(name="list")
@tests_argument
@candidate_options
@cases_option
@compat_option
@click.option("--shards", type=WholeNumber(1), metavar="N", help="Print which cases each of N shards would run.")
@keywords_option
def list_command(paths: tuple[str, ...], **given: Any) -> int:
    """List the tests with their ids, lines and numbers of cases, or the cases of each shard."""
    from ci_autotest.commands.list import list_tests  # noqa: PLC0415

    shards = given.pop("shards")
    request = requested(paths, given, needs_candidate=False)
    with Signals().installed():
        return list_tests(request, os.environ, sys.stdout, shards)


@cli.command()
@click.argument("test", required=False, metavar="[PATH::TEST]", shell_complete=tests_of)
@candidate_options
@click.option("--case", type=WholeNumber(0), metavar="N", default=0, help="Number of the case, from 0.")
@click.option("--edit", multiple=True, metavar="SITE=VALUE", help="Use this value for a draw; repeatable.")
@click.option("--log", type=click.Path(path_type=Path, exists=True), help="File with an edited output of this command.")
@click.option("--seed", metavar="N", help="Root seed.")
def draws(test: str | None, case: int, edit: tuple[str, ...], log: Path | None, **given: Any) -> int:
    """Print the draws of a case and run the case again, with edited draws if any are given."""
    from ci_autotest.commands.draws import asked_for  # noqa: PLC0415
    from ci_autotest.commands.draws import draws as draw_again  # noqa: PLC0415

    request = requested((), given, needs_candidate=False)
    wanted = asked_for(test, case, edit, log, request.config.seed)
    request = requested((wanted.test,), given, needs_candidate=False)
    with Signals().installed():
        return draw_again(wanted, request, os.environ, sys.stdout)


@cli.command()
@click.argument("path", type=click.Path(path_type=Path))
@candidate_options
def replay(path: Path, **given: Any) -> int:
    """Run the saved program of a finding again on its candidate."""
    from ci_autotest.commands.replay import replay as replay_program  # noqa: PLC0415

    request = requested((), given, needs_candidate=False)
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
@click.option("--fail-on", type=click.Choice(FAIL_ON), default="misaligned", help="Which findings end with status 1.")
@click.option("--baseline", metavar=BASELINE, default="", help=BASELINE_HELP)
@artifact_option
@display_options
def report(  # noqa: PLR0913, PLR0917 - one parameter an option
    folders: tuple[Path, ...],
    output: Path,
    fail_on: FailOn,
    baseline: str,
    artifact_name: str,
    is_quiet: bool,  # noqa: FBT001 - click passes options by name
    is_verbose: bool,  # noqa: FBT001
    is_json: bool,  # noqa: FBT001
) -> int:
    """Merge the reports of a run's shards."""
    from ci_autotest.commands.report import report as merge_reports  # noqa: PLC0415
    from ci_autotest.commands.result_text import Display, show_as  # noqa: PLC0415

    result = merge_reports(folders, output, fail_on, (baseline, artifact_name), os.environ)
    stream = sys.stderr if is_json else sys.stdout
    show_as(result, str(output), stream, Display(is_quiet, is_verbose, is_json))
    return status_of(result)


@cli.command()
@click.argument("report", type=click.Path(path_type=Path))
def tolerances(report: Path) -> int:
    """Propose tolerances from the greatest errors of a report's aligned cases, with the numbers they rest on."""
    from ci_autotest.commands.tolerances import tolerances as propose  # noqa: PLC0415

    return propose(report, sys.stdout)


@cli.command()
@click.argument("folder", type=click.Path(path_type=Path))
@click.argument("surface", type=click.Choice(["summary", "annotations", "page"]))
@click.option("--limit", type=WholeNumber(0), metavar="N", help="Upper limit of the summary in bytes.")
@kernels_option
def render(folder: Path, surface: str, limit: int | None, config: Path | None) -> int:
    """Print the summary, the annotations or the page (HTML) of a report, generated from report.json."""
    from ci_autotest.commands.output_writer import rendered  # noqa: PLC0415

    # Bytes, because the summary is UTF-8 whatever the runner's locale is, and `--limit` counts bytes.
    click.echo(rendered(folder, surface, limit, os.environ, config).encode(errors="backslashreplace"), nl=False)
    return 0


@cli.command(hidden=True)
@click.argument("folder", type=click.Path(path_type=Path))
@click.argument("lines", nargs=-1)
def ended(folder: Path, lines: tuple[str, ...]) -> int:
    """Write the report of a run that ended with 2 before it compared anything; only the action calls this."""
    from ci_autotest.commands.output_writer import ended_early, write_surfaces  # noqa: PLC0415
    from ci_autotest.report.finding_text import Setting  # noqa: PLC0415

    write_surfaces(ended_early(os.environ.get("GITHUB_RUN_ID", ""), lines), folder, Setting())
    return 0


@cli.command()
@click.argument("folder", required=False, type=click.Path(path_type=Path))
@click.option(
    "--run-id", type=WholeNumber(1), metavar="N", help="Publish the artifacts of this run instead of a folder."
)
@artifact_option
@click.option("--name", default="ci-autotest", help="Name of the check; each check has a comment of its own.")
@click.option(
    "--when",
    type=click.Choice(["always", "changes", "failures"]),
    default="always",
    help="When to create a comment. An existing comment is always updated.",
)
@click.option(
    "--baseline",
    metavar=f"{BASELINE}|auto-if-any",
    default="",
    help=f"{BASELINE_HELP} auto-if-any: the same, without a note if there is none.",
)
@click.option("--output", type=click.Path(path_type=Path), help="Folder for the downloaded reports, by artifact.")
@kernels_option
def comment(**given: Any) -> int:
    """Create or update the comment on the pull request of a report."""
    from ci_autotest.commands.comment import Publication  # noqa: PLC0415
    from ci_autotest.commands.comment import comment as publish_comment  # noqa: PLC0415

    return publish_comment(Publication(**given), os.environ, sys.stdout)


@cli.command()
@click.argument("candidate", nargs=-1, metavar="[CANDIDATE]...", shell_complete=candidates_of)
@config_option
@set_option
def doctor(**given: Any) -> int:
    """Check whether candidates can be used here, which of the suite's operators they have, and what to install."""
    from ci_autotest.commands.doctor import doctor as examine  # noqa: PLC0415

    request = requested((), given, needs_candidate=False)
    with Signals().installed():
        return examine(request, os.environ, sys.stdout)


@cli.command()
@click.argument("folders", nargs=-1, type=click.Path(path_type=Path))
@click.option("--output", type=click.Path(path_type=Path), help="Also write the plots as a page (HTML) to this file.")
def history(folders: tuple[Path, ...], output: Path | None) -> int:
    """Show outcomes, greatest errors and speed over runs: of these folders, or of those that .autotest/ has kept."""
    from ci_autotest.commands.history import history as show_history  # noqa: PLC0415

    return show_history(folders, output, sys.stdout)


@cli.command()
@click.argument("finding")
@click.option(
    "--output", type=click.Path(path_type=Path), default="autotest-report", help="Output folder, if FINDING is an id."
)
def issue(finding: str, output: Path) -> int:
    """Print a finding as a bug report: FINDING is its folder or its id."""
    from ci_autotest.commands.issue import issue as print_issue  # noqa: PLC0415

    return print_issue(finding, output, sys.stdout)


@cli.command()
@click.argument("page", default="")
def docs(page: str) -> int:
    """Print a page of the documentation or a section, ``troubleshooting#flaky``; without PAGE, list the pages."""
    from ci_autotest.commands.docs import docs as print_page  # noqa: PLC0415

    return print_page(page, sys.stdout)


@cli.command()
@click.option("--ci", type=click.Choice(["github", "gitlab", "jenkins"]), default="github", help="The CI system.")
def init(ci: System) -> int:
    """Write autotest.yml, a first test and the files of a CI system into this repository; existing files are kept."""
    from ci_autotest.commands.init import init as write_files  # noqa: PLC0415

    return write_files(Path.cwd(), sys.stdout, ci)


def _begin_warm() -> None:
    """Let the run take its processes from a service, if one runs."""
    from ci_autotest.run.worker_start import FORK_SERVER  # noqa: PLC0415 - likewise

    descriptor = part(HANDED_OUT)()
    if descriptor is None:
        click.echo("no service of this version runs here: `ci-autotest serve` starts one", err=True)
    else:
        os.environ[FORK_SERVER] = str(descriptor)


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
        click.echo(usage_of(error), err=True)
        status = ConfigError.exit_code
    except AutotestError as error:
        click.echo(f"{error}{more(error.page) if error.page else ''}", err=True)
        status = error.exit_code
    except Exception as error:  # noqa: BLE001 - the last resort: a fault must not end with the status of a finding
        traceback.print_exc()
        click.echo(
            f"this is a fault of ci-autotest itself ({type(error).__name__}): please report it with the lines above.",
            err=True,
        )
        status = _FAULT
    ignore()
    sys.exit(status if isinstance(status, int) else 0)
