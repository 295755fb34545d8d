"""The steps of ``action.yml``: plan, prepare, install, run and publish. The modules beside this one decide; these act.

Only `plan` gets inputs; it refuses what is wrong, and hands the later steps their arguments.

Only the standard library is imported, because the first steps run in the caller's interpreter before any installation.
"""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from action import container, environment, foreign, inputs, outputs
from action.container_run import in_container
from action.errors import StepError, refuse
from action.options import value_of
from action.report_output import explained, read_report, show, surfaces, tidy
from action.runner import commands_stopped, fresh_folder, say, take_back, write_outputs
from action.step_arguments import InstallArguments, RunArguments, decoded, encoded
from ci_autotest.version import VERSION

if TYPE_CHECKING:
    from collections.abc import Mapping

OLDEST_PYTHON = (3, 10)
#: File that says that this job has run tests.
TESTED = "ci-autotest-has-run-tests"
#: Events whose jobs have the secrets and the token of the base repository, whatever they check out.
WITH_RIGHTS = frozenset({"pull_request_target", "issue_comment"})


def plan(environ: Mapping[str, str]) -> int:
    """Refuse whatever is wrong before anything is installed, then hand the later steps their arguments."""
    refuse_machine()
    task, options = inputs.task(environ), inputs.given_options(environ)
    report = str(Path(inputs.output_folder(environ)).absolute())
    has_own = environment.installed_version(Path(sys.executable)) != ""
    runtime = inputs.runtime(environ, is_installed=has_own) if task == "run" else ""
    installation = InstallArguments(
        runtime=runtime,
        torch=environment.torch_choice(value_of(options, "torch"), inputs.single(environ, "device")),
        packages=inputs.install_arguments(environ) if runtime else [],
        names=inputs.install_names(environ),
    )
    command = RunArguments(
        argv=inputs.cli_argv(environ, options), runtime=runtime, report=report,
        config=inputs.chosen_options(environ, ("config",)), device=inputs.single(environ, "device"),
        image=inputs.single(environ, "image"), container_options=inputs.several(environ, "container-options"),
    )  # fmt: skip
    refuse_inputs(environ, task, installation, command)
    comment = [] if inputs.comment_policy(environ) == "off" or runtime else inputs.comment_argv(environ, report)
    artifact = inputs.uploaded_name(environ)
    key = "" if value_of(options, "cache") == "false" else environment.cache_key(installation, environ)
    cache = str(Path(environ["RUNNER_TEMP"], "ci-autotest-pip")) if key else ""
    if runtime:
        note_of_tests(environ).touch()
    say(f"ci-autotest {VERSION}: task '{task}', runtime '{runtime or 'python'}'.\n")
    write_outputs(
        environ,
        {
            "task": task, "python": sys.executable, "image": command.image, "cache-key": key, "cache-folder": cache,
            "install": encoded(replace(installation, cache=cache)), "installs": "true" if installation.packages else "",
            "run": encoded(command), "artifact": artifact, "comment": encoded(comment) if comment else "",
        },
    )  # fmt: skip
    return 0


def prepare(environ: Mapping[str, str]) -> int:
    """Install what this job needs."""
    given = InstallArguments(**decoded(environ))
    environ = environment.with_cache(environ, given.cache)
    folder = Path(fresh_folder(environ))
    say("::group::Install ci-autotest\n")
    venv = environment.make_environment(folder / "venv", environ)
    packages = environment.install_publisher(venv, folder, environ)
    # `venv` imports the host's packages, too. What `install` adds goes there, and leaves the host's as they are.
    is_own = given.runtime == "python" or (given.runtime == "host" and given.packages != [])
    is_cached = given.runtime == "python" and install_own(venv, given, environ)
    say("::endgroup::\n")
    python = str(venv) if is_own else sys.executable
    write_outputs(environ, {"python": python, "packages": str(packages), "cached": "true" if is_cached else ""})
    return 0


def note_of_tests(environ: Mapping[str, str]) -> Path:
    """Return the note that this job runs tests, in the runner's temporary folder, which it empties for each job."""
    return Path(environ["RUNNER_TEMP"], TESTED)


