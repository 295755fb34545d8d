"""What is said to the runner: its files, and the wall around foreign output."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from action import runner
from action.errors import StepError

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
        f"GITHUB_OUTPUT names '{link}', which cannot be written: it is a link, which is not followed."
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


def files(folder: Path) -> dict[str, str]:
    """Return the runner's files, made as it makes them."""
    for variable in runner.FILES:
        (folder / variable).touch()
    return {variable: str(folder / variable) for variable in runner.FILES}


def test_take_back__files_that_foreign_code_wrote__are_emptied_and_named(tmp_path: Path):
    environ = files(tmp_path)
    (tmp_path / "GITHUB_ENV").write_text("BASH_ENV=/tmp/evil\n")
    (tmp_path / "GITHUB_OUTPUT").write_text("exit-status<<EOF\n0\n")
    assert runner.take_back(environ) == ["GITHUB_ENV", "GITHUB_OUTPUT"]
    assert [path.read_text() for path in tmp_path.iterdir()] == [""] * len(runner.FILES)


def test_take_back__link_or_pipe_in_the_place_of_a_file__is_replaced(tmp_path: Path):
    environ = files(tmp_path)
    (tmp_path / "target").write_text("BASH_ENV=/tmp/evil\n")
    for name in ("GITHUB_ENV", "GITHUB_PATH"):
        (tmp_path / name).unlink()
    (tmp_path / "GITHUB_ENV").symlink_to(tmp_path / "target")
    os.mkfifo(tmp_path / "GITHUB_PATH")
    assert runner.take_back(environ) == ["GITHUB_ENV", "GITHUB_PATH"]
    assert [(tmp_path / name).read_text() for name in ("GITHUB_ENV", "GITHUB_PATH")] == ["", ""]
    assert (tmp_path / "target").read_text() == "BASH_ENV=/tmp/evil\n"


def test_take_back__nothing_written__is_nothing(tmp_path: Path):
    assert runner.take_back({**files(tmp_path), "GITHUB_STATE": str(tmp_path / "absent"), "GITHUB_PATH": ""}) == []
