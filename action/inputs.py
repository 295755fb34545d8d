"""What the action's inputs mean, which come as ``INPUT_*`` in the environment.

Pure functions; the standard library only.
"""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

MODES = ("auto", "run", "report")
RUNTIMES = ("host", "python", "container")
COMMENTS = ("failures", "changes", "always", "off")
TORCHES = ("auto", "cpu", "default")
CACHES = ("true", "false")
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
#: Inputs that are keys of the configuration without an option of their own; their values are YAML.
SETTINGS = ("case-timeout", "reference", "candidates", "tolerances", "known")
DEFAULT_OUTPUT = "autotest-report"
#: What foreign code must not inherit: tokens, and the files by which a step speaks to the runner.
WITHHELD = frozenset(
    {
        "GITHUB_TOKEN", "GH_TOKEN", "ACTIONS_RUNTIME_TOKEN", "ACTIONS_ID_TOKEN_REQUEST_TOKEN",
        "GITHUB_ENV", "GITHUB_OUTPUT", "GITHUB_PATH", "GITHUB_STATE", "GITHUB_STEP_SUMMARY",
    }
)  # fmt: skip
#: A variable with one of these in its name holds a secret, whoever set it.
SECRET = ("TOKEN", "SECRET", "PASSWORD", "CREDENTIAL", "KEY")


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
    """Return ``run`` or ``report``: by itself, a workflow that another one started reports."""
    value = one_of(environ, "mode", MODES)
    if value != "auto":
        return value
    return "report" if environ.get("GITHUB_EVENT_NAME") == "workflow_run" else "run"


def task(environ: Mapping[str, str]) -> str:
    """Return ``run``, ``merge`` (reports that are here) or ``publish`` (those that another run uploaded)."""
    if mode(environ) == "run":
        return "run"
    return "merge" if several(environ, "paths") else "publish"


def runtime(environ: Mapping[str, str], *, is_installed: bool) -> str:
    """Return where tests run: ``host``, ``python`` or ``container``.

    Args:
        environ: ``JOB_CONTAINER`` is the id of the job's container, or empty.
        is_installed: Whether the caller's interpreter has this package.
    """
    if not single(environ, "runtime"):
        return "host" if environ.get("JOB_CONTAINER") and is_installed else "python"
    return one_of(environ, "runtime", RUNTIMES)


def run_id(environ: Mapping[str, str]) -> str:
    """Return the workflow run whose artifact is published."""
    value = single(environ, "run-id")
    if re.fullmatch(r"[1-9][0-9]{0,18}", value) is None:
        got = f"the input 'run-id' is '{value}'" if value else "there is no run to report on"
        message = (
            f"{got}: mode 'report' publishes what the run of a `workflow_run` event uploaded, or the run that "
            "'run-id' numbers; to merge reports that are here, name their folders in the input 'paths', one a line."
        )
        raise StepError(message)
    return value


def comment_policy(environ: Mapping[str, str]) -> str:
    """Return ``failures``, ``changes``, ``always`` or ``off``."""
    return one_of(environ, "comment", COMMENTS)


def torch_choice(environ: Mapping[str, str]) -> str:
    """Return which torch is installed where there is none: ``auto``, ``cpu`` or ``default``."""
    return one_of(environ, "torch", TORCHES)


def keeps_cache(environ: Mapping[str, str]) -> bool:
    """Whether what pip downloads is kept for the next run."""
    return one_of(environ, "cache", CACHES) == "true"


def cache_folder(environ: Mapping[str, str]) -> str:
    """Return the folder that is kept, nothing where pip's own is used."""
    return environ.get("CACHE_FOLDER", "")


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
        return ["report", *options_of(environ, ("fail-on", "baseline")), output, "--", *paths]
    candidates = [f"--candidate={name}" for name in several(environ, "candidate")]
    return ["run", *options_of(environ, OPTIONS), *settings(environ), *candidates, output, "--", *paths]


def settings(environ: Mapping[str, str]) -> list[str]:
    """Return ``--set`` for the inputs that are keys of the configuration and nothing else."""
    given = {name: environ.get(variable(name), "").strip() for name in SETTINGS}
    return [f"--set={name}={value}" for name, value in given.items() if value]


def comment_argv(environ: Mapping[str, str]) -> list[str]:
    """Return the arguments of ``ci-autotest comment``, for the report that is here or for that of another run.

    A check is known by the name of its artifact, which a workflow's author chooses anyway where there are several.
    Only a job that reports may look for the base branch's last report: that needs `actions: read`.
    """
    artifact = single(environ, "artifact-name")
    uploaded = artifact if task(environ) == "publish" else artifact + leg_suffix(environ)
    named = [f"--name={artifact.removesuffix('-report')}", f"--artifact-name={uploaded}"]
    when = [f"--when={comment_policy(environ)}", *named, *configuration_options(environ)]
    baseline = single(environ, "baseline") or ("auto-if-any" if mode(environ) == "report" else "")
    compared = [f"--baseline={baseline}"] if baseline else []
    if task(environ) == "publish":
        return ["comment", *when, *compared, f"--run-id={run_id(environ)}", f"--output={output_folder(environ)}"]
    return ["comment", *when, *compared, *leg(environ), "--", environ.get("ARTIFACT_DIR", "")]


def configuration_options(environ: Mapping[str, str]) -> list[str]:
    """Return the option that names the configuration as it was before the tests ran."""
    path = environ.get("CONFIGURATION", "")
    return [f"--config={path}"] if path else []


def leg(environ: Mapping[str, str]) -> list[str]:
    """Return which leg of a matrix this job is, and of how many; nothing where there is no matrix."""
    matrix, legs = environ.get("MATRIX", "").strip(), environ.get("JOB_TOTAL", "").strip()
    return [f"--leg={matrix}", f"--legs={legs}"] if matrix not in {"", "null", "{}"} and legs else []


def leg_suffix(environ: Mapping[str, str]) -> str:
    """Return what a matrix adds to the name of an upload, as the step that uploads does."""
    total, index = (environ.get(name, "").strip() for name in ("JOB_TOTAL", "JOB_INDEX"))
    return f"-{index}" if total.isdecimal() and int(total) > 1 and index else ""


def is_secret(name: str) -> bool:
    """Whether a variable of this name is kept from every process that lives beside foreign code."""
    return any(word in name.upper() for word in SECRET)


def without_secrets(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment without what `is_secret` names."""
    return {name: value for name, value in environ.items() if not is_secret(name)}


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


def install_names(environ: Mapping[str, str]) -> list[str]:
    """Return the packages that ``install`` names; those of a file or an address are not known before it is read."""
    found = (re.match(r"[A-Za-z0-9][A-Za-z0-9._-]*", line) for line in several(environ, "install"))
    return [match[0] for match in found if match]


def kept_constraints(constraints: str, present: Iterable[str]) -> str:
    """Return ``constraints`` without what is ``present``: what the caller has and fits stays."""

    def canonical(name: str) -> str:
        return re.sub(r"[-_.]+", "-", name).lower()

    names = {canonical(name) for name in present}
    lines = [line for line in constraints.splitlines() if line.strip() and not line.startswith("#")]
    kept = [line for line in lines if canonical(re.split(r"[=<>!~;\s\[]", line, maxsplit=1)[0]) not in names]
    return "".join(f"{line}\n" for line in kept)
