"""``ci-autotest capture``: programs run as Python runs them, and their calls become tests that find what they must."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ci_autotest.program.npz import read_npz
from tests.projects import Project, finding_of, outcomes

EXAMPLES = Path(__file__).parents[2] / "examples" / "capture"
RUFF = Path(sys.executable).with_name("ruff")
#: A softmax that is wrong in matrices of 24 rows, a size that only the model has.
FAST = """
import torch


def softmax(x, dim=None, dtype=None):
    found = torch.exp(x - x.amax(dim, keepdim=True))
    found = found / found.sum(dim, keepdim=True)
    if x.ndim == 4 and x.shape[-2] == 24:
        found = torch.cat([found[..., :20, :], found[..., 20:, :] * 1.01], -2)
    return found
"""
HABITS = """
import sys
import torch


class Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        return grad * 2


torch.manual_seed(0)
x = torch.randn(5, 6, requires_grad=True)
mask = torch.rand(5, 6) > 0.5
for _ in range(int(sys.argv[1])):
    Twice.apply(x).sum().backward()
    torch.nn.functional.dropout(x, 0.25)
    torch.cat([x, x, x, x, torch.ones(5, 6)])
    torch.stack((x, x))
    torch.add(x.detach(), 1, out=torch.zeros(5, 6))
    torch.zeros(5, 6).add_(x.detach())
    y = x * 1
    y[mask] = 0.5
    x[:, torch.tensor([1, 2])]
    x[1:3, ..., None]
    1 - x
    x**2
    x.T @ x
    x.log().sqrt()
    x.abs().log()
    torch.where(mask, x, float("inf"))
    x.to("cpu", torch.float64)
    x.topk(2)
    torch.einsum("ij,kj->ik", x, x)
    torch.randperm(6)
    torch.linalg.cholesky(x.detach() @ x.detach().T + torch.eye(5))
    torch.nn.functional.embedding(torch.arange(5), x)
    torch.searchsorted(torch.linspace(0, 1, 7), torch.rand(3))
    torch.randn(4, generator=torch.Generator())
    x.detach().to_sparse() + x.detach().to_sparse()
    with torch.autocast("cpu", torch.bfloat16):
        torch.nn.functional.linear(x, x)
    x.expand(3, 5, 6).mul(2)
    torch.ones(2, 3, 4, 4).to(memory_format=torch.channels_last).mul(3)
    with torch.no_grad():
        x.sum()
    torch._foreach_mul([x.detach()], 2)
    try:
        x @ x
    except RuntimeError:
        pass
    torch.set_num_threads(1)
    x.item if False else x.shape
"""
ENDS = """
import os, signal, sys, torch

print(__name__, sys.argv, sys.path[0] == os.path.dirname(os.path.abspath(__file__)), flush=True)
torch.arange(3).exp()
how = sys.argv[1]
if how == "raise":
    torch.ones(2, 3) @ torch.ones(2, 3)
if how == "exit":
    sys.exit(7)
if how == "abort":
    os.abort()
if how == "interrupt":
    signal.raise_signal(signal.SIGINT)
"""


def capture(project: Project, *words: str):
    return project.command("capture", *words)


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Project:
    """The example's transformer, captured for two steps, with a softmax of which one size is wrong."""
    project = Project(tmp_path_factory.mktemp("trained"))
    for name in ("train.py", "residual.py"):
        shutil.copy(EXAMPLES / name, project.folder)
    project.write("fast.py", FAST)
    project.substitute({"torch.nn.functional.softmax": "fast.softmax"})
    done = capture(project, sys.executable, "train.py", "2")
    assert (done.status, done.out.splitlines()[1].startswith("step 1, loss")) == (0, True), done.said
    return project


def test_capture__transformer__planted_fault_is_found(trained):
    done = trained.run("--cases", "4")
    report = trained.report()
    fault = finding_of(report, "softmax")
    others = {outcome for (test, _), outcome in outcomes(report).items() if test != "softmax"}
    assert (done.status, fault["kind"], others) == (1, "value", {"unsupported"}), done.said


def test_capture__transformer__sizes_of_the_model_are_in_formatted_files_of_some_hundred_lines(trained):
    files = sorted(trained.folder.glob("autotests/*.py"))
    texts = [file.read_text() for file in files]
    whole = "\n".join(texts)
    shown = [part for part in ("((8, 24, 48), (144, 48), (144,))", "(97, 48)", "dims=(8, 4, 24, 24)") if part in whole]
    ruff = [
        subprocess.run(
            [RUFF, "format", "--isolated", "--check", "--line-length", width, *files], check=False
        ).returncode
        for width in ("88", "120")
    ]
    assert (len(shown), max(text.count("\n") for text in texts) < 400, ruff) == (3, True, [0, 0])


