"""The steps of ``action.yml``: plan, prepare, install, run, publish. They act; what is decided is beside them.

The standard library only: the first starts in the caller's interpreter, with nothing installed.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from action import container, environment, event, foreign, inputs, outputs
from action.container_run import in_container
from action.inputs import StepError
from action.report_output import explained, read_report, show, tidy
from action.runner import commands_stopped, fresh_folder, say, take_back, write_outputs
from ci_autotest.version import VERSION

if TYPE_CHECKING:
    from collections.abc import Mapping

OLDEST_PYTHON = (3, 10)


def plan(environ: Mapping[str, str]) -> int:
    """Say which cache holds what this job installs; inputs that cannot be meant are refused by `prepare`."""
    try:
        key = environment.cache_key(environ)
    except StepError:
        key = ""
    write_outputs(environ, {"cache-key": key})
    return 0


def prepare(environ: Mapping[str, str]) -> int:
    """Refuse inputs that cannot be meant, then install what this job needs."""
    refuse_machine()
    task = refuse_inputs(environ)
    if task == "run":
        refuse_foreign_head(environ)
    folder = Path(tempfile.mkdtemp(prefix="ci-autotest-", dir=environ.get("RUNNER_TEMP") or None))
    say("::group::Install ci-autotest\n")
    has_own = environment.installed_version(Path(sys.executable)) != ""
    runtime = inputs.runtime(environ, is_installed=has_own) if task == "run" else "python"
    venv = environment.make_environment(folder / "venv", environ)
    packages = environment.install_publisher(venv, folder, environ)
    configuration = environment.keep_configuration(folder, environ)
    python = tested_python(task, runtime, venv, environ)
    # What the caller asks for may build code of the checkout: the cache is saved and the publisher sealed before that.
    is_later = python == venv and inputs.install_arguments(environ) != []
    is_cached = install_own(python, environ, is_later=is_later) if python == venv else False
    say(f"::endgroup::\nci-autotest {VERSION}: task '{task}', runtime '{runtime}'.\n")
    write_outputs(
        environ,
        {
            "task": task, "runtime": runtime, "python": str(python), "publisher": str(environment.interpreter()),
            "libraries": environment.library_folder(), "packages": str(packages),
            "installs": "true" if is_later else "", "cached": "true" if is_cached else "",
            "configuration": str(configuration),
            "sealed": "\n".join([*environment.sealed_paths(packages), str(configuration)]),
            "listed": "\n".join(environment.listed_folders()),
        },
    )  # fmt: skip
    return 0


def refuse_machine() -> None:
    """Refuse an interpreter or a system that the steps were not written for."""
    if sys.version_info < OLDEST_PYTHON:
        got = sys.version.split()[0]
        message = f"'{sys.executable}' is Python {got}: name one of 3.10 or newer in the input 'python'."
        raise StepError(message)
    if sys.platform != "linux":
        message = f"the runner's system is '{sys.platform}': this action runs on Linux. Use a Linux runner."
        raise StepError(message)


def refuse_inputs(environ: Mapping[str, str]) -> str:
    """Return the task; refuse inputs that cannot be meant before anything is installed."""
    inputs.cli_argv(environ)
    task = inputs.task(environ)
    inputs.torch_choice(environ)
    inputs.keeps_cache(environ)
    if inputs.comment_policy(environ) != "off":
        inputs.comment_argv(environ)
    elif task == "publish":
        message = (
            "the input 'comment' is 'off', and publishing is all that mode 'report' does without 'paths': drop one."
        )
        raise StepError(message)
    if task == "run" and inputs.runtime(environ, is_installed=False) == "container":
        container.image_of(inputs.single(environ, "image"))
        container.extra_options(inputs.several(environ, "container-options"))
        if inputs.several(environ, "install"):
            message = (
                "the input 'install' has no effect in the container, whose root cannot be written: "
                "build an image from the one of 'image'."
            )
            raise StepError(message)
    return task


def refuse_foreign_head(environ: Mapping[str, str]) -> None:
    """Refuse to test another commit than the base branch's in a job that has the base repository's rights."""
    if environ.get("GITHUB_EVENT_NAME") != "pull_request_target":
        return
    for folder in dict.fromkeys([Path.cwd(), *map(Path, inputs.several(environ, "paths"))]):
        if (commit := environment.checked_out(folder)) not in {"", environ.get("GITHUB_SHA")}:
            message = (
                f"'{folder}' holds commit {commit}, not the base branch's: on `pull_request_target` the tests of a "
                "pull request would run with the secrets of this repository. Test on `pull_request`, and comment "
                "from a workflow of the event `workflow_run`, as `ci-autotest init` writes them."
            )
            raise StepError(message)


def tested_python(task: str, runtime: str, venv: Path, environ: Mapping[str, str]) -> Path:
    """Return the interpreter that runs the tests; on the runtime ``host`` it has what it needs."""
    if task != "run" or runtime == "container":
        return Path(sys.executable)
    if runtime == "python":
        return venv
    if asked := inputs.install_arguments(environ):
        environment.pip_install(Path(sys.executable), asked, environ)
    if (found := environment.installed_version(Path(sys.executable))) != VERSION:
        got = f"has version {found}" if found else "cannot import ci_autotest"
        message = (
            f"'{sys.executable}' {got}, and this action is version {VERSION}: runtime 'host' needs the package of the "
            "same version in the job's container. Use this action's image, or `runtime: python`."
        )
        raise StepError(message)
    return Path(sys.executable)


def install_own(python: Path, environ: Mapping[str, str], *, is_later: bool) -> bool:
    """Install the action in the tests' environment, or download it for later; return whether the cache has it all."""
    if not is_later:
        environment.install_package(python, environ)
        return inputs.cache_folder(environ) != ""
    is_new = inputs.cache_folder(environ) != "" and environ.get("CACHE_HIT") != "true"
    return is_new and environment.fill_cache(python, environ)


