"""A compiler that leaves operators to PyTorch: what it did not run is not aligned, on every surface."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from typing import TYPE_CHECKING

import pytest

from tests.projects import Project

if TYPE_CHECKING:
    from pathlib import Path

#: A compiler that takes runs of `add` and `mul`, and leaves a single one of them, and all others, to PyTorch.
COMPILER = """
import numpy as np
import torch
from torch._dynamo import register_backend
from torch.fx.passes.infra.partitioner import CapabilityBasedPartitioner
from torch.fx.passes.operator_support import OperatorSupport

KERNELS = {torch.add: np.add, torch.mul: np.multiply}


class Taken(OperatorSupport):
    def is_node_supported(self, _, node):
        return node.op == "call_function" and node.target in KERNELS


class Part(torch.nn.Module):
    def __init__(self, graph):
        super().__init__()
        self.nodes = list(graph.graph.nodes)

    def forward(self, *args):
        inputs = [node for node in self.nodes if node.op == "placeholder"]
        held = {node: value.detach().numpy() for node, value in zip(inputs, args)}
        for node in self.nodes:
            if node.op == "call_function":
                held[node] = KERNELS[node.target](*(held.get(each, each) for each in node.args))
        return torch.from_numpy(np.asarray(held[self.nodes[-1].args[0]], np.float32))


@register_backend(name="parts")
def parts(graph, inputs):
    partitioner = CapabilityBasedPartitioner(graph, Taken(), allows_single_node_partition=False)
    fused = partitioner.fuse_partitions(partitioner.propose_partitions())
    for name, part in list(fused.named_children()):
        setattr(fused, name, Part(part))
    return fused.forward
"""
TESTS = """
from ci_autotest import autotest, random_tensor, torch


def tensor():
    return random_tensor(ndim=1, requires_grad=False)


@autotest(n=3)
def taken():
    return torch.mul(torch.add(tensor(), 1.0), 2.0)


@autotest(n=3)
def in_part():
    return torch.exp(torch.mul(torch.add(tensor(), 1.0), 2.0))


@autotest(n=3)
def left():
    return torch.add(tensor(), 1.0)
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    project = Project(tmp_path_factory.mktemp("delegation"))
    project.write("compiler.py", COMPILER)
    project.write("autotest_parts.py", TESTS)
    project.write(
        "autotest.yml",
        "candidates:\n  - {name: parts, backend: torch.compile, import: [compiler], options: {backend: parts}}\n",
    )
    return project


def test_run__compiler_leaves_operators__they_are_not_aligned_anywhere(project: Project):
    done = project.run()
    assert done.status == 0, done.said
    report = project.report()
    outcomes = {item["test"].rpartition("::")[2]: item for item in report["results"]}
    assert {name: item["outcome"] for name, item in outcomes.items()} == {
        "taken": "aligned", "in_part": "aligned", "left": "unsupported"
    }  # fmt: skip
    assert {name: item["delegation"] for name, item in outcomes.items()} == {
        "taken": {"wholly": 3, "in_part": 0, "nothing": 0, "unknown": 0},
        "in_part": {"wholly": 0, "in_part": 3, "nothing": 0, "unknown": 0},
        "left": {"wholly": 0, "in_part": 0, "nothing": 3, "unknown": 0},
    }
    delegated = {item["operator"]: item["candidates"]["parts"]["delegated"] for item in report["operators"]}
    assert delegated == {"torch.add": 6, "torch.mul": 6, "torch.exp": 0}
    assert "coverage of parts: 2 of 3 tested operators are supported, 2 aligned, 0 misaligned" in done.out
    assert "not compared: autotest_parts.py::left on parts: " in done.out
    assert "3 of 3 cases delegated in part: PyTorch ran the other calls in the compiler's place" in done.out
    assert "; 3 cases delegated in part" in done.out.splitlines()[-2]
    (suite,) = ET.fromstring((project.folder / "autotest-report/junit.xml").read_text("utf-8"))  # noqa: S314 - our own
    properties = {item.get("name"): item.get("value") for item in suite.iter("property")}
    assert {name: value for name, value in properties.items() if name.startswith("delegated")} == {
        "delegated_wholly": "3", "delegated_in_part": "3", "delegated_nothing": "3", "delegated_unknown": "0"
    }  # fmt: skip


def test_run__nothing_delegated__ends_with_3(project: Project):
    done = project.run("autotest_parts.py::left")
    assert done.status == 3, done.said
    assert "nothing was compared" in done.out.splitlines()[-2]


WRONG = """
import numpy as np
import torch
from torch._dynamo import register_backend


@register_backend(name="wrong")
def wrong(graph, inputs):
    nodes = list(graph.graph.nodes)

    def linear(x, weight, bias):
        return (x @ weight.T + bias) * np.float32(1.01)

    def run(*args):
        placeholders = [node for node in nodes if node.op == "placeholder"]
        held = dict(zip(placeholders, [each.numpy() for each in args]))
        for node in nodes:
            if node.op == "call_function":
                held[node] = linear(*(held.get(each, each) for each in node.args))
        return tuple(torch.from_numpy(np.asarray(held[each], np.float32)) for each in nodes[-1].args[0])

    return run
"""


@pytest.mark.parametrize("how", ["forward_only", "inference"])
def test_run__compiler_without_gradients__fault_has_a_repro_that_runs_it_so(tmp_path: Path, how: str):
    project = Project(tmp_path)
    project.write("wrong.py", WRONG)
    project.write(
        "autotest_linear.py",
        "from ci_autotest import autotest, random_tensor, torch\n\n\n@autotest(n=4)\ndef linear():\n"
        "    return torch.nn.Linear(3, 2)(random_tensor(dims=(2, 3)))\n",
    )
    project.write(
        "autotest.yml",
        "candidates:\n  - {name: wrong, backend: torch.compile, import: [wrong], options: {backend: wrong}, "
        f"{how}: true}}\n",
    )
    done = project.run()
    assert done.status == 1, done.said
    (finding,) = project.report()["findings"]
    assert (finding["operator"], finding["kind"]) == ("torch.nn.functional.linear", "value")
    assert (finding["repro_verified"], finding["no_program"]) == (True, "")
    around = {"forward_only": "no_grad", "inference": "inference_mode"}[how]
    assert f"torch.{around}()(torch.compile(program, backend='wrong'))" in finding["program"]


def test_run__hook_that_is_not_there__is_a_usage_error(tmp_path: Path):
    project = Project(tmp_path)
    project.write("compiler.py", COMPILER)
    project.write("autotest_parts.py", TESTS)
    project.write(
        "autotest.yml",
        "candidates:\n  - {name: parts, backend: torch.compile, import: [compiler], options: {backend: parts}, "
        "delegated: compiler.name}\n",
    )
    done = project.run()
    assert (done.status, "module 'compiler' has no function 'name'." in done.said) == (2, True), done.said