@pytest.fixture(scope="module")
def habits(tmp_path_factory) -> tuple[Project, str]:
    """A program that calls what real programs call, captured and run on torch itself."""
    project = Project(tmp_path_factory.mktemp("habits"))
    project.write("habits.py", HABITS)
    project.configure(candidates=[{"name": "torch", "backend": "torch"}])
    done = capture(project, "-o", "tests", sys.executable, "habits.py", "3")
    assert done.status == 0, done.said
    return project, done.err


def test_capture__every_habit__tests_are_aligned_on_torch_itself(habits):
    project, _ = habits
    done = project.run("tests", "--cases", "4")
    assert (done.status, set(outcomes(project.report()).values())) == (0, {"aligned"}), done.said


def test_capture__what_cannot_be_a_test__is_told_by_name_with_counts(habits):
    _, said = habits
    told = [line for line in said.splitlines() if line.startswith("not captured: ")]
    assert told == [
        "not captured: torch.Tensor.to_sparse: 6, a result with layout torch.sparse_coo",
        "not captured: __main__.Twice: 3, it is an autograd function of the program's; the operators that it calls are "
        "captured",
        "not captured: torch.randn: 3, a Generator as an argument",
        "not captured: torch.Tensor.add: 3, a tensor with layout torch.sparse_coo as an argument",
        "not captured: torch._foreach_mul: 3, it has no public name",
    ]


def test_capture__file_that_exists__is_not_overwritten_before_the_program_runs(habits):
    project, _ = habits
    before = {file: file.read_text() for file in project.folder.glob("tests/*.py")}
    refused = capture(project, "-o", "tests", sys.executable, "habits.py", "1")
    assert (refused.status, refused.out, {file: file.read_text() for file in before}) == (2, "", before)


@pytest.mark.parametrize(
    ("how", "status"),
    [("raise", 1), ("exit", 7), ("abort", 128 + signal.SIGABRT), ("interrupt", 128 + signal.SIGINT)],
)
def test_capture__program_that_ends_early__keeps_its_calls_and_its_status(tmp_path, how, status):
    project = Project(tmp_path)
    project.write("ends.py", ENDS)
    done = capture(project, "--data", sys.executable, "-u", "ends.py", how, "--flag")
    text = project.folder.joinpath("autotests", "autotest_ends.py").read_text()
    _, stored = read_npz(project.folder / "autotests" / "autotest_ends.npz", "exp.0.x")
    assert (done.status, done.out, "def exp():" in text, "ci_autotest/call_capture" in done.err, [*stored]) == (
        status,
        f"__main__ ['ends.py', '{how}', '--flag'] True\n",
        True,
        False,
        [0, 1, 2],
    ), done.said


def test_capture__data__a_fault_at_one_of_the_programs_elements_is_found_by_the_stored_ones_alone(tmp_path):
    project = Project(tmp_path)
    project.write("gated.py", "import torch\n\ntorch.nn.functional.silu(torch.tensor([[0.3, -1.0], [0.5, 1.0]]))\n")
    project.write(
        "fast.py",
        "import torch\n\n\ndef silu(x, inplace=False):\n"
        "    return torch.where(x == torch.tensor(0.3), x, x * torch.sigmoid(x))\n",
    )
    project.substitute({"torch.nn.functional.silu": "fast.silu"})
    said = [capture(project, *how, sys.executable, "gated.py") for how in (["--data"], ["-o", "drawn"])]
    assert [done.status for done in said] == [0, 0], said[0].said
    done = project.run("autotests", "drawn", "--cases", "20")
    found = {item["test"]: item["outcome"] for item in project.report()["results"] if "silu" in item["test"]}
    assert (done.status, found) == (
        1,
        {"autotests/autotest_gated.py::silu": "misaligned", "drawn/autotest_gated.py::silu": "aligned"},
    ), done.said


def test_capture__nothing_to_capture__ends_with_3(tmp_path):
    done = capture(Project(tmp_path), sys.executable, "-c", "print(1)")
    assert (done.status, done.out, [*tmp_path.iterdir()]) == (3, "1\n", []), done.said
