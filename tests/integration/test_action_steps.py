"""The steps of the action, one by one; together they run in ``end_to_end/test_action.py``."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from action import steps
from action.errors import StepError
from action.step_arguments import InstallArguments, RunArguments, encoded
from ci_autotest.version import VERSION
from tests.action_runner import parse_file_command

ROOT = Path(__file__).resolve().parents[2]
#: Has everything that a shell would obey.
HOSTILE = "; touch owned && $(id) `id` --privileged '\"\\ * ?"
#: Stands where the command line does: prints its arguments, writes a report and ends as it is told.
COMMAND = """
import json, os, pathlib, sys
print("argv", json.dumps(sys.argv[1:]))
print("::error::forged")
print(os.environ.get("SAID", ""))
report = json.loads(os.environ["REPORT"])
output = next((a.removeprefix("--output=") for a in sys.argv if a.startswith("--output=")), None)
if output and report is not None:
    folder = pathlib.Path(output); folder.mkdir(exist_ok=True)
    (folder / "report.json").write_text(json.dumps(report))
sys.exit(int(os.environ["STATUS"]))
"""

#: Stands where the publisher's command line does: prints its arguments, or a surface that is asked for.
PUBLISHER = """
import json, os, sys
def main():
    if sys.argv[1] == "render":
        sys.stdout.write("# Summary\\n" if sys.argv[3] == "summary" else "::error file=a::b\\n::add-mask::a\\n")
        sys.exit(int(os.environ.get("RENDER_STATUS", "0")))
    if sys.argv[1] == "ended":
        os.mkdir(sys.argv[3])
        with open(sys.argv[3] + "/report.json", "w") as file:
            json.dump({"summary": {"misaligned": 0, "findings": 0}, "exit_code": 2, "lines": sys.argv[4:]}, file)
        sys.exit(0)
    print("argv", json.dumps(sys.argv[1:]), *[name for name in os.environ if "TOKEN" in name])
    sys.exit(int(os.environ["STATUS"]))
