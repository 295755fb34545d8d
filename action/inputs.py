"""The action's inputs, which the step `plan` gets as ``INPUT_*`` variables, and what the later steps get of them.

Pure functions; the standard library only.
"""

from __future__ import annotations

import json
import re
import shlex
from typing import TYPE_CHECKING

from action.errors import StepError, refuse
from action.options import CHOICES, OF_ACTION, parse_options
from ci_autotest.github.environ import ARTIFACT_NAME

if TYPE_CHECKING:
    from collections.abc import Mapping

MODES = ("auto", "run", "report", "verify")
RUNTIMES = ("host", "python", "container")
COMMENTS = ("failures", "changes", "always", "off")
#: Inputs with one value that are options of ``ci-autotest run``.
SINGLE = ("config", "cases", "budget", "seed", "shard", "device", "baseline", "fail-on")
#: Those that are options of ``ci-autotest verify``.
OF_VERIFY = ("budget", "seed")
DEFAULT_OUTPUT = "autotest-report"
DEFAULT_ARTIFACT = "ci-autotest-report"
#: Longest part of an artifact's name that a leg of a matrix adds.
LEG_CHARS = 40
#: Longest name of an artifact. Source: ``ARTIFACT_NAME``.
ARTIFACT_CHARS = 100


def variable(name: str) -> str:
    """Return the environment variable of the input ``name``."""
    return "INPUT_" + name.upper().replace("-", "_")


def single(environ: Mapping[str, str], name: str) -> str:
    """Return the input ``name``, stripped; refuse several lines."""
    value = environ.get(variable(name), "").strip()
    count = len(value.splitlines())
    refuse(f"the input '{name}' has {count} lines: give one value.", when=count > 1)
    return value


def several(environ: Mapping[str, str], name: str) -> list[str]:
    """Return the lines of the input ``name``, stripped and without empty ones."""
    lines = environ.get(variable(name), "").splitlines()
    return [line.strip() for line in lines if line.strip()]


def one_of(environ: Mapping[str, str], name: str, allowed: tuple[str, ...]) -> str:
    """Return the input ``name``, which must be one of ``allowed``; the first of them if it is empty."""
    value = single(environ, name) or allowed[0]
    refuse(f"the input '{name}' is '{value}': give one of {', '.join(allowed)}.", when=value not in allowed)
    return value


def mode(environ: Mapping[str, str]) -> str:
    """Return ``run``, ``report`` or ``verify``; ``auto`` is ``report`` in a workflow that another one started."""
    value = one_of(environ, "mode", MODES)
    if value != "auto":
        return value
    return "report" if environ.get("GITHUB_EVENT_NAME") == "workflow_run" else "run"


def task(environ: Mapping[str, str]) -> str:
    """Return ``run``, ``merge`` (reports in this job) or ``publish`` (reports that another run uploaded)."""
    if mode(environ) != "report":
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
    got = f"the input 'run-id' is '{value}'" if value else "there is no run to report on"
    refuse(
        f"{got}: mode 'report' publishes the artifacts of the run in a `workflow_run` event, of this run, or of "
        "the run with the id 'run-id'. To merge reports in this job, list their folders in 'paths', one a line.",
        when=re.fullmatch(r"[1-9][0-9]{0,18}", value) is None,
    )
    return value


def refuse_baseline(environ: Mapping[str, str]) -> None:
    """Refuse a baseline of another run where no step may read one: beside tests, and where reports are merged."""
    given, asks_new = single(environ, "baseline"), single(environ, "fail-on") == "new"
    why = "the input 'baseline' is 'auto'" if given else "the input 'fail-on' is 'new', and there is no 'baseline'"
    refuse(
        f"{why}: only mode 'report' without 'paths' looks for the last report of the base branch. Download one in an "
        "earlier step, and give its folder as 'baseline'.",
        when=task(environ) != "publish" and (given == "auto" or (asks_new and not given)),
    )


def refuse_verification(environ: Mapping[str, str]) -> None:
    """Refuse inputs that mode ``verify`` does not take."""
    if mode(environ) != "verify":
        return
    paths = several(environ, "paths")
    wanted = "mode 'verify' takes two, REFERENCE and CANDIDATE."
    refuse(f"the input 'paths' has {len(paths)} lines: {wanted}", when=len(paths) != len(("reference", "candidate")))
    others = [name for name in (*SINGLE, "candidate") if name not in OF_VERIFY and several(environ, name)]
    refuse(f"the input '{''.join(others[:1])}' has no effect in mode 'verify': remove it.", when=others != [])
    refuse(
        "the input 'runtime' is 'container', in which mode 'verify' could make no sandbox: remove it.",
        when=single(environ, "runtime") == "container",
    )