def install(environ: Mapping[str, str]) -> int:
    """Install what the caller asks for, which may run code of the checkout, and then the action."""
    foreign.adopt_orphans()
    python = Path(sys.executable)
    try:
        environment.pip_install(python, inputs.install_arguments(environ), environ)
        environment.install_package(python, environ)
    finally:
        take_back_all(environ, "what was installed")
    return 0


def run(environ: Mapping[str, str]) -> int:
    """Run ``ci-autotest`` and write what came of it to the outputs; the step does not fail."""
    foreign.forget_secrets(environ)
    foreign.adopt_orphans()
    folder = Path(inputs.output_folder(environ)).absolute()
    was_there = folder.exists() or folder.is_symlink()
    if inputs.task(environ) == "run" and folder.is_dir():  # a report from before must not pass for this run's
        (folder / "report.json").unlink(missing_ok=True)
    ended = carried_out(environ)
    take_back_all(environ, "the tests")
    tidy(folder)
    report = read_report(folder)
    if report is None and ended.status == outputs.USAGE:
        report = explained(environ, ended.said, None if was_there else folder)
    final = outputs.final_status(ended.status, report)
    if said := outputs.doubt(final if ended.status else 0, report, folder):
        say(outputs.workflow_command("error", said))
        report = None
    if report:
        show(environ, folder)
    upload = folder if folder.is_dir() and (report or not was_there) else None
    uploads = outputs.has_artifacts(environ.get("GITHUB_SERVER_URL", ""))
    if upload and not uploads:
        message = f"this server has no artifacts of upload-artifact v4: upload '{upload}' with a version that it has."
        say(outputs.workflow_command("notice", message))
    write_outputs(environ, outputs.step_outputs(final, report, upload, uploads=uploads))
    return 0


def carried_out(environ: Mapping[str, str]) -> foreign.Ended:
    """Run the command of this task where it runs."""
    argv = inputs.cli_argv(environ)
    if inputs.task(environ) != "run":
        argv = environment.publisher_argv(environ["PACKAGES"], fresh_folder(environ), argv)
        return foreign.run_recorded(argv, environ)
    if environ.get("RUNTIME") == "container":
        return in_container(environ, argv)
    return foreign.run_recorded([sys.executable, "-I", "-m", "ci_autotest", *argv], environ)


def take_back_all(environ: Mapping[str, str], who: str) -> None:
    """End the processes that foreign code has left, and discard what it wrote to the runner's files."""
    if left := foreign.end_orphans():
        say(outputs.workflow_command("warning", f"{who} left {left} processes running, which were ended."))
    if written := take_back(environ):
        say(outputs.workflow_command("warning", f"{who} wrote to {', '.join(written)}: that was discarded."))


def publish(environ: Mapping[str, str]) -> int:
    """Comment on the pull request where there is one; that it cannot be done fails nothing."""
    name = environ.get("GITHUB_EVENT_NAME", "")
    if name not in outputs.COMMENT_EVENTS:
        say(f"No comment: the event is '{name}', and not about a pull request.\n")
        return 0
    argv = environment.publisher_argv(environ["PACKAGES"], fresh_folder(environ), inputs.comment_argv(environ))
    with commands_stopped():
        given = {**environ, event.VARIABLE: event.payload(environ)}
        done = subprocess.run(argv, env=given, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        say(done.stdout)
    url = outputs.comment_url(done.stdout)
    if done.returncode != 0:
        message = "no comment was written: the log says why. The summary and the artifact hold the report."
        say(outputs.workflow_command("warning", message))
    write_outputs(environ, {"comment-url": url})
    return 0


STEPS = {"plan": plan, "prepare": prepare, "install": install, "run": run, "publish": publish}


def main(argv: list[str], environ: Mapping[str, str]) -> int:
    """Carry out the step that ``argv`` names and return its exit status."""
    try:
        return STEPS[argv[1]](environ)
    except StepError as error:
        say(outputs.workflow_command("error", str(error)))
        return 2
