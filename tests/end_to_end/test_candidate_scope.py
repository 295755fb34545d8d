"""A row of any kind says what its candidate takes: no gradient is asked of it, and the rest is counted apart."""

from __future__ import annotations

import sys

import pytest

from tests.projects import Project

OPERATORS = """
import torch


class WrongBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 3


def exp(x):
    return WrongBackward.apply(torch.exp(x) * 0.5)


def sin(x):
    return torch.sin(x) + (0.1 if x.dtype is torch.float64 else 0)


def replaced(graph):
    for node in graph.graph.nodes:
        node.target = {torch.exp: exp, torch.sin: sin}.get(node.target, node.target)
    graph.recompile()
    return graph
"""
#: Torch without a backward pass.
FRAMEWORK = """
import torch

__version__ = "1.0"


def __getattr__(name):
    if name == "autograd":
        raise AttributeError(name)
    return getattr(torch, name)
"""
TESTS = """
@autotest(dtypes=("float32", "float64"), profiles=())
def of_two_dtypes():
    return torch.exp(random_tensor(2, dim0=4, dim1=3))


@autotest(profiles=("special",))
def of_two_profiles():
    return torch.exp(torch.nn.Linear(3, 4)(random_tensor(2, dim0=4, dim1=3)))


@autotest(profiles=())
def of_a_module():
    return torch.exp(torch.nn.Linear(3, 4)(random_tensor(2, dim0=4, dim1=3)))


@autotest(profiles=())
def with_a_backward_pass():
    x = random_tensor(2, dim0=2, dim1=3)
    torch.exp(x).sum().backward()
    return x.grad
"""
ROWS = {
    "torch": {},
    "fx": {"transform": "operators.replaced"},
    "torch.compile": {"options": {"backend": "aot_eager"}},
    "module": {"module": "forward_only", "python": sys.executable},
    "dtensor": {"ranks": 2},
    "ddp": {"ranks": 2},
}


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    project = Project(tmp_path_factory.mktemp("scope"))
    project.write("operators.py", OPERATORS)
    project.write("forward_only.py", FRAMEWORK)
    project.tests(TESTS)
    project.configure(
        candidates=[
            {
                "name": kind,
                "backend": kind,
                "forward_only": True,
                "dtypes": ["float32"],
                "profiles": ["ordinary"],
                **row,
            }
            for kind, row in ROWS.items()
        ],
        cases=8,
    )
    done = project.run()
    assert done.status == 0, done.said
    return {(item["candidate"], item["test"].rpartition("::")[2]): item for item in project.report()["results"]}


@pytest.mark.parametrize("kind", ROWS)
def test_run__forward_only__values_alone_are_compared(results, kind):
    found = results[kind, "of_a_module"]

    assert (found["outcome"], found["values_only"]) == ("aligned", found["cases"]["aligned"])


@pytest.mark.parametrize("kind", ROWS)
def test_run__body_that_asks_for_a_gradient__is_outside_the_scope(results, kind):
    found = results[kind, "with_a_backward_pass"]

    assert [(item["reason"], item["cases"]) for item in found["unsupported"]] == [("out_of_scope", 8)]


@pytest.mark.parametrize(
    ("kind", "test", "outside"),
    [(kind, "of_two_profiles", "profile special") for kind in ROWS]
    # Ranks share the batch of a module only, whose parameters have one dtype.
    + [(kind, "of_two_dtypes", "dtype float64") for kind in ROWS if kind != "ddp"],
)
def test_run__cases_of_another_dtype_or_profile__are_outside_the_scope(results, kind, test, outside):
    found = results[kind, test]
    said = [(item["reason"], item["details"][0].partition(";")[0], item["cases"]) for item in found["unsupported"]]

    assert (said, found["cases"]["aligned"]) == ([("out_of_scope", outside, 4)], 4)


OF_BOTH = """
@autotest(profiles=())
def without_a_gradient():
    return torch.exp(random_tensor(2, dim0=2, dim1=3))


@autotest(profiles=(), dtypes=("float32", "float64"))
def of_two_dtypes():
    return torch.sin(random_tensor(2, dim0=2, dim1=3))
"""


def test_run__row_gets_a_scope_after_a_finding__the_finding_is_outside_and_the_run_green(tmp_path):
    project = Project(tmp_path)
    project.write("operators.py", OPERATORS)
    project.tests(OF_BOTH)
    row = {"name": "fx", "backend": "fx", "transform": "operators.replaced"}
    project.configure(candidates=[row], cases=6)
    first = project.run()
    found = {item["operator"]: item["kind"] for item in project.report()["findings"]}

    project.configure(candidates=[{**row, "forward_only": True, "dtypes": ["float32"]}], cases=6)
    second = project.run()

    assert (first.status, found) == (1, {"torch.exp": "gradient", "torch.sin": "value"}), first.said
    assert second.status == 0, second.said
    assert "its case is unsupported now: dtype float64; the candidate's row has dtypes: float32" in second.said
