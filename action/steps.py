"""The steps of ``action.yml``: prepare, run, publish, finish. They act; what is decided is beside them.

The standard library only: the first starts in the caller's interpreter, with nothing installed.
"""

from __future__ import annotations

import re
import shlex
import site
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from action import inputs, outputs
from action.inputs import StepError
from action.runner import append, commands_stopped, run_foreign, say, write_outputs

if TYPE_CHECKING:
    from collections.abc import Mapping

ACTION = Path(__file__).resolve().parent.parent
OLDEST_PYTHON = (3, 10)
#: An exit status is one byte: 256 would arrive as 0.
GREATEST_STATUS = 255


def pip_install(python: Path, arguments: list[str], environ: Mapping[str, str]) -> None:
    """Install with the pip of ``python``; what builds the action's own package is pinned too."""
    pip = [str(python), "-I", "-m", "pip", "install", "--no-input", "--disable-pip-version-check"]
    pinned = {**environ, "PIP_BUILD_CONSTRAINT": str(ACTION / "constraints.txt")}
    if status := run_foreign([*pip, *arguments], pinned):
        message = f"pip ended with {status} for {shlex.join(arguments)}: its last lines above say why."
        raise StepError(message)


def make_environment(folder: Path, environ: Mapping[str, str]) -> Path:
    """Make an environment in ``folder`` that sees the caller's packages; return its interpreter."""
    if run_foreign([sys.executable, "-I", "-m", "venv", "--system-site-packages", str(folder)], environ):
        message = f"'{sys.executable}' cannot make an environment: use actions/setup-python before this."
        raise StepError(message)
    # `--system-site-packages` shows the base interpreter's only, and `-I` hides the user's own.
    of_venv = [sysconfig.get_path("purelib"), sysconfig.get_path("platlib")]
    added = of_venv if sys.prefix != sys.base_prefix else [site.getusersitepackages()]
    there = [path for path in dict.fromkeys(added) if Path(path).is_dir()]
    lines = "".join(f"import site; site.addsitedir({path!r})\n" for path in there)
    packages = Path(sysconfig.get_path("purelib", "posix_prefix", {"base": str(folder)}))
    (packages / "callers-packages.pth").write_text(lines, encoding="utf-8")
    return folder / "bin" / "python"


def present_packages(python: Path) -> list[str]:
    """Return the names of what ``python`` can import, by their metadata."""
    code = "import importlib.metadata as m; print(*{d.name for d in m.distributions()}, sep='\\n')"
    listed = subprocess.run([str(python), "-I", "-c", code], check=True, capture_output=True, text=True)
    return listed.stdout.split()


def install(folder: Path, environ: Mapping[str, str]) -> Path:
    """Install the action in ``folder``; torch only where it is needed and there is none.

    What the caller asks for comes first and unpinned; the pins hold for the rest.
    """
    python = make_environment(folder / "venv", environ)
    if asked := inputs.install_arguments(environ):
        pip_install(python, asked, environ)
    present = present_packages(python)
    pins = (ACTION / "constraints.txt").read_text("utf-8")
    constraints = folder / "constraints.txt"
    constraints.write_text(inputs.kept_constraints(pins, present), encoding="utf-8")
    extra = "[torch]" if inputs.mode(environ) == "run" and "torch" not in present else ""
    pip_install(python, ["-c", str(constraints), f"{ACTION}{extra}"], environ)
    return python


def prepare(environ: Mapping[str, str]) -> int:
    """Refuse inputs that cannot be meant, then install; ``python`` runs the other steps."""
    if sys.version_info < OLDEST_PYTHON:
        got = sys.version.split()[0]
        message = f"'{sys.executable}' is Python {got}: name one of 3.10 or newer in the input 'python'."
        raise StepError(message)
    inputs.comment_policy(environ)
    inputs.cli_argv(environ)
    folder = Path(tempfile.mkdtemp(prefix="ci-autotest-", dir=environ.get("RUNNER_TEMP") or None))
    say("::group::Install ci-autotest\n")
    python = install(folder, environ)
    say("::endgroup::\n")
    write_outputs(environ, {"python": str(python)})
    return 0


