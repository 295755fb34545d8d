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
    loader_options,
    runner_options,
    score_of,
    set_option,
    tests_argument,
    usage_of,
)
from ci_autotest.commands.completion import candidates_of, tests_of
from ci_autotest.commands.signals import INTERRUPTED, Signals, end_at_once, ignore
from ci_autotest.commands.terminal import outlast_readers
from ci_autotest.doc_links import more
from ci_autotest.errors import AutotestError, ConfigError
from ci_autotest.version import VERSION

if TYPE_CHECKING:
    from ci_autotest.commands.init import System
    from ci_autotest.commands.request import Request
    from ci_autotest.values.result import FailOn, RunResult


#: Status of a fault in ci-autotest itself: EX_SOFTWARE of sysexits.h, which no caller takes for a finding.
_FAULT = 70


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120})
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
@click.option("--output", metavar="DIR", help="Folder of the report. Default: autotest-report.")
@runner_options
@display_options
def run(paths: tuple[str, ...], *, is_quiet: bool, is_verbose: bool, is_json: bool, **given: Any) -> int:
    """Run tests on the candidates and write a report."""
    request = _request(paths, {**given, "is_json": is_json})
    return _run(request, is_quiet=is_quiet, is_verbose=is_verbose, is_json=is_json)


@cli.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.argument("program", nargs=-1, required=True, type=click.UNPROCESSED, metavar="python SCRIPT [ARGUMENT]...")
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), default=Path("autotests"), help="Folder. Default: autotests."
)
@click.option("--tests", type=WholeNumber(1), metavar="N", default=150, help="Number of tests at most. Default: 150.")
@click.option("--force", "is_forced", is_flag=True, help="Replace the tests of this program that the folder has.")
@click.option("--data", "has_data", is_flag=True, help="Store the elements of first calls; the tests use them.")
def capture(program: tuple[str, ...], output: Path, tests: int, *, is_forced: bool, has_data: bool) -> int:
    """Run a program and write the operator calls that it makes as tests."""
    from ci_autotest.commands.capture import capture as run_captured  # noqa: PLC0415

    return run_captured(program, output, tests, sys.stderr, is_forced=is_forced, has_data=has_data)


@cli.command()
@click.argument("factory", metavar="MODULE:FACTORY")
@loader_options
@display_options
def loader(factory: str, workers: int, epochs: int, ranks: int, **given: Any) -> int:
    """Test a data loader: FACTORY is a function of MODULE that returns a Dataset, a DataLoader, or make(seed)."""
    from ci_autotest.loader.declaration import factory_file  # noqa: PLC0415

    display = {name: given.pop(name) for name in ("is_quiet", "is_verbose", "is_json")}
    request = _request((factory_file(factory, workers=workers, epochs=epochs, ranks=ranks),), given)
    return _run(request, **display)


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
    request = _request(paths, given, needs_candidate=False)
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

    request = _request((), given, needs_candidate=False)
    wanted = asked_for(test, case, edit, log, request.config.seed)
    request = _request((wanted.test,), given, needs_candidate=False)
    with Signals().installed():
        return draw_again(wanted, request, os.environ, sys.stdout)


@cli.command()
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
    from ci_autotest.commands.power import PowerRequest, show_power  # noqa: PLC0415
    from ci_autotest.commands.power import power as measure  # noqa: PLC0415
    from ci_autotest.commands.progress import Progress  # noqa: PLC0415
    from ci_autotest.commands.result_text import Display  # noqa: PLC0415

    display = Display(*(given.pop(name) for name in ("is_quiet", "is_verbose", "is_json")))
    wanted = PowerRequest(score_of(fail_under), mutants, sources)
    request = _request(paths, {**given, "is_json": display.is_json}, needs_candidate=False)
    stream = sys.stderr if display.is_json else sys.stdout
    is_live = stream.isatty() and os.environ.get("TERM") != "dumb"
    found = measure(request, wanted, os.environ, Progress(stream, is_live=is_live, is_quiet=display.is_quiet))
    show_power(found, str((request.start / request.config.output).resolve()), stream, display)
    return found.exit_code


@cli.command()
@click.argument("path", type=click.Path(path_type=Path))
@candidate_options
def replay(path: Path, **given: Any) -> int:
    """Run the saved program of a finding again on its candidate."""
    from ci_autotest.commands.replay import replay as replay_program  # noqa: PLC0415

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
    return _status(result)


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

    request = _request((), given, needs_candidate=False)
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
def verify(**given: Any) -> int:
    """Judge CANDIDATE by REFERENCE: files, FILE:NAME or MODULE:NAME. It runs in a sandbox, on hidden cases."""
    from ci_autotest.commands.verify import Verification  # noqa: PLC0415
    from ci_autotest.commands.verify import verify as give_verdict  # noqa: PLC0415

    return give_verdict(Verification(**given), os.environ, sys.stdout)


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


def _request(paths: tuple[str, ...], given: dict[str, Any], *, needs_candidate: bool = True) -> Request:
    from ci_autotest.commands.request_parsing import request_of  # noqa: PLC0415

    return request_of(paths, given, Path.cwd(), needs_candidate=needs_candidate)


def _run(request: Request, *, is_quiet: bool, is_verbose: bool, is_json: bool) -> int:
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
    return _status(result)


def _status(result: RunResult) -> int:
    """Return a run's exit status; print the error that ended it, if one did."""
    if result.error is not None:
        click.echo(result.error.message, err=True)
    return result.exit_code


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
