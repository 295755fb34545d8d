"""Expectations of tests in a whole run: PyTorch is held against them too, and a repro needs nothing but torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.projects import Project, finding_of, outcomes, python

if TYPE_CHECKING:
    from tests.projects import Done

TESTS = """
import numpy as np
from ci_autotest import expect


@autotest(n=4, profiles=())
def right():
    x = random_tensor(2, 3, 4)
    y = torch.exp(x)
    expect(y, np.exp, x, rtol=1e-6, atol=1e-6)
    return torch.relu(y)


@autotest(n=4, profiles=())
def wrong():
    x = random_tensor(2, 3, 4)
    y = torch.sin(x)
    expect(y, lambda x: np.sin(x) * 1.01, x)
    return torch.relu(y)
"""
KERNELS = "import torch\n\n\ndef exp(x):\n    return torch.exp(x) * (1 + 3e-6)\n"
CANDIDATES = [
    {"name": "kernels", "backend": "substitute", "replace": {"torch.exp": "mykernels.exp"}},
    {"name": "other", "backend": "module", "module": "torch"},
]


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> tuple[Project, Done]:
    project = Project(tmp_path_factory.mktemp("expectations"))
    project.configure(candidates=CANDIDATES)
    project.write("mykernels.py", KERNELS)
    project.tests(TESTS)
    return project, project.run()


def test_run__expectation_that_pytorch_does_not_meet__is_a_finding_of_the_reference_and_fails(
    ran: tuple[Project, Done],
):
    project, done = ran
    report = project.report()
    assert done.status == 1
    assert outcomes(report) == {
        ("right", "kernels"): "misaligned", ("right", "other"): "aligned", ("right", "reference"): "aligned",
        ("wrong", "kernels"): "unsupported", ("wrong", "other"): "misaligned", ("wrong", "reference"): "misaligned",
    }  # fmt: skip
    found = {(item["candidate"], item["operator"], item["kind"], item["repro_verified"]) for item in report["findings"]}
    assert found == {
        ("kernels", "torch.exp", "value", True),
        ("other", "torch.sin", "value", True),
        ("reference", "torch.sin", "value", True),
    }
    assert [item["name"] for item in report["candidates"]] == ["kernels", "other", "reference"]


def test_repro__of_a_kernel_that_is_not_as_expected__runs_alone_until_it_is_fixed(ran: tuple[Project, Done]):
    project, _ = ran
    finding = finding_of(project.report(), "exp")
    alone = project.repro(finding)
    assert (alone.status, "np." in (project.folder / "autotest-report" / finding["repro"]).read_text("utf-8")) == (
        1,
        False,
    )
    assert project.command("replay", f"autotest-report/findings/{finding['id']}").status == 1
    project.write("mykernels.py", KERNELS.replace("3e-6", "0"))
    assert project.repro(finding).status == 0


def test_run__expectation_is_corrected__its_finding_is_fixed(ran: tuple[Project, Done]):
    project, _ = ran
    project.write("mykernels.py", KERNELS.replace("3e-6", "0"))
    project.tests(TESTS.replace("1.01", "1"))
    done = project.run()
    assert done.status == 0, done.said
    report = project.report()
    assert (report["findings"], report["fixed"]) == (
        [],
        ["kernels torch.exp value", "other torch.sin value", "reference torch.sin value"],
    ), done.said


def test_pytest__expectation_that_pytorch_does_not_meet__fails_the_test(ran: tuple[Project, Done]):
    project, _ = ran
    project.tests(TESTS.replace("def ", "def test_"), "test_expected.py")
    done = python(project, "-m", "pytest", "-q", "test_expected.py", "--autotest-candidate", "torch")
    assert "1 failed, 1 passed" in done.out
    assert "misaligned: torch.sin on torch: " in done.out