def artifact_name(environ: Mapping[str, str]) -> str:
    """Return the name of the artifacts to publish, or with which this job's own begins."""
    name = single(environ, "artifact-name") or DEFAULT_ARTIFACT
    refuse(
        f"the input 'artifact-name' is '{name[:100]}': use letters, digits, '_', '.', '-' and blanks, the first of "
        "them no blank and no dot.",
        when=re.fullmatch(ARTIFACT_NAME, name) is None,
    )
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
    exact = [each for each in matrix.values() if type(each) in {str, int} and re.fullmatch("[A-Za-z0-9.-]+", str(each))]
    # If two legs' values give one name, the leg's number is added.
    is_exact = len(exact) == len(values) and plain == "_".join(values)
    return plain if is_exact else "-".join(filter(None, (plain, environ.get("JOB_INDEX", ""))))


def comment_policy(environ: Mapping[str, str]) -> str:
    """Return ``failures``, ``changes``, ``always`` or ``off``; a job that runs tests has none of the others."""
    policy = one_of(environ, "comment", COMMENTS)
    refuse(
        f"the input 'comment' is '{policy}', but a job that runs tests gets no token: remove it, and comment in a "
        "job of its own, with `needs:` this job, `mode: report` and the permissions `actions: read` and "
        "`pull-requests: write`.",
        when=task(environ) == "run" and single(environ, "comment") not in {"", "off"},
    )
    return policy


def output_folder(environ: Mapping[str, str]) -> str:
    """Return the output folder."""
    return single(environ, "output") or DEFAULT_OUTPUT


def given_options(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the lines of the input ``options`` by what they set; mode ``report`` takes none."""
    lines = several(environ, "options")
    got = f"the input 'options' has '{''.join(lines[:1])[:100]}'"
    refuse(f"{got}, but mode 'report' runs no test: remove it.", when=lines != [] and mode(environ) == "report")
    return parse_options(lines, of_verify=mode(environ) == "verify")


def chosen_options(environ: Mapping[str, str], names: tuple[str, ...]) -> list[str]:
    """Return the options for the inputs ``names`` that are not empty."""
    given = {name: value for name in names if (value := single(environ, name))}
    for name in given.keys() & CHOICES.keys():
        one_of(environ, name, CHOICES[name])
    return [f"--{name}={value}" for name, value in given.items()]


def cli_argv(environ: Mapping[str, str], options: Mapping[str, str]) -> list[str]:
    """Return the arguments of ``ci-autotest``. A value is always one argument and never becomes an option."""
    paths = several(environ, "paths")
    output = f"--output={output_folder(environ)}"
    if mode(environ) == "report":
        return ["report", *chosen_options(environ, ("fail-on", "baseline")), output, "--", *paths]
    # `--name=value` and `--` keep values that begin with a dash from becoming options.
    if mode(environ) == "verify":
        own = [line for name, line in options.items() if name.partition("=")[0] not in OF_ACTION]
        return ["verify", *chosen_options(environ, OF_VERIFY), *own, output, "--", *paths]
    candidates = [f"--candidate={name}" for name in several(environ, "candidate")]
    others = [line for name, line in options.items() if name not in OF_ACTION]
    return ["run", *chosen_options(environ, SINGLE), *others, *candidates, output, "--", *paths]


def comment_argv(environ: Mapping[str, str], folder: str) -> list[str]:
    """Return the arguments of ``ci-autotest comment``, for the report in ``folder`` or of another run.

    The check is named after its artifact, because a workflow with several checks has to name each artifact anyway.
    """
    artifact = artifact_name(environ)
    named = [f"--name={artifact.removesuffix('-report')}", f"--artifact-name={artifact}"]
    baseline = f"--baseline={single(environ, 'baseline') or 'auto-if-any'}"
    argv = ["comment", f"--when={comment_policy(environ)}", *named, *chosen_options(environ, ("config",)), baseline]
    if task(environ) == "publish":
        return [*argv, f"--run-id={run_id(environ)}", f"--output={output_folder(environ)}"]
    return [*argv, "--", folder]


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
