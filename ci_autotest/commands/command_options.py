"""Options of the command line that several commands share. Imports nothing but click, so that ``--help`` is quick."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from ci_autotest.commands.completion import candidates_of, tests_of
from ci_autotest.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

#: The values of ``config.values``, repeated here because that module imports msgspec.
FAIL_ON: Final = ("misaligned", "new", "never", "flaky", "leniency", "slower")
COMPAT: Final = ("oneflow",)
STRICTNESS: Final = ("tolerance", "measured", "ulp", "bitwise")
CASES_AT_MOST: Final = 1_000_000_000
#: Value of ``--cases`` for all samples of a built-in database.
ALL_CASES: Final = "all"
BASELINE: Final = "FILE|DIR|auto"
BASELINE_HELP: Final = (
    "Report to compare with: findings are marked as new, still there or fixed. auto: the base branch's last report."
)
_CONFIG_HELP: Final = "Path of autotest.yml. Default: the nearest one, here or above."


class WholeNumber(click.IntRange):
    """A whole number in a range; the message of a refusal is in ci-autotest's own form."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the number.

        Raises:
            ConfigError: It is not a number, or out of range.
        """
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter:
            option = param.opts[0] if param is not None else "the number"
            allowed = f"{self.min} or more" if self.max is None else f"from {self.min} to {self.max:,}"
            message = f"{option} is {str(value)[:80]!r}. Give a whole number, {allowed}."
            raise ConfigError(message) from None


class Cases(WholeNumber):
    """A number of cases, or ``all`` samples of the tests that have samples."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the number, or ``all``.

        Raises:
            ConfigError: It is neither.
        """
        return value if value == ALL_CASES else super().convert(value, param, ctx)


def score_of(text: str | None) -> float | None:
    """Return the score that ``--fail-under`` asks for.

    Raises:
        ConfigError: It is not a number from 0 to 1.
    """
    try:
        score = float(text) if text is not None else None
    except ValueError:
        score = -1.0
    if score is not None and not 0 <= score <= 1:
        message = f"--fail-under is {str(text)[:80]!r}. Give a share from 0 to 1, such as 0.9."
        raise ConfigError(message)
    return score


tests_argument = click.argument(
    "paths",
    nargs=-1,
    metavar="[PATH[::TEST] | builtin:suite[::FAMILY] | builtin:opinfo[::TEST] | source:NAME]...",
    shell_complete=tests_of,
)
config_option = click.option("--config", type=click.Path(path_type=Path), help=_CONFIG_HELP)
set_option = click.option(
    "--set", multiple=True, metavar="KEY=YAML", help="Set a key of autotest.yml, whatever the file says; repeatable."
)
cases_option = click.option(
    "--cases",
    type=Cases(1, CASES_AT_MOST),
    metavar="N|all",
    help="Cases per test; also overrides @autotest(n=...). `all`: every sample of a built-in database.",
)
fail_on_option = click.option("--fail-on", type=click.Choice(FAIL_ON), help="Which findings end with status 1.")
artifact_option = click.option(
    "--artifact-name", default="ci-autotest-report", help="Name under which reports are uploaded."
)
compat_option = click.option(
    "--compat",
    type=click.Choice(COMPAT),
    help="The harness for which the test files were written; they run as they are.",
)
keywords_option = click.option(
    "-k",
    "keywords",
    metavar="EXPRESSION",
    help="Only tests whose id has these words, joined by and, or, not: -k 'softmax and not half'.",
)
_QUIET: Final = click.option(
    "-q", "--quiet", "is_quiet", is_flag=True, help="Print only the findings, one line each, and the verdict."
)
_VERBOSE: Final = click.option(
    "-v", "--verbose", "is_verbose", is_flag=True, help="Print all tests, whole tracebacks and the findings' output."
)
_JSON: Final = click.option(
    "--json", "is_json", is_flag=True, help="Print report.json to standard output, and the rest to standard error."
)
kernels_option = click.option(
    "--config",
    type=click.Path(path_type=Path),
    help="Path of the autotest.yml that lists the kernels a shown program may name. Default: the nearest one.",
)


_STOPS_AND_SHOWS: Final = (
    click.option("-x", "first_only", is_flag=True, help="Begin no further case after the first failure."),
    click.option("--maxfail", type=WholeNumber(1), metavar="N", help="Begin no further case after N failures."),
    click.option("--lf", "last_failed", is_flag=True, help="Run only the tests that failed when they last ran."),
    click.option("-s", "shows_output", is_flag=True, help="Show what tests and kernels print, as it comes."),
)


def display_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of a command that prints the result of a run."""
    return _QUIET(_VERBOSE(_JSON(command)))


def runner_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that choose tests, end the run and show output, as in pytest."""
    for option in reversed(_STOPS_AND_SHOWS):
        command = option(command)
    return keywords_option(command)


def candidate_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of a command that reads the configuration and its candidates."""
    candidate = click.option(
        "--candidate",
        multiple=True,
        metavar="NAME",
        shell_complete=candidates_of,
        help="Use only this candidate; repeatable. Default: all candidates of autotest.yml.",
    )
    return config_option(set_option(candidate(command)))


def usage_of(error: click.ClickException) -> str:
    """Return click's message of a wrong command line, with where to read more."""
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        return error.format_message()
    context = error.ctx if isinstance(error, click.UsageError) else None
    command = context.command_path if context is not None else "ci-autotest"
    message = error.format_message()
    return f"{message if message.endswith(('.', '?', ')')) else f'{message}.'} See {command} --help."