def read_report(folder: Path) -> outputs.Report | None:
    """Return what ``report.json`` in ``folder`` says, ``None`` where none can be read."""
    try:
        return outputs.parse_report((folder / "report.json").read_text("utf-8"))
    except (OSError, ValueError):
        return None


def write_summary(environ: Mapping[str, str], folder: Path) -> None:
    """Add ``summary.md`` to the step's summary; that it cannot be shown fails nothing."""
    try:
        written = Path(environ.get("GITHUB_STEP_SUMMARY", "")).stat().st_size
        text = (folder / "summary.md").read_text("utf-8", errors="replace")
        append(
            environ,
            "GITHUB_STEP_SUMMARY",
            outputs.fit_summary(text, outputs.SUMMARY_LIMIT - written),
        )
    except (OSError, StepError) as error:
        say(outputs.workflow_command("warning", f"the summary is not shown: {error}"))


def run(environ: Mapping[str, str]) -> int:
    """Run ``ci-autotest`` and write what came of it to the outputs; the step does not fail."""
    argv = inputs.cli_argv(environ)
    folder = Path(inputs.output_folder(environ)).absolute()
    was_there = folder.exists()
    if argv[0] == "run":  # a report from before must not pass for this run's
        (folder / "report.json").unlink(missing_ok=True)
    status = run_foreign([sys.executable, "-I", "-m", "ci_autotest", *argv], environ)
    report = read_report(folder)
    if report:
        write_summary(environ, folder)
    final = outputs.final_status(status, report)
    if status == 0 and final != 0:
        message = f"the command ended with 0, but {folder / 'report.json'} is missing or damaged, or says otherwise."
        say(outputs.workflow_command("error", message))
    upload = folder if folder.is_dir() and (report or not was_there) else None
    write_outputs(environ, outputs.step_outputs(final, report, upload))
    return 0


def publish(environ: Mapping[str, str]) -> int:
    """Comment on the pull request where that is asked for; that it cannot be done fails nothing."""
    status, event = environ.get("EXIT_STATUS", ""), environ.get("GITHUB_EVENT_NAME", "")
    policy = inputs.comment_policy(environ)
    if not outputs.wants_comment(policy, status, event):
        say(f"No comment: the input is '{policy}', the run ended with {status}, the event is '{event}'.\n")
        return 0
    argv = [sys.executable, "-I", "-m", "ci_autotest", "comment", environ.get("ARTIFACT_DIR", "")]
    with commands_stopped():
        done = subprocess.run(argv, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        say(done.stdout)
    url = outputs.comment_url(done.stdout)
    if not url:
        message = "no comment was written: the log says why. The summary and the artifact hold the report."
        say(outputs.workflow_command("warning", message))
    write_outputs(environ, {"comment-url": url})
    return 0


def finish(environ: Mapping[str, str]) -> int:
    """End with the status of the run; a run that left none has failed."""
    status = environ.get("EXIT_STATUS", "")
    if re.fullmatch(r"[0-9]{1,3}", status) is None or int(status) > GREATEST_STATUS:
        message = "the run left no exit status: an earlier step of this action says why."
        raise StepError(message)
    if status != "0":
        text = f"ci-autotest ended with {status} ({outputs.conclusion(int(status))})."
        say(outputs.workflow_command("error", text))
    return int(status)


STEPS = {"prepare": prepare, "run": run, "publish": publish, "finish": finish}


def main(argv: list[str], environ: Mapping[str, str]) -> int:
    """Carry out the step that ``argv`` names and return its exit status."""
    try:
        return STEPS[argv[1]](environ)
    except StepError as error:
        say(outputs.workflow_command("error", str(error)))
        return 2
