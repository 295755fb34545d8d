"""Bytes that are not UTF-8, and damaged files, where a run meets them: it costs what is damaged, and the run goes on."""

from __future__ import annotations

import json
import os
import random
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.mutations import mutated
from tests.projects import HEAD, Project, outcomes

if TYPE_CHECKING:
    from collections.abc import Callable

#: Writes to every pipe that is open: a frame with a text that is none, first as a worker, then as a host.
BABBLE = """
import json
import os
import stat
import struct

WORKER = bytes([0x81, 0xA4]) + b"type" + bytes([0xA1, 0xFF])
HOST = b'[{"backward_failure":"' + bytes([0xFF]) + b'"}]'
FRAMES = (struct.pack("<4sI", bytes([0xC1]) + b"AT1", len(WORKER)) + WORKER, struct.pack("<II", len(HOST), 0) + HOST)


def babble(frame):
    for fd in range(3, 64):
        try:
            if stat.S_ISFIFO(os.fstat(fd).st_mode):
                os.write(fd, frame)
        except OSError:
            pass
"""
TESTS = """
@autotest(n=2, auto_backward=False)
def exp():
    return torch.exp(random_tensor(ndim=1, dim0=4))

@autotest(n=2, auto_backward=False)
def tanh():
    return torch.tanh(random_tensor(ndim=1, dim0=4))
"""
KERNELS = """
import torch
from babbling import FRAMES, babble

def exp(x):
    babble(FRAMES[0])
    return torch.Tensor.exp(x)

def tanh(x):
    return torch.Tensor.tanh(x)
"""
FRAMEWORK = """
import torch
from torch import *
from torch import nn
from babbling import FRAMES, babble

__version__, device, Tensor, autograd = "1", torch.device, torch.Tensor, torch.autograd

def exp(x):
    babble(FRAMES[1])
    return torch.exp(x)
"""
ENDS = """
import os
import torch

def exp(x):
    return torch.Tensor.exp(x) if x.numel() > 1 else os._exit(3)
"""
FAULT = "a fault of ci-autotest"
#: Commands on damaged files; more take minutes.
TIMES = 4


def with_kernels(project: Project) -> None:
    project.substitute({"torch.exp": "kernels.exp", "torch.tanh": "kernels.tanh"})
    project.write("kernels.py", KERNELS)


def with_framework(project: Project) -> None:
    project.configure(candidates=[{"name": "framework", "backend": "module", "module": "framework"}])
    project.write("framework.py", FRAMEWORK)


@pytest.mark.parametrize("candidate", [with_kernels, with_framework], ids=["worker", "host"])
def test_run__message_is_not_utf8__costs_its_cases_and_no_other(candidate: Callable[[Project], None], tmp_path: Path):
    project = Project(tmp_path)
    candidate(project)
    project.write("babbling.py", BABBLE)
    project.tests(TESTS)
    done = project.run()
    assert (done.status, FAULT in done.said) == (1, False), done.said
    found = {test: outcome for (test, _), outcome in outcomes(project.report()).items()}
    assert found == {"exp": "crashed", "tanh": "aligned"}, done.said


def test_run__cache_is_not_utf8__is_left_out_and_told(tmp_path: Path):
    project = Project(tmp_path)
    project.configure(candidates=[{"name": "torch", "backend": "torch"}])
    project.tests(TESTS)
    for name in ("durations.json", "findings/exp-000000/entry.json"):
        path = project.write(f".autotest/{name}", "")
        path.write_bytes(b'{"tests":{"\xff":{}}}')
    done = project.run()
    assert (done.status, done.err) == (0, ""), done.said
    told = [note for note in project.report()["notes"] if "is damaged" in note and "is left out" in note]
    assert [Path(note.partition(" is damaged")[0]).name for note in told] == ["durations.json", "entry.json"]
    assert project.run().status == 0