"""


@dataclass(frozen=True)
class Job:
    """A job's folder with the runner's files, and an interpreter whose ci_autotest is COMMAND."""

    folder: Path
    python: Path

    @property
    def workspace(self) -> Path:
        return self.folder / "workspace"

    @property
    def outputs(self) -> str:
        return (self.folder / "output").read_text()

    @property
    def summary(self) -> str:
        return (self.folder / "summary").read_text()

    def command(self, argv: list[str], runtime: str = "python") -> RunArguments:
        """Return the arguments of the step `run`."""
        return RunArguments(
            argv=argv, runtime=runtime, report=str(self.workspace / "autotest-report"), config=[], device="", image="",
            container_options=[],
        )  # fmt: skip

    def step(self, name: str, **environ: str) -> subprocess.CompletedProcess[str]:
        given = {
            "GITHUB_OUTPUT": str(self.folder / "output"),
            "GITHUB_STEP_SUMMARY": str(self.folder / "summary"),
            "GITHUB_ENV": str(self.folder / "env"),
            "PACKAGES": str(self.folder / "packages"),
            "RUNNER_TEMP": str(self.folder),
            "STEP_ARGUMENTS": encoded(self.command(["run", "--output=autotest-report", "--"])),
        }
        return subprocess.run(
            [str(self.python), "-I", str(ROOT / "action"), name], cwd=self.workspace,
            env=given | environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, timeout=60,
        )  # fmt: skip


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("venv")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    (packages / "ci_autotest.py").write_text(COMMAND)
    return folder / "bin" / "python"


@pytest.fixture
def job(tmp_path: Path, python: Path) -> Job:
    (tmp_path / "workspace").mkdir()
    for name in ("output", "summary", "env"):
        (tmp_path / name).touch()
    (tmp_path / "packages" / "ci_autotest").mkdir(parents=True)
    (tmp_path / "packages" / "ci_autotest" / "__init__.py").touch()
    (tmp_path / "packages" / "ci_autotest" / "cli.py").write_text(PUBLISHER)
    return Job(tmp_path, python)


def report(exit_code: int = 0, misaligned: int = 0, findings: int = 0) -> str:
    return json.dumps({"summary": {"misaligned": misaligned, "findings": findings}, "exit_code": exit_code})


def output(job: Job, name: str) -> str:
    _, _, rest = job.outputs.partition(f"{name}<<")
    return rest.splitlines()[1]


def test_run__misaligned__writes_outputs_and_summary_and_does_not_fail(job: Job):
    argv = ["run", "--cases=; rm -rf /", "--output=autotest-report", "--"]
    done = job.step("run", STEP_ARGUMENTS=encoded(job.command(argv)), REPORT=report(1, 2, 3), STATUS="1")
    assert done.returncode == 0, done.stdout
    assert f"argv {json.dumps(argv)}" in done.stdout
    names = ("exit-status", "conclusion", "misaligned", "findings", "report-json", "artifact-dir")
    folder = job.workspace / "autotest-report"
    assert [output(job, name) for name in names] == [
        "1", "failure", "2", "3", str(folder / "report.json"), str(folder),
    ]  # fmt: skip
    assert job.summary == "# Summary\n"
    assert done.stdout.splitlines()[-1] == "::error file=a::b"


def test_run__enterprise_server__leaves_the_upload_to_its_caller(job: Job):
    done = job.step("run", REPORT=report(), STATUS="0", GITHUB_SERVER_URL="https://github.company.com")
    folder = str(job.workspace / "autotest-report")
    assert (output(job, "artifact-dir"), output(job, "upload")) == (folder, "")
    assert (
        f"::notice title=ci-autotest::this server does not support upload-artifact v4: upload '{folder}'" in done.stdout
    )


def test_run__green_command_without_a_report__is_not_green(job: Job):
    done = job.step("run", REPORT="null", STATUS="0")
    assert "::error title=ci-autotest::the command ended with 0, but wrote no report.json" in done.stdout
    assert (output(job, "exit-status"), output(job, "artifact-dir")) == ("2", "")


def test_run__report_of_an_earlier_run__does_not_pass_for_this_one(job: Job):
    folder = job.workspace / "autotest-report"
    folder.mkdir()
    (folder / "report.json").write_text(report())
    job.step("run", REPORT="null", STATUS="2")
    assert (
        output(job, "exit-status"),
        output(job, "report-json"),
        output(job, "artifact-dir"),
    ) == ("2", "", "")


def test_run__usage__says_why_in_the_annotation_and_in_a_report(job: Job):
    said = "\x1b[31mno candidate\x1b[0m\n--help\ncases 0 is less than 1."
    done = job.step("run", REPORT="null", STATUS="2", SAID=said)
    told = [line for line in done.stdout.splitlines() if line.startswith("::error title=ci-autotest::")]
    assert len(told) == 1, done.stdout
    assert told[0].startswith("::error title=ci-autotest::ci-autotest ended with 2 before it compared anything:%0A")
    assert told[0].endswith("%0Ano candidate%0A--help%0Acases 0 is less than 1.")
    folder = job.workspace / "autotest-report"
    assert json.loads((folder / "report.json").read_text())["lines"][-3:] == [
        "no candidate", "--help", "cases 0 is less than 1.",
    ]  # fmt: skip
    names = ("exit-status", "conclusion", "report-json", "upload")
    assert [output(job, name) for name in names] == ["2", "usage", str(folder / "report.json"), str(folder)]
    assert job.summary == "# Summary\n"


def test_run__report_that_says_otherwise__is_not_green(job: Job):
    done = job.step("run", REPORT=report(1, 1, 1), STATUS="0")
    assert (output(job, "exit-status"), output(job, "report-json"), job.summary) == ("2", "", "")
    assert "report.json' says 1: something else wrote it. The report is not shown" in done.stdout


def test_run__report_that_says_green_after_a_failure__is_not_shown_and_changes_nothing(job: Job):
    job.step("run", REPORT=report(0), STATUS="1")
    assert (output(job, "exit-status"), output(job, "misaligned"), job.summary) == ("1", "", "")


def test_run__surface_that_cannot_be_made__warns_and_goes_on(job: Job):
    done = job.step("run", REPORT=report(), STATUS="0", RENDER_STATUS="70")
    assert "::warning title=ci-autotest::the summary of " in done.stdout
    assert output(job, "exit-status") == "0"


def test_run__tests_write_to_the_runners_files__is_discarded_and_said(job: Job):
    (job.folder / "env").write_text("BASH_ENV=/tmp/evil\n")
    (job.folder / "output").write_text("exit-status<<never closed\n0\n")
    done = job.step("run", REPORT=report(1), STATUS="1")
    assert "the tests wrote to GITHUB_ENV, GITHUB_OUTPUT: that was discarded." in done.stdout
    assert ((job.folder / "env").read_text(), output(job, "exit-status")) == ("", "1")


#: Stands where files that a test wrote into the interpreter's folders do: it runs whenever a report is rendered.
TRAP = """
import os, sys, time
def main():
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.closerange(0, 3)
            for _ in range(400):
                with open(os.environ["TRAP"], "a") as file:
                    file.write("exit-status=0\\nconclusion=success\\n")
                time.sleep(0.01)
        os._exit(0)
    sys.stdout.write("# Forged\\n")
