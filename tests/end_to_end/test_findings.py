"""From a planted fault to a finding: outcome, operator, kind, blame, smallest program and repro; one run of all."""

from __future__ import annotations

import json
import shutil
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from safetensors.numpy import load_file

from tests.projects import Done, Project, finding_of, outcomes, processes, together, wait_until

if TYPE_CHECKING:
    from pathlib import Path

#: What is looked at is processes, signals or limits.
OWN_SERVER = True

MARK = "CI_AUTOTEST_FAULTS"
KERNELS = """
import ctypes
import os
import subprocess
import time

import torch


def softmax(x, dim, **rest):
    return torch.exp(x) / torch.exp(x).sum(dim, keepdim=True) * 1.01


class Tanh(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = torch.tanh(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, gradient):
        (y,) = ctx.saved_tensors
        return gradient * (1 - y)


def tanh(x):
    return Tanh.apply(x)


def cumsum(x, dim):
    raise RuntimeError("cumsum has no kernel")


def sigmoid(x):
    os.abort()


def relu(x, inplace=False):
    os._exit(0)


def sin(x):
    ctypes.string_at(0)


def cos(x):
    subprocess.Popen(["sleep", "600"])
    time.sleep(600)


def exp(x):
    return torch.Tensor.exp(x)
"""
RIGHT = """
import torch

softmax = torch.nn.functional.softmax
tanh = torch.tanh
cumsum = torch.cumsum
sigmoid = torch.sigmoid
relu = torch.nn.functional.relu
sin = torch.sin
cos = torch.cos
exp = torch.exp
"""
TESTS = """
@autotest(n=3)
def softmax():
    x = random_tensor(ndim=2) * 2
    return torch.nn.functional.softmax(x + 1, dim=1) - 1


@autotest(n=2)
def tanh():
    return torch.tanh(random_tensor(ndim=2) + 1)


@autotest(n=2)
def cumsum():
    return random_tensor(ndim=2).cumsum(0)


@autotest(n=2)
def sigmoid():
    return torch.sigmoid(random_tensor(ndim=2) * 2) + 1


@autotest(n=1)
def relu():
    return torch.nn.ReLU()(random_tensor(ndim=2) * 2)


@autotest(n=1)
def sin():
    return torch.sin(random_tensor(ndim=2))


@autotest(n=1)
def cos():
    return torch.cos(random_tensor(ndim=2)) + 1


@autotest(n=2)
def exp():
    return torch.exp(random_tensor(ndim=2))


@autotest(n=1)
def rejected():
    return torch.exp(torch.matmul(random_tensor(ndim=2, dim0=3, dim1=4), random_tensor(ndim=2, dim0=3, dim1=4)))
"""
#: Of each planted fault: target as the test spells it, kind, outcome, cases.
FAULTS = {
    "softmax": ("torch.nn.functional.softmax", "value", "misaligned", 3),
    "tanh": ("torch.tanh", "gradient", "misaligned", 2),
    "cumsum": ("torch.Tensor.cumsum", "error", "misaligned", 2),
    "sigmoid": ("torch.sigmoid", "crash", "crashed", 2),
    "relu": ("torch.nn.ReLU", "crash", "crashed", 1),
    "sin": ("torch.sin", "crash", "crashed", 1),
    "cos": ("torch.cos", "timeout", "timed_out", 1),
}
OPERATORS = {
    "softmax": "torch.nn.functional.softmax",
    "relu": "torch.nn.functional.relu",
    **{name: f"torch.{name}" for name in ("tanh", "cumsum", "sigmoid", "sin", "cos")},
}
EACH = pytest.mark.parametrize("name", FAULTS)


class Run:
    """The one run that all tests here look at."""

    def __init__(self, project: Project, done: Done) -> None:
        self.project, self.done = project, done
        self.report = project.report()
        self.output = project.folder / "autotest-report"

    def finding(self, name: str) -> dict[str, Any]:
        return finding_of(self.report, name)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    project = Project(tmp_path_factory.mktemp("faults"))
    replace = {f"torch.{name}": f"mykernels.{name}" for name in (*FAULTS, "exp")}
    project.configure(
        candidates=[
            {"name": "kernels", "backend": "substitute", "replace": replace},
            {"name": "torch", "backend": "torch"},
        ],
        case_timeout="2s",
    )
    project.write("mykernels.py", KERNELS)
    project.tests(TESTS)
    (project.folder / "temporary").mkdir()
    environ = {MARK: str(project.folder), "TMPDIR": str(project.folder / "temporary")}
    done = project.run("--workers", "2", environ=environ)
    assert done.status == 1, done.said
    return Run(project, done)


@EACH
def test_run__planted_fault__is_a_confirmed_finding_of_its_operator(name: str, run: Run):
    target, kind, outcome, cases = FAULTS[name]
    found = run.finding(name)
    keys = ("candidate", "operator", "target", "kind", "outcome", "blame", "confirmed", "repro_verified", "cases")
    assert {key: found[key] for key in keys} == {
        "candidate": "kernels", "operator": OPERATORS[name], "target": target, "kind": kind, "outcome": outcome,
        "blame": "candidate", "confirmed": True, "repro_verified": True, "cases": cases,
    }  # fmt: skip


@EACH
def test_run__planted_fault__its_kernel_is_named_by_file_and_line(name: str, run: Run):
    located = run.report["candidates"][0]["kernels"][OPERATORS[name]]
    assert located["file"] == "mykernels.py"
    assert KERNELS.splitlines()[located["line"] - 1].startswith(f"def {name}(")


