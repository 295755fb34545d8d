"""A row that says what its kernels take: they are asked for that alone, and every report counts the rest."""

from __future__ import annotations

import pytest

from tests.projects import Project

KERNELS = """
import numpy as np
import torch


def exp(x):
    return torch.from_numpy(np.asarray(np.exp(x.numpy())))


def wrong_exp(x):
    return exp(x) + 0.5


def exp_of_values(x):
    return x.detach().exp()


def softmax(x, dim):
    if x.shape[dim] % 2:
        raise NotImplementedError("rows of odd length are not written yet.")
    return (x - x.logsumexp(dim, True)).exp()
"""
TESTS = """
@autotest(dtypes=("float32", "float64"))
def exponential():
    return torch.exp(random_tensor(2, dim0=2, dim1=3))


@autotest(profiles=())
def even_rows():
    return torch.softmax(random_tensor(2, dim0=2, dim1=oneof(2, 3)), dim=1)
"""


@pytest.fixture
def project(tmp_path):
    found = Project(tmp_path)
    found.write("mine.py", KERNELS)
    found.tests(TESTS)
    return found


def configured(project, function="exp", **keys):
    replace = {"torch.exp": f"mine.{function}", "torch.softmax": "mine.softmax"}
    row = {"name": "kernels", "backend": "substitute", "replace": replace, "forward_only": ["torch.exp"], **keys}
    project.configure(candidates=[row], cases=12)


@pytest.mark.parametrize("keys", [{}, {"isolated": True}], ids=["in the worker", "isolated"])
def test_run__forward_only_kernels_of_one_dtype__are_aligned_and_the_rest_is_counted(project, keys):
    configured(project, dtypes=["float32"], profiles=["ordinary", "large"], **keys)
    done = project.run()
    results = {item["test"].rpartition("::")[2]: item for item in project.report()["results"]}
    exp, rows = results["exponential"], results["even_rows"]
    assert (done.status, exp["outcome"], rows["outcome"]) == (0, "aligned", "aligned"), done.said
    assert 0 < exp["values_only"] == exp["cases"]["aligned"]
    assert [(item["reason"], item["cases"]) for item in exp["unsupported"]] == [
        ("out_of_scope", 12 - exp["cases"]["aligned"])
    ]
    assert "outside the declared scope" in done.out
    assert rows["values_only"] == 0


@pytest.mark.parametrize("keys", [{}, {"isolated": True}], ids=["in the worker", "isolated"])
def test_run__not_implemented__is_unsupported_with_its_sentence_in_every_report(project, keys):
    configured(project, **keys)
    done = project.run()
    rows = next(item for item in project.report()["results"] if item["test"].endswith("::even_rows"))
    assert [item["reason"] for item in rows["unsupported"]] == ["not_implemented"], done.said
    said = "rows of odd length are not written yet."
    output = project.folder / "autotest-report"
    reports = {name: (output / name).read_text("utf-8") for name in ("report.json", "junit.xml", "summary.md")}
    assert {name for name, text in {**reports, "stdout": done.out}.items() if said not in text} == set()


def test_run__wrong_forward_only_kernel__is_found_with_a_repro_that_runs_alone(project):
    configured(project, "wrong_exp")
    done = project.run()
    (finding,) = project.report()["findings"]
    assert (finding["operator"], finding["kind"], finding["repro_verified"]) == ("torch.exp", "value", True), done.said
    assert project.repro(finding).status == 1


@pytest.mark.parametrize(
    ("function", "kind", "says"),
    [("exp_of_values", "metadata", "has the right values and no gradient"), ("exp", "error", "numpy() on Tensor")],
)
def test_run__kernel_without_a_backward_pass_and_no_word_of_it__prints_the_row(project, function, kind, says):
    configured(project, function, forward_only=False)
    done = project.run()
    (finding,) = (item for item in project.report()["findings"] if item["operator"] == "torch.exp")
    assert (finding["kind"], finding["lacks_gradient"]) == (kind, kind == "metadata"), done.said
    assert says in done.out
    assert "- {name: kernels, …, forward_only: [torch.exp]}" in done.out