"""


def test_run__what_renders_the_report_is_of_a_test__has_no_say_in_the_verdict(job: Job):
    (job.folder / "packages" / "ci_autotest" / "cli.py").write_text(TRAP)
    done = job.step("run", REPORT=report(1, 2, 3), STATUS="1", TRAP=str(job.folder / "output"))
    assert "what renders the report left" in done.stdout
    assert (output(job, "exit-status"), output(job, "conclusion")) == ("1", "failure")
    assert "=" not in "".join(line for line in job.outputs.splitlines() if line.startswith(("exit", "conclusion")))


def test_run__link_in_the_report__is_not_uploaded(job: Job):
    folder = job.workspace / "autotest-report"
    folder.mkdir()
    (folder / "summary.md").symlink_to("/etc/hostname")
    done = job.step("run", REPORT=report(), STATUS="0")
    assert "had 1 entries that are links or other special files; they were removed: summary.md" in done.stdout
    assert [path.name for path in folder.iterdir()] == ["report.json"]


@pytest.mark.parametrize("name", ["", "absent", "."], ids=["not set", "missing", "a folder"])
def test_run__no_summary_file__warns_and_goes_on(job: Job, name: str):
    done = job.step("run", REPORT=report(), STATUS="0", GITHUB_STEP_SUMMARY=str(job.folder / name) if name else "")
    assert "::warning title=ci-autotest::the summary is not shown: " in done.stdout
    assert output(job, "exit-status") == "0"


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("", "GITHUB_OUTPUT is not set: this step runs under GitHub Actions only."),
        ("absent", "which cannot be written: No such file or directory."),
        (".", "which cannot be written: Is a directory."),
    ],
    ids=["not set", "missing", "a folder"],
)
def test_run__no_output_file__fails_and_says_so(job: Job, name: str, reason: str):
    done = job.step("run", REPORT=report(), STATUS="0", GITHUB_OUTPUT=str(job.folder / name) if name else "")
    assert done.returncode == 2
    assert reason in done.stdout.splitlines()[-1]


def test_run__link_in_the_place_of_the_outputs__is_not_followed(job: Job):
    (job.folder / "target").write_text("kept")
    (job.folder / "output").unlink()
    (job.folder / "output").symlink_to(job.folder / "target")
    job.step("run", REPORT=report(1), STATUS="1")
    assert ((job.folder / "target").read_text(), (job.folder / "output").is_symlink()) == ("kept", False)
    assert output(job, "exit-status") == "1"


def test_run__workflow_command_in_foreign_output__stands_behind_the_wall(job: Job):
    lines = job.step("run", REPORT=report(), STATUS="0").stdout.splitlines()
    token = lines[0].removeprefix("::stop-commands::")
    assert lines.index("::error::forged") < lines.index(f"::{token}::")


def test_run__mode_report__merges_with_the_publishers_command(job: Job):
    argv = ["report", "--output=autotest-report", "--", "a", "b"]
    done = job.step("run", STEP_ARGUMENTS=encoded(job.command(argv, runtime="")), STATUS="0")
    assert f"argv {json.dumps(argv)}" in done.stdout


#: Stands where the docker client does: notes each call, and finds no GPU.
DOCKER = """#!{python}
import os, sys
with open("{folder}/calls", "a") as file:
    print(sys.argv[1:], "STEP_ARGUMENTS" in os.environ, file=file)