@pytest.mark.parametrize("name", [b"autotest_\xff.py", b"\xe9t\xe9/autotest_a.py"], ids=["file", "folder"])
def test_run__path_of_a_test_is_not_utf8__is_refused_and_the_others_run(name: bytes, tmp_path: Path):
    project = Project(tmp_path)
    project.configure(candidates=[{"name": "torch", "backend": "torch"}])
    project.tests(TESTS)
    path = Path(os.fsdecode(os.fsencode(tmp_path) + b"/autotests/" + name))
    path.parent.mkdir(exist_ok=True)
    path.write_text(HEAD + TESTS, encoding="utf-8")
    done = project.run()
    assert (done.status, done.err) == (1, ""), done.said
    (broken,) = project.report()["broken"]
    assert broken["test"] == f"autotests/{name.decode(errors='backslashreplace')}"
    assert broken["message"] == "does not import: its path is not UTF-8. Rename the file or the folder that it is in."
    assert set(outcomes(project.report()).values()) == {"aligned"}


def test_run__folder_is_not_utf8__is_refused(tmp_path: Path):
    folder = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff"))
    folder.mkdir()
    done = Project(folder).run()
    told = f"{tmp_path}/\\xff is not UTF-8. Rename that folder, or work in another.\n"
    assert (done.status, done.out, done.err) == (2, "", told)


def test_run__terminal_has_ascii_only__says_all_the_same(tmp_path: Path):
    project = Project(tmp_path)
    project.configure(candidates=[{"name": "torch", "backend": "torch"}])
    project.tests(TESTS)
    done = project.run(environ={"PYTHONIOENCODING": "ascii"})
    assert (done.status, done.err) == (0, ""), done.said


@pytest.mark.heavy
@pytest.mark.parametrize("command", ["run", "report", "replay", "list"])
def test_command__damaged_files__is_no_fault_of_ours(command: str, tmp_path: Path):
    whole = Project(tmp_path / "whole")
    whole.folder.mkdir()
    whole.substitute({"torch.exp": "kernels.exp"})
    whole.write("kernels.py", "def exp(x):\n    return x\n")
    whole.tests(TESTS)
    assert whole.run().status == 1
    (name,) = (path.name for path in (whole.folder / "autotest-report" / "findings").iterdir())
    saved, cache = Path("autotest-report/findings") / name, Path(".autotest")
    files = {
        "run": [path.relative_to(whole.folder) for path in (whole.folder / cache).rglob("*.*") if path.suffix],
        "report": [Path("autotest-report/report.json")],
        "replay": [saved / "program.json", saved / "tensors.safetensors"],
        "list": [Path("autotest.yml"), Path("autotests/autotest_all.py")],
    }[command]
    words = {"report": ("autotest-report", "--output", "merged"), "replay": (str(saved),)}.get(command, ())
    for number in range(TIMES):
        project = Project(tmp_path / str(number))
        shutil.copytree(whole.folder, project.folder)
        chance = random.Random(f"{command} {number}")  # noqa: S311 - damage
        file = project.folder / chance.choice(files)
        file.write_bytes(mutated(file.read_bytes(), chance))
        done = project.command(command, *words)
        assert (done.status in {0, 1, 2, 3, 4}, FAULT in done.said) == (True, False), f"{command} {number}: {done.said}"


@pytest.mark.heavy
def test_run__kept_program_cannot_be_printed__is_told_all_the_same(tmp_path: Path):
    project = Project(tmp_path)
    project.substitute({"torch.exp": "kernels.exp"})
    project.tests(TESTS)
    project.write("kernels.py", "import torch\n\ndef exp(x):\n    return torch.Tensor.exp(x) + 1\n")
    assert project.run().status == 1
    (program,) = (tmp_path / ".autotest" / "findings").glob("*/program.json")
    found = json.loads(program.read_bytes())
    found["note"] |= {"spellings": {"others.exp": ["torch.exp"]}, "renames": {"torch.exp": "others.exp"}}
    program.write_text(json.dumps(found), encoding="utf-8")
    # Only what the kept program was shrunk to is wrong by now, and ends its worker: nobody tells the program anew.
    project.write("kernels.py", ENDS)
    done = project.run()
    (finding,) = project.report()["findings"]
    assert (done.status, done.err, finding["operator"]) == (1, "", "torch.exp"), done.said
    assert "its program is not shown: it names 'others.exp', which no candidate" in finding["message"]
