"""What autograd refuses, on OneFlow 0.9.0: it accepts two of the four error programs, and each is a finding whose repro shows it."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.candidates import needs, path_of
from tests.projects import Project, outcomes

if TYPE_CHECKING:
    from pathlib import Path

PYTHON = path_of("oneflow")
pytestmark = needs("oneflow")

#: By hand: a factor that is overwritten goes into the gradient as it is afterwards, and a graph is gone after its pass.
BY_HAND = """
import oneflow

x, y = oneflow.tensor([10.0, 5.0]), oneflow.tensor([1.0, 2.0], requires_grad=True)
product = x * y
x[0] = 1000.0
product.sum().backward()
print(y.grad.tolist())
loss = (y * y).sum()
loss.backward()
try:
    loss.backward()
    print("accepted")
except Exception as error:
    print(type(error).__name__)
"""
OVERWRITTEN = """
@autotest(n=2, profiles=[])
def overwritten():
    x, y = random_tensor(1, 2, requires_grad=False), random_tensor(1, 2)
    product = x * y
    x[0] = 1000.0
    return product
"""
FILES = ["README.md", "program.json", "repro.py", "tensors.safetensors"]


@pytest.fixture
def project(tmp_path: Path) -> Project:
    project = Project(tmp_path)
    row = {"name": "flow", "backend": "module", "module": "oneflow", "python": str(PYTHON)}
    project.configure(candidates=[row], cases=3)
    return project


def test_oneflow__by_hand__overwritten_factor_is_in_the_gradient_and_a_second_pass_is_refused():
    done = subprocess.run([PYTHON, "-c", BY_HAND], capture_output=True, text=True, timeout=300, check=True)
    assert done.stdout.splitlines()[-2:] == ["[1000.0, 5.0]", "Exception"]


def test_run__four_error_programs_of_the_suite__two_are_refused_and_two_are_leniency(project: Project):
    names = ("backward_is_run_twice", "leaf_is_changed", "leaf_is_moved_into_the_graph")
    tests = [f"builtin:suite/autograd::{name}" for name in (*names, "value_that_backward_needs_is_changed")]
    done = project.run(*tests)
    report = project.report()
    assert {test: outcome for (test, _), outcome in outcomes(report).items()} == {
        "backward_is_run_twice": "aligned", "leaf_is_changed": "aligned",
        "leaf_is_moved_into_the_graph": "misaligned", "value_that_backward_needs_is_changed": "misaligned",
    }, done.said  # fmt: skip
    (found,) = report["findings"]
    assert (found["kind"], found["operator"], found["demanded"]) == ("leniency", "torch.Tensor.backward", True)
    assert {test.partition("::")[2] for test in found["tests"]} == {
        "leaf_is_moved_into_the_graph", "value_that_backward_needs_is_changed",
    }  # fmt: skip
    assert "# is accepted; the reference rejects it" in found["program"]
    assert_shows_itself(project, found, "the last call: candidate 'accepts', reference 'raises'")
    assert done.status == 1


def test_run__backward_pass_after_a_factor_is_overwritten__is_leniency_whose_repro_verifies(project: Project):
    project.tests(OVERWRITTEN)
    done = project.run()
    (found,) = project.report()["findings"]
    assert (found["kind"], found["operator"]) == ("leniency", "torch.Tensor.__setitem__"), done.said
    assert_shows_itself(project, found, "the backward pass: candidate 'accepts', reference 'raises'")
    assert done.status == 0  # Nobody wrote that it must be refused.


def assert_shows_itself(project: Project, found, said: str) -> None:
    """See that a finding has its program, tensors, folder and repro, and that the repro shows it."""
    folder = project.folder / "autotest-report" / "findings" / found["id"]
    assert sorted(path.name for path in folder.iterdir()) == FILES
    assert (found["confirmed"], found["repro_verified"]) == (True, True), found
    repro = project.repro(found)
    assert (repro.status, said in repro.out) == (1, True), repro.said
    assert project.command("replay", str(folder)).status == 1