@EACH
def test_run__planted_fault__is_shrunk_to_one_step(name: str, run: Run):
    found = run.finding(name)
    assert (found["shrunk"], found["steps"]) == (True, 1), found["program"]


@pytest.mark.parametrize("name", ["softmax", "tanh", "cumsum"])
def test_run__planted_fault__is_shrunk_to_one_element(name: str, run: Run):
    assert run.finding(name)["dims_max"] == 1, run.finding(name)["program"]


def test_run__planted_faults__are_the_outcomes_of_their_tests(run: Run):
    expected = {(name, "kernels"): outcome for name, (_, _, outcome, _) in FAULTS.items()}
    expected |= {(name, "torch"): "aligned" for name in FAULTS}
    expected |= {("exp", "kernels"): "aligned", ("exp", "torch"): "aligned"}
    expected |= {("rejected", "kernels"): "unsupported", ("rejected", "torch"): "aligned"}
    assert outcomes(run.report) == expected


def test_run__candidate_ends_its_process__every_case_of_the_others_is_there(run: Run):
    found = {item["test"].rpartition("::")[2]: item["cases"] for item in run.report["results"]
             if item["candidate"] == "torch"}  # fmt: skip
    assert {name: found[name]["aligned"] for name in FAULTS} == {name: cases for name, (*_, cases) in FAULTS.items()}


def test_run__findings__are_the_folders_and_nothing_else(run: Run):
    folders = {path.name: sorted(file.name for file in path.iterdir()) for path in (run.output / "findings").iterdir()}
    files = ["README.md", "program.json", "repro.py", "tensors.safetensors"]
    assert folders == {item["id"]: files for item in run.report["findings"]}


@EACH
def test_run__planted_fault__its_program_and_tensors_are_on_disk(name: str, run: Run):
    folder = run.output / "findings" / run.finding(name)["id"]
    program = json.loads((folder / "program.json").read_text("utf-8"))
    assert program["schema"] == "ci-autotest/program/1"
    placeholders = {step["target"] for step in program["body"] if step["op"] == "placeholder"}
    assert placeholders <= set(load_file(folder / "tensors.safetensors"))


@EACH
def test_run__planted_fault__is_told_at_the_end(name: str, run: Run):
    found = run.finding(name)
    assert found["message"] in run.done.out
    assert f"{OPERATORS[name]} on kernels" in found["message"]
    assert all(f"    {line}" in run.done.out for line in found["program"].splitlines())


@pytest.mark.parametrize(
    ("name", "ending"),
    [
        ("sigmoid", "ended by signal 6 (SIGABRT)"),
        ("relu", "ended with status 0"),
        ("sin", "ended by signal 11 (SIGSEGV)"),
        ("cos", "made no progress for 2 s and was ended"),
    ],
)
def test_run__candidate_ends_its_process__says_how(name: str, ending: str, run: Run):
    assert f"the worker {ending}" in run.finding(name)["message"]


@pytest.mark.parametrize(("name", "line"), [("sigmoid", "    os.abort()"), ("sin", "    ctypes.string_at(0)")])
def test_run__candidate_crashes__the_detail_says_where(name: str, line: str, run: Run):
    number = KERNELS.splitlines().index(line) + 1
    assert run.finding(name)["detail"] == f"mykernels.py, line {number} in {name}"


def test_run__after_crashes_and_a_hang__leaves_no_process_and_no_temporary_file(run: Run):
    left = [path.name for path in (run.project.folder / "temporary").iterdir() if path.name.startswith("ci-autotest")]
    # A process that was killed is gone when the system gets round to it.
    assert wait_until(lambda: processes(f"{MARK}={run.project.folder}") == [], 60)
    assert left == []


def test_run__repros__hold_no_path_of_this_machine(run: Run):
    scripts = {item["id"]: (run.output / item["repro"]).read_text("utf-8") for item in run.report["findings"]}
    assert [name for name, text in scripts.items() if str(run.project.folder) in text] == []


def moved(run: Run, folder: Path) -> Project:
    """Return the project somewhere else, as somebody has it who downloads an artifact into a checkout."""
    return Project(shutil.copytree(run.project.folder, folder / "elsewhere"))


def test_repro__of_a_value__is_1_then_0_once_fixed_then_2_without_the_module(run: Run, tmp_path: Path):
    project, finding = moved(run, tmp_path), run.finding("softmax")
    wrong = project.repro(finding)
    project.write("mykernels.py", RIGHT)
    right = project.repro(finding)
    (project.folder / "mykernels.py").unlink()
    missing = project.repro(finding)
    assert (wrong.status, right.status, missing.status) == (1, 0, 2), wrong.said + right.said + missing.said
    assert "misaligned: value of softmax: Mismatched elements: 1 / 1 (100.0%)" in wrong.out
    assert "the reference recomputed agrees with the values carried here" in wrong.out
    assert "aligned: value of softmax" in right.out
    assert missing.out == "cannot run: No module named 'mykernels'. Set PYTHONPATH to the folder that holds it.\n"


def test_repro__once_fixed__is_0(run: Run, tmp_path: Path):
    project = moved(run, tmp_path)
    project.write("mykernels.py", RIGHT)
    names = ("tanh", "cumsum", "relu", "cos")
    done = together(*(partial(project.repro, run.finding(name)) for name in names))
    assert {name: each.status for name, each in zip(names, done, strict=True)} == dict.fromkeys(names, 0), done


def test_repro__of_a_crash__survives_it(run: Run):
    done = run.project.repro(run.finding("sigmoid"))
    assert done.status == 1, done.said
    assert done.out.splitlines()[-2] == "misaligned: the candidate ended its process with status -6"