sys.exit(1 if "--gpus=all" in sys.argv else 0)
"""


def test_run__container__gets_its_options_and_arguments_as_they_are_and_is_removed(job: Job):
    docker = job.folder / "docker"
    docker.write_text(DOCKER.format(python=sys.executable, folder=job.folder))
    docker.chmod(0o755)
    argv = ["run", "--set=known=; a", "--output=autotest-report", "--", HOSTILE]
    command = replace(
        job.command(argv, "container"), device="auto", image="a:b", container_options=["--shm-size=2g", "--env=A=b c"]
    )
    done = job.step("run", STEP_ARGUMENTS=encoded(command), PATH=str(job.folder))
    calls = [line.rpartition(" ") for line in (job.folder / "calls").read_text().splitlines()]
    assert [known for *_, known in calls] == ["False"] * 4, done.stdout
    proof, removal, run, again = (ast.literal_eval(call) for call, *_ in calls)
    assert ("--gpus=all" in proof, removal[:2], again) == (True, ["rm", "--force"], removal)
    assert run[-9:] == ["--shm-size=2g", "--env=A=b c", "--entrypoint=ci-autotest", "a:b", *argv]


def test_publish__push__does_not_start_the_command(job: Job):
    done = job.step("publish", GITHUB_EVENT_NAME="push", STATUS="0")
    assert done.stdout == "No comment: the event 'push' does not belong to a pull request.\n"


def test_publish__command_fails__warns_and_fails_nothing(job: Job):
    words = ["comment", "--when=failures", "--run-id=7"]
    environ = {"GITHUB_EVENT_NAME": "pull_request", "GITHUB_TOKEN": "s3cret", "STEP_ARGUMENTS": json.dumps(words)}
    done = job.step("publish", **environ, STATUS="2")
    assert done.returncode == 0
    assert f"argv {json.dumps(words)} GITHUB_TOKEN" in done.stdout
    assert "::warning title=ci-autotest::no comment was written" in done.stdout
    assert output(job, "comment-url") == ""


REFUSED = [
    ({"INPUT_COMMENT": "never"}, "the input 'comment' is 'never': give one of failures, changes, always, off."),
    ({"INPUT_FAIL_ON": "nothing"}, "the input 'fail-on' is 'nothing': give one of misaligned, new, never"),
    ({"INPUT_OPTIONS": "--strictnes=ulp"}, "the input 'options' has '--strictnes=ulp', which is no option here: did"),
    ({"INPUT_OPTIONS": "--json"}, "the input 'options' has '--json', which the action decides: remove it."),
    (
        {"INPUT_OPTIONS": "--seed=3"},
        "the input 'options' has '--seed=3', which is no option here: did you mean the input",
    ),
    (
        {"INPUT_OPTIONS": "--torch=maybe"},
        "the input 'options' has '--torch=maybe', but 'maybe' does not exist: give one",
    ),
    ({"INPUT_OPTIONS": "--workers=2\n--workers=3"}, "the input 'options' has '--workers=3', but another line sets"),
    (
        {"INPUT_OPTIONS": "--config=a.yml", "INPUT_MODE": "report", "INPUT_RUN_ID": "7"},
        "the input 'options' has '--config=a.yml', but mode 'report' runs no test: remove it.",
    ),
    (
        {"INPUT_COMMENT": "off", "INPUT_MODE": "report", "INPUT_RUN_ID": "7"},
        "the input 'comment' is 'off', but without 'paths' mode 'report' only publishes",
    ),
    (
        {"INPUT_RUNTIME": "container", "INPUT_IMAGE": "a:b", "INPUT_INSTALL": "scipy"},
        "the input 'install' has no effect in the container",
    ),
    (
        {"INPUT_RUNTIME": "container", "INPUT_IMAGE": "a:b", "INPUT_CONTAINER_OPTIONS": "--privileged"},
        "the input 'container-options' holds '--privileged'",
    ),
    ({"INPUT_OUTPUT": "."}, "the input 'output' is '"),
    ({"INPUT_OUTPUT": ".."}, "the input 'output' is '"),
    ({"INPUT_ARTIFACT_NAME": "a:b"}, "the input 'artifact-name' is 'a:b': use letters, digits"),
]


@pytest.mark.parametrize(("given", "said"), REFUSED, ids=[next(iter(given)) for given, _ in REFUSED])
def test_plan__input_that_cannot_be_meant__hands_on_nothing(job: Job, given: dict[str, str], said: str):
    done = job.step("plan", **given, PATH=os.environ["PATH"])
    assert (done.returncode, job.outputs) == (2, ""), done.stdout
    assert done.stdout.startswith(f"::error title=ci-autotest::{said}")
    assert not list(job.folder.glob("ci-autotest-*"))


def plan(job: Job, **given: str) -> dict[str, str]:
    done = job.step("plan", **given, PATH=os.environ["PATH"])
    assert done.returncode == 0, done.stdout
    return parse_file_command(job.outputs)


def test_plan__job_with_tests__hands_each_step_its_own_arguments(job: Job):
    install = f"--index-url https://user:word@index.test\n{HOSTILE}"
    found = plan(job, INPUT_PATHS=HOSTILE, INPUT_INSTALL=install, INPUT_OPTIONS="--set=known=; a\n--torch=cpu", JOB="t")
    given = InstallArguments(
        runtime="python", torch="cpu", packages=["--index-url", "https://user:word@index.test", HOSTILE], names=[]
    )
    command = job.command(["run", "--set=known=; a", "--output=autotest-report", "--", HOSTILE])
    assert found == {
        "task": "run", "python": str(job.python), "image": "", "cache-key": "", "cache-folder": "",
        "install": encoded(given), "installs": "true", "run": encoded(command),
        "artifact": "ci-autotest-report-t", "comment": "",
    }  # fmt: skip
    assert (job.folder / steps.TESTED).exists()


def test_plan__job_that_publishes__has_the_arguments_of_the_comment_and_none_of_an_installation(job: Job):
    found = plan(job, INPUT_MODE="report", INPUT_RUN_ID="7", INPUT_INSTALL="scipy")
    words = [
        "comment", "--when=failures", "--name=ci-autotest", "--artifact-name=ci-autotest-report",
        "--baseline=auto-if-any", "--run-id=7", "--output=autotest-report",
    ]  # fmt: skip
    assert (found["task"], json.loads(found["comment"]), found["installs"]) == ("publish", words, "")
    assert json.loads(found["install"])["packages"] == []
    assert not (job.folder / steps.TESTED).exists()


def test_plan__job_that_merges__comments_on_the_report_that_it_writes(job: Job):
    found = plan(job, INPUT_MODE="report", INPUT_PATHS="a\nb", INPUT_OUTPUT="merged")
    assert (found["task"], json.loads(found["comment"])[-2:]) == ("merge", ["--", str(job.workspace / "merged")])
    assert json.loads(found["run"])["argv"] == ["report", "--output=merged", "--", "a", "b"]


@pytest.mark.parametrize("cache", ["true", "false"])
def test_plan__hosted_runner__keeps_downloads_unless_told(job: Job, cache: str):
    found = plan(job, RUNNER_ENVIRONMENT="github-hosted", INPUT_OPTIONS=f"--cache={cache}")
    kept = str(job.folder / "ci-autotest-pip") if cache == "true" else ""
    assert (found["cache-key"] != "", found["cache-folder"]) == (cache == "true", kept)
    assert json.loads(found["install"])["cache"] == kept


@pytest.mark.parametrize("given", [{"INPUT_INSTALL": "."}, {}], ids=["with the input install", "without it"])
def test_plan__host_of_another_version__is_refused_unless_install_brings_it(job: Job, given: dict[str, str]):
    if given:
        assert json.loads(plan(job, INPUT_RUNTIME="host", **given)["install"])["runtime"] == "host"
        return
    done = job.step("plan", INPUT_RUNTIME="host", PATH=os.environ["PATH"])
    assert (done.returncode, "cannot import ci_autotest" in done.stdout, job.outputs) == (2, True, "")


def test_plan__interpreter_too_old__says_which_is_needed(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(steps, "OLDEST_PYTHON", (99, 0))
    with pytest.raises(StepError, match=r"set the input 'python' to Python 3\.10 or newer"):
        steps.plan({})


def test_make_environment__in_a_callers_environment__imports_its_packages(job: Job):
    # `python` is an environment with a package of its own: `--system-site-packages` does not show it.
    code = (
        "import os, pathlib, subprocess, sys; sys.path.insert(0, sys.argv[1])\n"
        "from action import environment\n"
        "made = environment.make_environment(pathlib.Path(sys.argv[2]), os.environ)\n"
        "find = 'import importlib.util as u; print(u.find_spec(\"ci_autotest\").origin)'\n"
        "subprocess.run([made, '-I', '-c', find], check=True)"
    )
    argv = [str(job.python), "-I", "-c", code, str(ROOT), str(job.folder / "made")]
    done = subprocess.run(argv, check=True, capture_output=True, text=True, timeout=120)
    assert done.stdout.splitlines()[-1] == str(
        next(job.python.parents[1].glob("lib/*/site-packages")) / "ci_autotest.py"
    )


#: A package of the checkout: its build looks for secrets in the processes above it, tries to set a variable for the
#: later steps, and leaves a process behind. The wheel has a `ci_autotest` of the version in VERSION.
PROJECT = '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
BACKEND = """
import os, pathlib, subprocess, zipfile
def environments(pid):
    while pid > 1:
        try:
            yield pathlib.Path(f"/proc/{pid}/environ").read_text(errors="replace")
        except OSError:
            return
        pid = int(pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
def build_wheel(folder, settings=None, metadata=None):
    folder_of_job = pathlib.Path.cwd().parent
    (folder_of_job / "seen").write_text("\\n".join(environments(os.getpid())))
    (folder_of_job / "env").write_text("BASH_ENV=/tmp/evil")
    subprocess.Popen(["sleep", "600"], start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    name = "kernels-1.0-py3-none-any.whl"
    with zipfile.ZipFile(pathlib.Path(folder, name), "w") as wheel:
        wheel.writestr("ci_autotest/__init__.py", "")
        wheel.writestr("ci_autotest/version.py", f"VERSION = {os.environ['VERSION']!r}")
        wheel.writestr("kernels-1.0.dist-info/METADATA", "Metadata-Version: 2.1\\nName: kernels\\nVersion: 1.0\\n")
        wheel.writestr("kernels-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        wheel.writestr("kernels-1.0.dist-info/RECORD", "")
    return name
"""


@pytest.mark.parametrize(("version", "status"), [(VERSION, 0), ("0.0.1", 2)])
def test_install__build_of_the_checkout_on_a_host__sees_no_secret_leaves_nothing_and_then_the_version_is_checked(
    job: Job, version: str, status: int
):
    subprocess.run([sys.executable, "-m", "venv", str(job.folder / "venv")], check=True)
    (job.workspace / "pyproject.toml").write_text(PROJECT)
    (job.workspace / "backend.py").write_text(BACKEND)
    arguments = encoded(InstallArguments(runtime="host", packages=["."], names=[]))
    given = {"STEP_ARGUMENTS": arguments, "DEPLOY_TOKEN": "s3cret", "VERSION": version, "KEPT": "plain"}
    python = job.folder / "venv" / "bin" / "python"
    done = Job(job.folder, python).step("install", **given, PATH=os.environ["PATH"])
    seen = (job.folder / "seen").read_text()
    # The processes above the step are the test's own and have neither variable.
    assert ("KEPT=plain" in seen, "s3cret" in seen) == (True, False)
    assert done.returncode == status, done.stdout
    assert "the installation left 1 processes running, which were ended." in done.stdout
    assert "the installation wrote to GITHUB_ENV: that was discarded." in done.stdout
    assert (job.folder / "env").read_text() == ""
    assert (f"has version 0.0.1, and this action is version {VERSION}" in done.stdout) is (status != 0)


def test_plan__report_in_a_job_that_has_run_tests__is_refused(job: Job):
    (job.folder / steps.TESTED).touch()
    done = job.step("plan", INPUT_MODE="report", INPUT_RUN_ID="7", PATH=os.environ["PATH"])
    assert (done.returncode, "this job has run tests, so it does not comment" in done.stdout) == (2, True), done.stdout
    assert job.outputs == ""


def checkout(folder: Path) -> str:
    folder.mkdir(exist_ok=True)
    identity = ["-c", "user.name=test", "-c", "user.email=test@example.org", "-c", "commit.gpgsign=false"]
    for argv in (["init", "--quiet"], ["commit", "--quiet", "--allow-empty", "--message", "Kernels"]):
        subprocess.run(["git", *identity, *argv], cwd=folder, check=True)
    return subprocess.run(["git", "rev-parse", "HEAD"], cwd=folder, check=True, capture_output=True, text=True).stdout


@pytest.mark.parametrize(
    ("event", "place", "named"),
    [
        ("pull_request_target", ".", {}),
        ("pull_request_target", "head", {"INPUT_PATHS": "head/tests"}),
        ("issue_comment", "head", {"INPUT_CONFIG": "head/autotest.yml"}),
    ],
)
def test_plan__head_of_a_pull_request_with_the_rights_of_its_base__is_refused(
    job: Job, event: str, place: str, named: dict[str, str]
):
    commit = checkout(job.workspace / place).strip()
    environ = {"GITHUB_EVENT_NAME": event, "GITHUB_SHA": "5f" * 20, **named}
    done = job.step("plan", **environ, PATH=os.environ["PATH"])
    assert done.returncode == 2
    assert f"has commit {commit}, not the base branch's" in done.stdout
    assert not list(job.folder.glob("ci-autotest-*"))


def test_refuse_foreign_head__base_branch_is_checked_out__is_let_through(job: Job, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(job.workspace)
    environ = {"GITHUB_EVENT_NAME": "pull_request_target", "GITHUB_SHA": checkout(job.workspace).strip()}
    steps.refuse_foreign_head(environ)
    with pytest.raises(StepError):
        steps.refuse_foreign_head({**environ, "GITHUB_SHA": "5f" * 20})


@pytest.mark.parametrize("argv", [[], ["plan"], ["plam"]])
def test_step__outside_of_a_runner__is_refused_in_a_sentence(argv: list[str]):
    done = subprocess.run(
        [sys.executable, "-I", str(ROOT / "action"), *argv], env={"PATH": os.environ["PATH"]}, capture_output=True,
        text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (2, "")
    assert "only a runner of GitHub calls this: run `ci-autotest` at a terminal." in done.stdout
