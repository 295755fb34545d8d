"""The command line answers at once, imports no framework for it, and has the options of the design, each described."""

from __future__ import annotations

import json
import pkgutil
import subprocess
import sys
from typing import get_args, get_type_hints

import click
import pytest

from ci_autotest import commands
from ci_autotest.cli import cli
from ci_autotest.commands.command_options import CASES_AT_MOST, COMPAT, FAIL_ON
from ci_autotest.config import AT_MOST, Compat, Config
from tests.projects import environment

#: Options by command, as the README documents them.
OPTIONS = {
    "init": {"ci"},
    "history": {"output"},
    "docs": set(),
    "capture": {"output", "tests", "force", "data"},
    "doctor": {"config", "set"},
    "run": {
        "config", "set", "candidate", "cases", "budget", "seed", "strictness", "workers", "shard", "device", "baseline",
        "fail-on", "output", "memory", "executor", "maxfail", "lf", "quiet", "verbose", "json", "speed", "compat", "warm",
    },
    "power": {
        "config", "set", "candidate", "cases", "fail-under", "mutants", "sources", "budget", "seed", "strictness",
        "workers", "memory", "output", "quiet", "verbose", "json",
    },
    "list": {"config", "set", "candidate", "cases", "shards", "compat"},
    "draws": {"config", "set", "candidate", "case", "edit", "log", "seed"},
    "loader": {"workers", "epochs", "ranks", "config", "set", "seed", "output", "fail-on", "quiet", "verbose", "json"},
    "replay": {"config", "set", "candidate"},
    "report": {"output", "fail-on", "baseline", "artifact-name", "quiet", "verbose", "json"},
    "tolerances": set(),
    "issue": {"output"},
    "serve": {"port", "mcp", "jobs"},
    "verify": {"json", "seed", "budget", "forward-only", "public", "allow", "no-authentic", "include", "output"},
    "render": {"limit", "config"},
    "comment": {"run-id", "artifact-name", "name", "when", "baseline", "output", "config"},
}  # fmt: skip
FRAMEWORKS = ("torch", "numpy", "rich", "requests", "yaml", "msgspec", "jinja2", "junit_xml")
#: Runs a command and prints, last, which modules it has imported.
LISTING = (
    "import json, sys\n"
    "from ci_autotest.cli import main\n"
    "sys.argv = ['ci-autotest', *sys.argv[1:]]\n"
    "try:\n    main()\n"
    "except SystemExit:\n    print(json.dumps(sorted({name.partition('.')[0] for name in sys.modules})))\n"
)


def imported(*words: str) -> tuple[str, set[str]]:
    done = subprocess.run(
        [sys.executable, "-c", LISTING, *words],
        env=environment(None), capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    *lines, modules = done.stdout.splitlines()
    return "\n".join(lines), set(json.loads(modules))


def every_command() -> dict[str, click.Command]:
    """Return every command, those of optional parts too."""
    context = click.Context(cli)
    named = {name: cli.get_command(context, name) for name in cli.list_commands(context)}
    return {name: command for name, command in named.items() if command is not None}


def options(command: click.Command) -> dict[str, click.Option]:
    return {
        name.removeprefix("--"): parameter
        for parameter in command.params
        if isinstance(parameter, click.Option)
        for name in parameter.opts
        if name.startswith("--")
    }


@pytest.mark.parametrize("words", [("--help",), ("run", "--help"), ("--version",)], ids=" ".join)
def test_help__imports_no_framework(words: tuple[str, ...]):
    said, modules = imported(*words)
    assert "ci-autotest" in said
    assert sorted(modules & set(FRAMEWORKS)) == []


#: Imports each module in a process that has imported none of the package, and prints the names of those that fail.
EACH_ALONE = """
import importlib, os, sys, traceback

for name in sys.argv[1:]:
    child = os.fork()
    if child == 0:
        try:
            importlib.import_module(name)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    if os.waitpid(child, 0)[1] != 0:
        print(name)
"""


def test_modules_of_commands__each_imported_first__need_no_other_before_them():
    # A command imports what it needs when it is run; in end-to-end tests something else has imported it already.
    names = [found.name for found in pkgutil.iter_modules(commands.__path__, f"{commands.__name__}.")]
    done = subprocess.run(
        [sys.executable, "-c", EACH_ALONE, *names], capture_output=True, text=True, env=environment({}), check=False
    )
    assert (done.stdout, done.stderr) == ("", "")


def test_bad_option__imports_no_framework():
    _, modules = imported("run", "--cases", "0")
    assert sorted(modules & set(FRAMEWORKS)) == []


def test_module__run_with_python_m__is_the_command():
    done = subprocess.run(
        [sys.executable, "-m", "ci_autotest", "--version"],
        env=environment(None), capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout.partition(",")[0], done.stderr) == (0, "ci-autotest", "")


def test_commands__are_those_of_the_design():
    assert {name: set(options(command)) for name, command in every_command().items() if not command.hidden} == OPTIONS


@pytest.mark.parametrize("name", OPTIONS)
def test_command__its_help__describes_it_and_every_option(name: str):
    command = every_command()[name]
    assert command.help
    assert [option for option, parameter in options(command).items() if not parameter.help] == []


def test_command__without_arguments__shows_the_help_and_nothing_else():
    done = subprocess.run(
        [sys.executable, "-m", "ci_autotest"],
        env=environment(None), capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    said = done.stdout + done.stderr
    assert said.startswith("Usage: ")
    assert "See ci-autotest --help" not in said
    assert done.returncode in {0, 2}


def test_options__values_of_the_configuration__are_repeated_as_they_are():
    assert (AT_MOST["cases"], get_args(get_type_hints(Config)["fail_on"])) == (CASES_AT_MOST, FAIL_ON)
    assert get_args(Compat) == COMPAT
