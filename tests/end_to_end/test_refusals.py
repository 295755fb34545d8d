"""What must be refused, by the command line: green where both sides refuse, a whole finding where one accepts."""

from __future__ import annotations

import pytest

from tests.projects import HEAD, Project

KERNELS = """
import torch


def any_shapes(a, b):
    n = min(a.shape[1], b.shape[0])
    return torch.Tensor.matmul(a[:, :n], b[:n])
"""
DEMANDED = f"""
import pytest
{HEAD}

@autotest(raises=RuntimeError, match="cannot be multiplied")
def declared():
    x = random_tensor(2, 2, 3)
    return torch.matmul(x, x)


@autotest()
def expected():
    x = random_tensor(2, 2, 3)
    with pytest.raises(RuntimeError, match="multiplied"):
        torch.matmul(x, x)
"""
CAUGHT = f"""
{HEAD}

@autotest()
def caught():
    x = random_tensor(2, 2, 3)
    try:
        return torch.matmul(x, x)
    except RuntimeError:
        return torch.matmul(x, x.t())
"""
REJECTED = f"""
{HEAD}

@autotest()
def rejected():
    x = random_tensor(2, 2, 3)
    return torch.matmul(x, random_tensor(2, random(2, 4).to(int), 3))
"""
ACCEPTED = f"""
{HEAD}

@autotest(raises=RuntimeError)
def accepted():
    return random_tensor(2) * 2
"""


def project_of(tmp_path, tests: str, *, accepts: bool) -> Project:
    project = Project(tmp_path)
    project.write("mykernels.py", KERNELS)
    project.write("autotests/autotest_refusals.py", tests)
    row = {"name": "torch", "backend": "torch"}
    if accepts:
        row = {"name": "kernels", "backend": "substitute", "replace": {"torch.matmul": "mykernels.any_shapes"}}
    project.configure(cases=4, candidates=[row])
    return project


@pytest.mark.parametrize("tests", [DEMANDED, CAUGHT], ids=["demanded", "caught"])
def test_run__both_sides_refuse__is_aligned_and_green(tmp_path, tests: str):
    project = project_of(tmp_path, tests, accepts=False)
    done = project.command("run", "--workers", "1")
    assert done.status == 0, done.said
    assert {item["outcome"] for item in project.report()["results"]} == {"aligned"}
    assert all(item["cases"]["aligned"] == 4 for item in project.report()["results"])


@pytest.mark.parametrize(
    ("tests", "options", "status"),
    [
        pytest.param(DEMANDED, (), 1, id="demanded"),
        pytest.param(CAUGHT, (), 0, id="caught"),
        pytest.param(REJECTED, (), 0, id="rejected"),
        pytest.param(REJECTED, ("--fail-on", "leniency"), 1, id="rejected, asked for", marks=pytest.mark.matrix),
    ],
)
def test_run__candidate_accepts__is_a_leniency_with_a_repro_that_verifies(tmp_path, tests: str, options, status: int):
    project = project_of(tmp_path, tests, accepts=True)
    done = project.command("run", "--workers", "1", *options)
    assert done.status == status, done.said
    (found,) = project.report()["findings"]
    assert (found["kind"], found["operator"], found["demanded"]) == ("leniency", "torch.matmul", tests is DEMANDED)
    assert (found["confirmed"], found["shrunk"], found["repro_verified"]) == (True, True, True)
    assert "# is accepted; the reference rejects it" in found["program"]
    folder = tmp_path / "autotest-report" / "findings" / found["id"]
    assert sorted(path.name for path in folder.iterdir()) == [
        "README.md", "program.json", "repro.py", "tensors.safetensors",
    ]  # fmt: skip
    replayed = project.command("replay", str(folder))
    assert (replayed.status, "leniency" in replayed.said or "accepts" in replayed.said) == (1, True), replayed.said


def test_run__reference_accepts_what_the_author_says_it_refuses__is_a_broken_test(tmp_path):
    done = project_of(tmp_path, ACCEPTED, accepts=False).command("run", "--workers", "1")
    assert done.status == 1, done.said
    assert "the reference refuses nothing: the body should raise RuntimeError, but it returned." in done.said