def refuse_machine() -> None:
    """Refuse an interpreter or a system that the action does not support."""
    got = f"'{sys.executable}' is Python {sys.version.split()[0]}"
    refuse(f"{got}: set the input 'python' to Python 3.10 or newer.", when=sys.version_info < OLDEST_PYTHON)
    message = f"the runner's system is '{sys.platform}': this action runs on Linux. Use a Linux runner."
    refuse(message, when=sys.platform != "linux")


def refuse_inputs(environ: Mapping[str, str], task: str, installation: InstallArguments, command: RunArguments) -> None:
    """Refuse inputs that do not go together, or not with this job."""
    inputs.refuse_verification(environ)
    inputs.refuse_baseline(environ)
    refuse(
        f"the input 'output' is '{command.report}', which has the checkout in it: give a folder for the report.",
        when=Path.cwd().resolve().is_relative_to(Path(command.report).resolve()),  # the whole folder is uploaded
    )
    comments = inputs.comment_policy(environ) != "off" and task != "run"
    refuse(
        "the input 'comment' is 'off', but without 'paths' mode 'report' only publishes: remove one of the two.",
        when=task == "publish" and not comments,
    )
    refuse(
        "this job has run tests, so it does not comment: what they left on the machine could take the token. "
        "Comment in a job of its own, with `needs:` this one.",
        when=comments and note_of_tests(environ).exists(),
    )
    refuse(
        "the input 'install' has no effect in the container, whose root is read-only: build an image that is based on "
        "'image'.",
        when=command.runtime == "container" and installation.packages != [],
    )
    if command.runtime == "container":
        container.image_of(command.image)
        container.extra_options(command.container_options)
        container.place_of(Path.cwd(), command.report, container.UNPRIVILEGED, "")
    if command.runtime == "host" and not installation.packages:
        refuse_version(Path(sys.executable))
    if command.runtime:
        refuse_foreign_head(environ)


def refuse_foreign_head(environ: Mapping[str, str]) -> None:
    """Refuse to test any commit but the base branch's in a job with the rights of the base repository."""
    if (event_name := environ.get("GITHUB_EVENT_NAME")) not in WITH_RIGHTS:
        return
    # Beside `config`, which may be another checkout; without it, that is the current folder again.
    beside = Path(inputs.single(environ, "config")).parent
    for folder in dict.fromkeys([Path.cwd(), beside, *map(Path, inputs.several(environ, "paths"))]):
        commit = environment.checked_out(folder)
        refuse(
            f"'{folder}' has commit {commit}, not the base branch's: on `{event_name}`, the tests of a pull request "
            "would run with the secrets of this repository. Test on `pull_request`, and comment in a workflow on "
            "`workflow_run`, as in the files of `ci-autotest init`.",
            when=commit not in {"", environ.get("GITHUB_SHA")},
        )


def refuse_version(python: Path) -> None:
    """Refuse an interpreter for the runtime ``host`` that does not import this version of the package."""
    found = environment.installed_version(python)
    got = f"has version {found}" if found else "cannot import ci_autotest"
    refuse(
        f"'{python}' {got}, and this action is version {VERSION}: runtime 'host' needs the same version of the package "
        "in the job's container. Use this action's image, or `runtime: python`.",
        when=found != VERSION,
    )


def install_own(python: Path, given: InstallArguments, environ: Mapping[str, str]) -> bool:
    """Install the action in the tests' environment, or only download it; return whether the cache is complete.

    The input `install` may build code of the checkout: first the cache is saved.
    """
    if not given.packages:
        environment.install_package(python, given.torch, environ)
        return given.cache != ""
    is_new = given.cache != "" and environ.get("CACHE_HIT") != "true"
    return is_new and environment.fill_cache(python, given.torch, given.names, environ)


def install(environ: Mapping[str, str]) -> int:
    """Install the packages of the input ``install``, which may run code of the checkout, and then the action.

    The runtime ``host`` has the action already, or gets it from ``install``.
    """
    foreign.forget_secrets(environ)
    foreign.adopt_orphans()
    given = InstallArguments(**decoded(environ))
    environ = environment.with_cache(environ, given.cache)
    python = Path(sys.executable)
    try:
        environment.pip_install(python, given.packages, environ)
        if given.runtime == "host":
            refuse_version(python)
        else:
            environment.install_package(python, given.torch, environ)
    finally:
        take_back_all(environ, "the installation")
    return 0


