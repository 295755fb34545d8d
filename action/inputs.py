"""The action's inputs, which come as ``INPUT_*`` variables, and the arguments that are made of them.

Pure functions; the standard library only.
"""

from __future__ import annotations

import json
import re
import shlex
from typing import TYPE_CHECKING

from ci_autotest.github.environ import ARTIFACT_NAME

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

MODES = ("auto", "run", "report")
RUNTIMES = ("host", "python", "container")
COMMENTS = ("failures", "changes", "always", "off")
TORCHES = ("auto", "cpu", "default")
CACHES = ("true", "false")
SPEEDS = ("false", "true")
#: Inputs with one value for which ``ci-autotest run`` has an option of the same name.
OPTIONS = (
    "config",
    "cases",
    "compat",
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
#: Inputs that are keys of the configuration and have no option; their values are YAML.
SETTINGS = ("case-timeout", "slower-factor", "reference", "candidates", "tolerances", "known", "opinfo")
DEFAULT_OUTPUT = "autotest-report"
DEFAULT_ARTIFACT = "ci-autotest-report"
#: Longest part of an artifact's name that a leg of a matrix adds.
LEG_CHARS = 40
#: Longest name of an artifact. Source: ``ARTIFACT_NAME``.
ARTIFACT_CHARS = 100
#: Variables that foreign code must not inherit: tokens, and the files through which a step talks to the runner.
WITHHELD = frozenset(
    {
        "GITHUB_TOKEN", "GH_TOKEN", "ACTIONS_RUNTIME_TOKEN", "ACTIONS_ID_TOKEN_REQUEST_TOKEN",
        "GITHUB_ENV", "GITHUB_OUTPUT", "GITHUB_PATH", "GITHUB_STATE", "GITHUB_STEP_SUMMARY",
    }
)  # fmt: skip
#: A variable with one of these words in its name is treated as a secret.
SECRET = ("TOKEN", "SECRET", "PASSWORD", "CREDENTIAL", "KEY")


class StepError(Exception):
    """Fail a step with a message that says what is wrong and what to do."""


def variable(name: str) -> str:
    """Return the environment variable of the input ``name``."""
    return "INPUT_" + name.upper().replace("-", "_")


def single(environ: Mapping[str, str], name: str) -> str:
    """Return the input ``name``, stripped; refuse several lines."""
    value = environ.get(variable(name), "").strip()
    count = len(value.splitlines())
    if count > 1:
        message = f"the input '{name}' has {count} lines: give one value."
        raise StepError(message)
    return value


def several(environ: Mapping[str, str], name: str) -> list[str]:
    """Return the lines of the input ``name``, stripped and without empty ones."""
    lines = environ.get(variable(name), "").splitlines()
    return [line.strip() for line in lines if line.strip()]


def one_of(environ: Mapping[str, str], name: str, allowed: tuple[str, ...]) -> str:
    """Return the input ``name``, which must be one of ``allowed``; the first of them if it is empty."""
    value = single(environ, name) or allowed[0]
    if value not in allowed:
        message = f"the input '{name}' is '{value}': give one of {', '.join(allowed)}."
        raise StepError(message)
    return value


def mode(environ: Mapping[str, str]) -> str:
    """Return ``run`` or ``report``; ``auto`` means ``report`` in a workflow that another workflow started."""
    value = one_of(environ, "mode", MODES)
    if value != "auto":
        return value
    return "report" if environ.get("GITHUB_EVENT_NAME") == "workflow_run" else "run"


def task(environ: Mapping[str, str]) -> str:
    """Return ``run``, ``merge`` (reports in this job) or ``publish`` (reports that another run uploaded)."""
    if mode(environ) == "run":
        return "run"
    return "merge" if several(environ, "paths") else "publish"


def runtime(environ: Mapping[str, str], *, is_installed: bool) -> str:
    """Return where the tests run: ``host``, ``python`` or ``container``.

    Args:
        environ: Has the inputs; ``JOB_CONTAINER`` is the id of the job's container, or empty.
        is_installed: Whether the caller's interpreter has this package.
    """
    if not single(environ, "runtime"):
        return "host" if environ.get("JOB_CONTAINER") and is_installed else "python"
    return one_of(environ, "runtime", RUNTIMES)


def run_id(environ: Mapping[str, str]) -> str:
    """Return the id of the workflow run whose artifacts are published."""
    value = single(environ, "run-id")
    if re.fullmatch(r"[1-9][0-9]{0,18}", value) is None:
        got = f"the input 'run-id' is '{value}'" if value else "there is no run to report on"
        message = (
            f"{got}: mode 'report' publishes the artifacts of the run in a `workflow_run` event, of this run, or of "
            "the run with the id 'run-id'. To merge reports in this job, list their folders in 'paths', one a line."
        )
        raise StepError(message)
    return value


def refuse_baseline(environ: Mapping[str, str]) -> None:
    """Refuse a baseline of another run where no step may read one: beside tests, and where reports are merged."""
    given, asks_new = single(environ, "baseline"), single(environ, "fail-on") == "new"
    if task(environ) == "publish" or not (given == "auto" or (asks_new and not given)):
        return
    why = "the input 'baseline' is 'auto'" if given else "the input 'fail-on' is 'new', and there is no 'baseline'"
    message = (
        f"{why}: only mode 'report' without 'paths' looks for the last report of the base branch. Download one in an "
        "earlier step, and give its folder as 'baseline'."
    )
    raise StepError(message)


def artifact_name(environ: Mapping[str, str]) -> str:
    """Return the name of the artifacts to publish, or with which this job's own begins."""
    name = single(environ, "artifact-name") or DEFAULT_ARTIFACT
    if not re.fullmatch(ARTIFACT_NAME, name):
        message = (
            f"the input 'artifact-name' is '{name[:100]}': use letters, digits, '_', '.', '-' and blanks, the first "
            "of them no blank and no dot."
        )
        raise StepError(message)
    return name


def uploaded_name(environ: Mapping[str, str]) -> str:
    """Return the name under which this job uploads its report; names are unique in a workflow run.

    Args:
        environ: Has the inputs; ``JOB`` is the id of the job, ``MATRIX`` and ``JOB_INDEX`` say which leg it is.
    """
    job = environ.get("JOB", "") if task(environ) == "run" and not single(environ, "artifact-name") else ""
    base, end = "-".join(filter(None, (artifact_name(environ), job))), leg(environ)
    return f"{base[: ARTIFACT_CHARS - 1 - len(end)]}-{end}" if end else base[:ARTIFACT_CHARS]


def leg(environ: Mapping[str, str]) -> str:
    """Return the values of a leg of a matrix as a part of a name; empty without a matrix."""
    try:
        matrix = json.loads(environ.get("MATRIX", "") or "null")
    except (ValueError, RecursionError):
        matrix = None
    if not isinstance(matrix, dict) or not matrix:
        return ""
    values = [str(value) if type(value) in {str, int} else json.dumps(value) for value in matrix.values()]
    plain = re.sub(r"[^A-Za-z0-9._-]+", "_", "_".join(values)).strip("._-")[:LEG_CHARS]
    # If two legs' values give one name, the leg's number is added.
    is_exact = all(type(value) in {str, int} for value in matrix.values())
    is_exact = (
        is_exact and all(re.fullmatch(r"[A-Za-z0-9.-]+", value) for value in values) and plain == "_".join(values)
    )
    return plain if is_exact else "-".join(filter(None, (plain, environ.get("JOB_INDEX", ""))))


def comment_policy(environ: Mapping[str, str]) -> str:
    """Return ``failures``, ``changes``, ``always`` or ``off``; a job that runs tests has none of the others."""
    policy = one_of(environ, "comment", COMMENTS)
    if task(environ) == "run" and single(environ, "comment") not in {"", "off"}:
        message = (
            f"the input 'comment' is '{policy}', but a job that runs tests gets no token: remove it, and comment in a "
            "job of its own, with `needs:` this job, `mode: report` and the permissions `actions: read` and "
            "`pull-requests: write`."
        )
        raise StepError(message)
    return policy


def torch_choice(environ: Mapping[str, str]) -> str:
    """Return which torch to install if there is none: ``auto``, ``cpu`` or ``default``."""
    return one_of(environ, "torch", TORCHES)


def keeps_cache(environ: Mapping[str, str]) -> bool:
    """Return whether pip's downloads are kept for the next run."""
    return one_of(environ, "cache", CACHES) == "true"


def cache_folder(environ: Mapping[str, str]) -> str:
    """Return the cache folder of the job; empty if pip's own is used."""
    return environ.get("CACHE_FOLDER", "")


def output_folder(environ: Mapping[str, str]) -> str:
    """Return the output folder."""
    return single(environ, "output") or DEFAULT_OUTPUT


def options_of(environ: Mapping[str, str], names: Iterable[str]) -> list[str]:
    """Return the options for the inputs ``names`` that are not empty."""
    return [f"--{name}={value}" for name in names if (value := single(environ, name))]


def cli_argv(environ: Mapping[str, str]) -> list[str]:
    """Return the arguments of ``ci-autotest``. A value is always one argument and never becomes an option."""
    paths = several(environ, "paths")
    output = f"--output={output_folder(environ)}"
    if mode(environ) == "report":
        return ["report", *options_of(environ, ("fail-on", "baseline")), output, "--", *paths]
    # `--name=value` and `--` keep values that begin with a dash from becoming options.
    candidates = [f"--candidate={name}" for name in several(environ, "candidate")]
    speed = ["--speed"] if one_of(environ, "speed", SPEEDS) == "true" else []
    return ["run", *options_of(environ, OPTIONS), *settings(environ), *speed, *candidates, output, "--", *paths]


def settings(environ: Mapping[str, str]) -> list[str]:
    """Return ``--set`` for the inputs that are keys of the configuration without an option."""
    given = {name: environ.get(variable(name), "").strip() for name in SETTINGS}
    return [f"--set={name}={value}" for name, value in given.items() if value]


def comment_argv(environ: Mapping[str, str]) -> list[str]:
    """Return the arguments of ``ci-autotest comment``, for the report of this job or of another run.

    The check is named after its artifact, because a workflow with several checks has to name each artifact anyway.
    """
    artifact = artifact_name(environ)
    named = [f"--name={artifact.removesuffix('-report')}", f"--artifact-name={artifact}"]
    baseline = f"--baseline={single(environ, 'baseline') or 'auto-if-any'}"
    argv = ["comment", f"--when={comment_policy(environ)}", *named, *options_of(environ, ("config",)), baseline]
    if task(environ) == "publish":
        return [*argv, f"--run-id={run_id(environ)}", f"--output={output_folder(environ)}"]
    return [*argv, "--", environ.get("ARTIFACT_DIR", "")]


def is_secret(name: str) -> bool:
    """Return whether a variable of this name is kept from every process that runs beside foreign code."""
    return any(word in name.upper() for word in SECRET)


def without_secrets(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment without secrets."""
    return {name: value for name, value in environ.items() if not is_secret(name)}


def foreign_environ(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment for foreign code: without tokens, inputs and the runner's files."""
    return {name: value for name, value in environ.items() if name not in WITHHELD and not name.startswith("INPUT_")}


def install_arguments(environ: Mapping[str, str]) -> list[str]:
    """Return pip's arguments for the input ``install``: each line is a requirement, or an option with its value."""
    arguments: list[str] = []
    for line in several(environ, "install"):
        try:
            # A requirement may have spaces, for example in a marker, so only options are split.
            arguments.extend(shlex.split(line) if line.startswith("-") else [line])
        except ValueError as error:
            message = f"the line {line!r} of the input 'install' cannot be parsed: {error}. Correct its quotes."
            raise StepError(message) from None
    return arguments


def install_names(environ: Mapping[str, str]) -> list[str]:
    """Return the packages that ``install`` names, as far as its lines show them: a file or a URL hides its packages."""
    found = (re.match(r"[A-Za-z0-9][A-Za-z0-9._-]*", line) for line in several(environ, "install"))
    return [match[0] for match in found if match]


def kept_constraints(constraints: str, present: Iterable[str]) -> str:
    """Return ``constraints`` without the packages that are ``present``, so that pip does not replace them."""

    def canonical(name: str) -> str:
        return re.sub(r"[-_.]+", "-", name).lower()

    names = {canonical(name) for name in present}
    lines = [line for line in constraints.splitlines() if line.strip() and not line.startswith("#")]
    kept = [line for line in lines if canonical(re.split(r"[=<>!~;\s\[]", line, maxsplit=1)[0]) not in names]
    return "".join(f"{line}\n" for line in kept)
