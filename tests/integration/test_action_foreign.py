"""Foreign code behind its wall, and what it leaves: processes, links."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from action import foreign
from tests.projects import wait_until

ROOT = Path(__file__).resolve().parents[2]
#: Leaves a process that has a session, a parent and a group of its own, as a daemon has; prints its number.
DAEMON = """
import os, sys, time
read, write = os.pipe()
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        print(os.getpid(), flush=True)
        os.write(write, b"printed")
        os.closerange(0, 3)
        time.sleep(600)
    os._exit(0)
os.wait()
os.read(read, 7)  # it is ended as soon as this process is gone
"""
#: Adopts, runs DAEMON, ends what it left, and prints how many that were.
PARENT = """
import subprocess, sys
sys.path.insert(0, sys.argv[1])
from action import foreign
foreign.adopt_orphans()
subprocess.run([sys.executable, "-c", sys.argv[2]], check=True)
print(foreign.end_orphans())
"""


def test_run_recorded__workflow_commands_in_both_streams__stand_behind_the_wall(
    capfd: pytest.CaptureFixture[str],
):
    code = "import sys; print('::error::forged', flush=True)\nsys.stderr.write('::add-path::/x'); sys.exit(7)"
    assert foreign.run_recorded([sys.executable, "-c", code], {"PATH": os.environ["PATH"]}).status == 7
    out, err = capfd.readouterr()
    assert re.fullmatch(r"::stop-commands::(\w{32})\n::error::forged\n::add-path::/x\n::\1::\n", out)
    assert err == ""


def test_run_recorded__output__is_printed_behind_the_wall_and_its_end_kept(capfd: pytest.CaptureFixture[str]):
    code = "import sys; print('x' * 100_000, flush=True); sys.stderr.write('::error::last\\n'); sys.exit(2)"
    ended = foreign.run_recorded([sys.executable, "-c", code], {"PATH": os.environ["PATH"]})
    assert (ended.status, len(ended.output), ended.output[-17:]) == (2, foreign.KEPT_BYTES, "xx\n::error::last\n")
    out, err = capfd.readouterr()
    assert re.fullmatch(r"::stop-commands::(\w{32})\nx{100000}\n::error::last\n\n::\1::\n", out)
    assert err == ""


def test_run_recorded__left_process_holds_the_pipe__is_not_waited_for():
    code = "import subprocess, sys; print(subprocess.Popen(['sleep', '600']).pid)"
    ended = foreign.run_recorded([sys.executable, "-c", code], {"PATH": os.environ["PATH"]})
    os.kill(int(ended.output), 0)  # it is still there
    os.kill(int(ended.output), signal.SIGKILL)
    assert ended.status == 0


@pytest.mark.heavy
def test_run_recorded__output_closed_before_the_end__is_waited_for():
    code = "import os, sys, time; os.closerange(1, 3); time.sleep(1); os._exit(5)"
    assert foreign.run_recorded([sys.executable, "-c", code], {"PATH": os.environ["PATH"]}) == (5, "")


def test_run_recorded__token_in_the_environment__does_not_arrive(capfd: pytest.CaptureFixture[str]):
    code = "import os; print([name for name in os.environ if 'TOKEN' in name or 'OUTPUT' in name or 'STEP' in name])"
    environ = {
        "PATH": os.environ["PATH"],
        "GITHUB_TOKEN": "s3cret",
        "GITHUB_OUTPUT": "x",
        "STEP_ARGUMENTS": "y",
    }
    foreign.run_recorded([sys.executable, "-c", code], environ)
    assert "\n[]\n" in capfd.readouterr().out


@pytest.mark.heavy
def test_run_recorded__interrupted__hands_the_interrupt_on_and_waits(tmp_path: Path):
    child = (
        "import pathlib, signal, sys, time\n"
        "signal.signal(signal.SIGINT, lambda *_: sys.exit(130))\n"
        f"pathlib.Path({str(tmp_path / 'ready')!r}).touch()\n"
        "time.sleep(60)"
    )
    parent = (
        "import os, signal, sys\nfrom action.foreign import run_recorded\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # a job in the background ignores it
        f"sys.exit(run_recorded([sys.executable, '-c', {child!r}], os.environ).status)"
    )
    with subprocess.Popen([sys.executable, "-c", parent], cwd=ROOT, stdout=subprocess.DEVNULL) as process:
        while not (tmp_path / "ready").exists():
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        try:
            assert process.wait(timeout=300) == 130
        finally:
            process.kill()


def test_end_orphans__daemon_of_a_test__is_ended():
    argv = [sys.executable, "-c", PARENT, str(ROOT), DAEMON]
    done = subprocess.run(argv, check=True, capture_output=True, text=True, timeout=60)
    pid, ended = done.stdout.split()
    assert ended == "1"
    assert wait_until(lambda: not Path("/proc", pid).exists(), 60)


def test_end_orphans__nothing_left__is_none():
    argv = [sys.executable, "-c", PARENT, str(ROOT), "pass"]
    assert subprocess.run(argv, check=True, capture_output=True, text=True, timeout=60).stdout == "0\n"


def test_forget_secrets__environment_that_the_process_was_started_with__has_none():
    code = (
        "import os, sys; sys.path.insert(0, sys.argv[1])\n"
        "from action import foreign\n"
        "foreign.forget_secrets(os.environ)\n"
        "import subprocess\n"
        "reader = 'import os; print(open(f\"/proc/{os.getppid()}/environ\").read())'\n"
        "subprocess.run([sys.executable, '-c', reader], check=True)"
    )
    environ = {"PATH": os.environ["PATH"], "GITHUB_TOKEN": "s3cret", "MY_PASSWORD": "s3cret", "KEPT": "plain"}
    argv = [sys.executable, "-I", "-c", code, str(ROOT)]
    shown = subprocess.run(argv, env=environ, check=True, capture_output=True, text=True, timeout=60).stdout
    assert ("KEPT=plain" in shown, "s3cret" in shown) == (True, False)


def test_foreign_environ__tokens_and_runner_files__are_withheld():
    environ = dict.fromkeys([*foreign.WITHHELD, "PATH", "GITHUB_SHA"], "x")
    assert foreign.foreign_environ(environ) == {"PATH": "x", "GITHUB_SHA": "x"}


def test_without_secrets__names_of_secrets__are_left_out():
    environ = dict.fromkeys(["GITHUB_TOKEN", "AWS_SECRET_ACCESS_KEY", "npm_password", "PATH", "GITHUB_ENV"], "x")
    assert foreign.without_secrets(environ) == {"PATH": "x", "GITHUB_ENV": "x"}


def test_stop_imports__file_that_is_written_afterwards__is_not_imported(tmp_path: Path):
    code = (
        "import sys; sys.path[:0] = sys.argv[1:3]\n"
        "from action import foreign\n"
        "foreign.stop_imports()\n"
        "open(sys.argv[2] + '/planted.py', 'w').write('print(1)')\n"
        "import planted"
    )
    argv = [sys.executable, "-c", code, str(ROOT), str(tmp_path)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout) == (1, "")
    assert "No module named 'planted'" in done.stderr


def test_drop_irregular__links_and_pipes__are_removed_and_named(tmp_path: Path):
    folder, secret = tmp_path / "report", tmp_path / "secret"
    (folder / "findings").mkdir(parents=True)
    secret.write_text("of the runner")
    (folder / "report.json").write_text("{}")
    (folder / "summary.md").symlink_to(secret)
    (folder / "findings" / "all").symlink_to(tmp_path)
    os.mkfifo(folder / "pipe")
    assert sorted(foreign.drop_irregular(folder)) == ["findings/all", "pipe", "summary.md"]
    assert sorted(path.name for path in folder.rglob("*")) == ["findings", "report.json"]
    assert secret.read_text() == "of the runner"