def run(environ: Mapping[str, str]) -> int:
    """Run ``ci-autotest`` and write the outputs; this step does not fail, so that the next ones still publish."""
    foreign.forget_secrets(environ)
    foreign.adopt_orphans()
    given = RunArguments(**decoded(environ))
    folder = Path(given.report)
    was_there = folder.exists() or folder.is_symlink()
    if given.runtime and folder.is_dir():  # An earlier report must not be taken for this run's.
        (folder / "report.json").unlink(missing_ok=True)
    ended = carried_out(given, environ)
    foreign.stop_imports()
    take_back_all(environ, "the tests")
    tidy(folder)
    report = read_report(folder)
    if report is None and ended.status == outputs.USAGE:
        # A folder that existed before is not ours to write to.
        report = explained(environ, ended.output, None if was_there else folder)
    final = outputs.final_status(ended.status, report)
    if doubt := outputs.doubt(final if ended.status else 0, report, folder):
        say(outputs.workflow_command("error", doubt))
        report = None
    if report:
        shown = surfaces(environ, folder, given.config)
        # The interpreter that has rendered them may have files that a test wrote.
        take_back_all(environ, "what renders the report")
        show(environ, *shown)
    upload = folder if folder.is_dir() and (report or not was_there) else None
    uploads = outputs.has_artifacts(environ.get("GITHUB_SERVER_URL", ""))
    if upload and not uploads:
        message = f"this server does not support upload-artifact v4: upload '{upload}' with a version that it supports."
        say(outputs.workflow_command("notice", message))
    write_outputs(environ, outputs.step_outputs(final, report, upload, uploads=uploads))
    return 0


def carried_out(given: RunArguments, environ: Mapping[str, str]) -> foreign.Ended:
    """Run the command in its runtime; reports are merged by the publisher."""
    if not given.runtime:
        argv = environment.publisher_argv(environ["PACKAGES"], fresh_folder(environ), given.argv)
        return foreign.run_recorded(argv, environ)
    if given.runtime == "container":
        return in_container(given, environ)
    return foreign.run_recorded([sys.executable, "-I", "-m", "ci_autotest", *given.argv], environ)


def take_back_all(environ: Mapping[str, str], who: str) -> None:
    """End the processes that foreign code left running, and discard what it wrote to the runner's files."""
    if left := foreign.end_orphans():
        say(outputs.workflow_command("warning", f"{who} left {left} processes running, which were ended."))
    if written := take_back(environ):
        say(outputs.workflow_command("warning", f"{who} wrote to {', '.join(written)}: that was discarded."))


def publish(environ: Mapping[str, str]) -> int:
    """Comment on the pull request, if there is one; if that fails, the step only warns."""
    name = environ.get("GITHUB_EVENT_NAME", "")
    if name not in outputs.COMMENT_EVENTS:
        say(f"No comment: the event '{name}' does not belong to a pull request.\n")
        return 0
    argv = environment.publisher_argv(environ["PACKAGES"], fresh_folder(environ), decoded(environ))
    with commands_stopped():
        done = subprocess.run(
            argv, env=dict(environ), check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        say(done.stdout)
    url = outputs.comment_url(done.stdout)
    if done.returncode != 0:
        message = "no comment was written: the log says why. The summary and the artifact have the report."
        say(outputs.workflow_command("warning", message))
    write_outputs(environ, {"comment-url": url})
    return 0


STEPS = {"plan": plan, "prepare": prepare, "install": install, "run": run, "publish": publish}


def main(argv: list[str], environ: Mapping[str, str]) -> int:
    """Carry out the step that ``argv`` names and return its exit status."""
    try:
        name = argv[1] if len(argv) > 1 else ""
        is_step = name in STEPS and "RUNNER_TEMP" in environ
        refuse("only a runner of GitHub calls this: run `ci-autotest` at a terminal.", when=not is_step)
        return STEPS[name](environ)
    except StepError as error:
        say(outputs.workflow_command("error", str(error)))
        return 2
