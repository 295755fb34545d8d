"""What is said to the runner: its files, and the wall around foreign output."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from action import runner
from action.inputs import StepError

ROOT = Path(__file__).resolve().parents[3]


def test_write_outputs__values_of_many_lines__are_read_back_as_they_were(tmp_path: Path):
    file = tmp_path / "output"
    file.write_text("earlier=1\n")
    runner.write_outputs({"GITHUB_OUTPUT": str(file)}, {"a": "x\nb=forged", "c": ""})
    pattern = r"earlier=1\na<<(\S+)\nx\nb=forged\n\1\nc<<\1\n\n\1\n"
    assert re.fullmatch(pattern, file.read_text())


def test_write_outputs__twice__delimiters_differ(tmp_path: Path):
    file = tmp_path / "output"
    file.touch()
    for _ in range(2):
        runner.write_outputs({"GITHUB_OUTPUT": str(file)}, {"a": "x"})
    assert len(set(re.findall(r"<<(\S+)", file.read_text()))) == 2


def test_append__variable_not_set__says_where_it_runs():
    with pytest.raises(StepError) as raised:
        runner.append({}, "GITHUB_OUTPUT", "x")
    assert str(raised.value) == "GITHUB_OUTPUT is not set: this step runs under GitHub Actions only."


def test_append__link__is_not_followed(tmp_path: Path):
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_text("kept")
    link.symlink_to(target)
    with pytest.raises(StepError) as raised:
        runner.append({"GITHUB_OUTPUT": str(link)}, "GITHUB_OUTPUT", "x")
    assert str(raised.value) == (
        f"GITHUB_OUTPUT names '{link}', which cannot be written: it is a link, and a link is not followed."
    )
    assert target.read_text() == "kept"


@pytest.mark.parametrize(
    ("name", "reason"),
    [("absent", "No such file or directory"), (".", "Is a directory")],
    ids=["absent", "a folder"],
)
def test_append__cannot_be_written__says_why(tmp_path: Path, name: str, reason: str):
    path = tmp_path / name
    with pytest.raises(StepError) as raised:
        runner.append({"GITHUB_OUTPUT": str(path)}, "GITHUB_OUTPUT", "x")
    assert str(raised.value) == f"GITHUB_OUTPUT names '{path}', which cannot be written: {reason}."


def test_append__no_permission__says_so(tmp_path: Path):
    file = tmp_path / "output"
    file.touch(mode=0o444)
    # Root may write to every file, so the process gives its rights away once it has its imports.
    code = (
        "import os, sys\nfrom action import runner\n"
        "if os.geteuid() == 0: os.setresuid(65534, 65534, 65534)\n"
        "try: runner.append({'GITHUB_OUTPUT': sys.argv[1]}, 'GITHUB_OUTPUT', 'x')\n"
        "except runner.StepError as error: print(error)"
    )
    argv = [sys.executable, "-c", code, str(file)]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == f"GITHUB_OUTPUT names '{file}', which cannot be written: Permission denied.\n"


def test_run_foreign__workflow_commands_in_both_streams__stand_behind_the_wall(
    capfd: pytest.CaptureFixture[str],
):
    code = "import sys; print('::error::forged', flush=True)\nsys.stderr.write('::add-path::/x'); sys.exit(7)"
    assert runner.run_foreign([sys.executable, "-c", code], {"PATH": os.environ["PATH"]}) == 7
    out, err = capfd.readouterr()
    assert re.fullmatch(r"::stop-commands::(\w{32})\n::error::forged\n::add-path::/x\n::\1::\n", out)
    assert err == ""


def test_run_foreign__token_in_the_environment__does_not_arrive(capfd: pytest.CaptureFixture[str]):
    code = "import os; print([name for name in os.environ if 'TOKEN' in name or 'OUTPUT' in name])"
    environ = {
        "PATH": os.environ["PATH"],
        "GITHUB_TOKEN": "s3cret",
        "GITHUB_OUTPUT": "x",
        "INPUT_OUTPUT": "y",
    }
    runner.run_foreign([sys.executable, "-c", code], environ)
    assert "\n[]\n" in capfd.readouterr().out


def test_run_foreign__interrupted__hands_the_interrupt_on_and_waits(tmp_path: Path):
    child = (
        "import pathlib, signal, sys, time\n"
        "signal.signal(signal.SIGINT, lambda *_: sys.exit(130))\n"
        f"pathlib.Path({str(tmp_path / 'ready')!r}).touch()\n"
        "time.sleep(60)"
    )
    parent = (
        "import os, sys\nfrom action.runner import run_foreign\n"
        f"sys.exit(run_foreign([sys.executable, '-c', {child!r}], os.environ))"
    )
    process = subprocess.Popen([sys.executable, "-c", parent], cwd=ROOT, stdout=subprocess.DEVNULL)
    while not (tmp_path / "ready").exists():
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=30) == 130
