"""What the action's inputs mean, which come as ``INPUT_*`` in the environment.

Pure functions; the standard library only.
"""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

MODES = ("run", "report")
COMMENTS = ("failures", "always", "off")
#: Inputs of one value that ``ci-autotest run`` takes as an option of the same name.
OPTIONS = (
    "config",
    "cases",
    "budget",
    "seed",
    "strictness",
    "workers",
    "memory",
    "shard",
    "device",
    "baseline",
    "fail-on",
)
DEFAULT_OUTPUT = "autotest-report"
#: What foreign code must not inherit: tokens, and the files by which a step speaks to the runner.
WITHHELD = frozenset(
    {
        "GITHUB_TOKEN", "GH_TOKEN", "ACTIONS_RUNTIME_TOKEN", "ACTIONS_ID_TOKEN_REQUEST_TOKEN",
        "GITHUB_ENV", "GITHUB_OUTPUT", "GITHUB_PATH", "GITHUB_STATE", "GITHUB_STEP_SUMMARY",
    }
)  # fmt: skip


class StepError(Exception):
    """Carry a message that says what is wrong with this step, and what to do."""


def variable(name: str) -> str:
    """Return the environment variable of the input ``name``."""
    return "INPUT_" + name.upper().replace("-", "_")


def single(environ: Mapping[str, str], name: str) -> str:
    """Return the input ``name``, stripped; one of several lines is refused."""
    value = environ.get(variable(name), "").strip()
    count = len(value.splitlines())
    if count > 1:
        message = f"the input '{name}' has {count} lines: give one value."
        raise StepError(message)
    return value


def several(environ: Mapping[str, str], name: str) -> list[str]:
    """Return the lines of the input ``name``, stripped, without empty ones."""
    lines = environ.get(variable(name), "").splitlines()
    return [line.strip() for line in lines if line.strip()]


def one_of(environ: Mapping[str, str], name: str, allowed: tuple[str, ...]) -> str:
    """Return the input ``name``, which is one of ``allowed``; the first where it is empty."""
    value = single(environ, name) or allowed[0]
    if value not in allowed:
        message = f"the input '{name}' is '{value}': it is one of {', '.join(allowed)}."
        raise StepError(message)
    return value


def mode(environ: Mapping[str, str]) -> str:
    """Return ``run`` or ``report``."""
    return one_of(environ, "mode", MODES)


def comment_policy(environ: Mapping[str, str]) -> str:
    """Return ``failures``, ``always`` or ``off``."""
    return one_of(environ, "comment", COMMENTS)


def output_folder(environ: Mapping[str, str]) -> str:
    """Return the output folder as the inputs name it."""
    return single(environ, "output") or DEFAULT_OUTPUT


def options_of(environ: Mapping[str, str], names: Iterable[str]) -> list[str]:
    """Return the options for the inputs ``names`` that are not empty."""
    return [f"--{name}={value}" for name in names if (value := single(environ, name))]


def cli_argv(environ: Mapping[str, str]) -> list[str]:
    """Return the arguments of ``ci-autotest``: a value is one argument, and never an option."""
    paths = several(environ, "paths")
    output = f"--output={output_folder(environ)}"
    if mode(environ) == "report":
        if not paths:
            message = "mode 'report' merges reports: name their folders in the input 'paths', one a line."
            raise StepError(message)
        return ["report", *options_of(environ, ("fail-on",)), output, "--", *paths]
    candidates = [f"--candidate={name}" for name in several(environ, "candidate")]
    return ["run", *options_of(environ, OPTIONS), *candidates, output, "--", *paths]


def foreign_environ(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment for foreign code: no token, no file of the runner's, no input."""
    return {name: value for name, value in environ.items() if name not in WITHHELD and not name.startswith("INPUT_")}


def install_arguments(environ: Mapping[str, str]) -> list[str]:
    """Return pip's arguments for ``install``: a line is one requirement, or an option and its value."""
    arguments: list[str] = []
    for line in several(environ, "install"):
        try:
            arguments.extend(shlex.split(line) if line.startswith("-") else [line])
        except ValueError as error:
            message = f"the line {line!r} of the input 'install' cannot be read: {error}."
            raise StepError(message) from None
    return arguments


def kept_constraints(constraints: str, present: Iterable[str]) -> str:
    """Return ``constraints`` without what is ``present``: what the caller has and fits stays."""

    def canonical(name: str) -> str:
        return re.sub(r"[-_.]+", "-", name).lower()

    names = {canonical(name) for name in present}
    lines = [line for line in constraints.splitlines() if line.strip() and not line.startswith("#")]
    kept = [line for line in lines if canonical(re.split(r"[=<>!~;\s\[]", line, maxsplit=1)[0]) not in names]
    return "".join(f"{line}\n" for line in kept)
