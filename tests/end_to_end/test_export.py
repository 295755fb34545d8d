"""One row for any exporter or runtime: a function of the user's makes a callable of each exported body."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.projects import ALONE, Project, python

if TYPE_CHECKING:
    from pathlib import Path

#: A runtime of the test's own: NumPy's kernels for five operators, and functions with a fault each.
RUNTIME = """
import numpy as np
import torch

KERNELS = {
    "aten.add.Tensor": np.add, "aten.mul.Tensor": np.multiply, "aten.exp.default": np.exp,
    "aten.linear.default": lambda x, weight, bias: x @ weight.T + bias,
    "aten.max.dim": lambda x, dim: (x.max(dim), x.argmax(dim)),
}


def numpy_runtime(program, kernels=KERNELS):
    nodes = list(program.graph.nodes)
    inputs = set(program.graph_signature.user_inputs)
    stored = {**program.graph_signature.inputs_to_parameters, **program.graph_signature.inputs_to_buffers}
    missing = [str(n.target) for n in nodes if n.op == "call_function" and n.name != "getitem" and
               str(n.target) not in kernels and "getitem" not in str(n.target)]
    if missing:
        raise NotImplementedError(f"no kernel of {missing[0]}")

    def run(*tensors):
        given = iter(tensors)
        held = {}
        for node in nodes:
            if node.op == "placeholder":
                value = next(given) if node.name in inputs else program.state_dict[stored[node.name]]
                held[node] = value.detach().numpy()
            elif node.op == "call_function" and "getitem" in str(node.target):
                held[node] = held[node.args[0]][node.args[1]]
            elif node.op == "call_function":
                held[node] = kernels[str(node.target)](*(held.get(each, each) for each in node.args))
            else:
                return tuple(torch.from_numpy(np.asarray(held[each])) for each in node.args[0])

    run.nodes = [str(node.target) for node in nodes if node.op == "call_function"]
    return run


def faulty(program):
    return numpy_runtime(program, {**KERNELS, "aten.mul.Tensor": lambda x, y: np.multiply(x, y) * np.float32(1.01)})


def of_module(module, inputs):
    assert isinstance(module, torch.nn.Module) and isinstance(inputs, tuple)
    return numpy_runtime(torch.export.export(module, inputs, strict=False))


def torch_itself(program):
    return program.module()


def first_sizes(program):
    run, seen = numpy_runtime(program), []

    def call(*tensors):  # takes every later input for one of the first one's size
        seen.append(tensors[0].shape)
        return tuple(each if each.shape == seen[0] else each * 0 for each in run(*tensors))

    return call


def names(run):
    return run.nodes


def none(program):
    return None


def too_many(program):
    run = numpy_runtime(program)
    return lambda *tensors: (*run(*tensors), torch.zeros(1))


def writing(program):
    run = numpy_runtime(program)
    return lambda *tensors: (run(*tensors), tensors[0].add_(1))[0]


def later(program):
    def run(*tensors):
        raise NotImplementedError("not yet")

    return run
"""
TESTS = """
from ci_autotest import autotest, random_tensor, torch


@autotest(n=6)
def chain():
    return torch.exp(torch.mul(torch.add(random_tensor(2), 1.0), 2.0))


@autotest(n=4)
def layer():
    return torch.nn.Linear(3, 2)(random_tensor(dims=(2, 3)))


@autotest(n=4)
def lacking():
    return torch.sinh(random_tensor(2))
"""


def project_in(folder: Path, **row: Any) -> Project:
    project = Project(folder)
    project.write("runtimes.py", RUNTIME)
    project.write("autotest_export.py", TESTS)
    keys = ", ".join(f"{key}: {value}" for key, value in row.items())
    project.write("autotest.yml", f"candidates:\n  - {{name: own, backend: export, {keys}}}\n")
    return project


def outcomes(project: Project) -> dict[str, str]:
    return {item["test"].rpartition("::")[2]: item["outcome"] for item in project.report()["results"]}


ALIGNED = {"chain": "aligned", "layer": "aligned", "lacking": "unsupported"}


@pytest.mark.parametrize(
    "row",
    [
        {"compile": "runtimes.numpy_runtime"},
        {"compile": "runtimes.numpy_runtime", "dynamic": "true"},
        {"compile": "runtimes.of_module", "takes": "module"},
        {"compile": "runtimes.numpy_runtime", "delegated": "runtimes.names"},
    ],
)
def test_run__runtime_of_the_users__is_compared_and_delegated(tmp_path: Path, row: dict[str, str]):
    project = project_in(tmp_path, **row)
    done = project.run()
    assert (done.status, outcomes(project)) == (0, ALIGNED), done.said
    results = {item["test"].rpartition("::")[2]: item for item in project.report()["results"]}
    assert results["chain"]["delegation"]["wholly"] == 6
    assert results["chain"]["values_only"] == 6
    assert "NotImplementedError: no kernel of aten.sinh.default" in done.out


def test_run__wrong_kernel_of_a_runtime__is_found_with_a_repro(tmp_path: Path):
    project = project_in(tmp_path, compile="runtimes.faulty")
    done = project.run()
    assert done.status == 1, done.said
    (finding,) = project.report()["findings"]
    assert (finding["operator"], finding["kind"], finding["blame"]) == ("torch.mul", "value", "candidate")
    assert finding["repro_verified"], done.said
    assert "what runtimes.faulty makes of it" in finding["program"]
    alone = python(project, "-I", "-c", ALONE, str(project.folder / "autotest-report" / finding["repro"]))
    assert alone.status == 1, alone.said


@pytest.mark.parametrize(
    ("function", "said"),
    [("too_many", "the callable returns 2 values, the body 1"), ("writing", "the callable changes its input 0")],
)
def test_run__callable_breaks_its_contract__is_found_with_a_repro_that_shows_it(
    tmp_path: Path, function: str, said: str
):
    project = project_in(tmp_path, compile=f"runtimes.{function}")
    done = project.run("autotest_export.py::layer")
    assert (done.status, said in done.said) == (1, True), done.said
    (finding,) = project.report()["findings"]
    assert (finding["kind"], finding["repro_verified"]) == ("error", True), done.said


def test_run__callable_that_keeps_its_first_size__is_found_if_it_is_used_again(tmp_path: Path):
    project = project_in(tmp_path, compile="runtimes.first_sizes", dynamic="true")
    assert project.run("autotest_export.py::chain").status == 1
    project = project_in(tmp_path / "static", compile="runtimes.first_sizes")
    assert project.run("autotest_export.py::chain").status == 0


@pytest.mark.parametrize(
    ("row", "status", "said"),
    [
        ({"compile": "runtimes.torch_itself"}, 3, "PyTorch ran every call of the body"),
        ({"compile": "runtimes.none"}, 3, "runtimes.none returned NoneType, which cannot be called"),
        ({"compile": "runtimes.later"}, 3, "runtimes.later: NotImplementedError: not yet"),
        ({"compile": "runtimes.nothing"}, 2, "module 'runtimes' has no function 'nothing'."),
        ({"compile": "nowhere.compile"}, 4, "compile 'nowhere.compile' cannot be imported: "),
    ],
)
def test_run__function_that_runs_nothing__says_so(tmp_path: Path, row: dict[str, str], status: int, said: str):
    project = project_in(tmp_path, **row)
    done = project.run("--candidate", "own")
    assert (done.status, said in done.said) == (status, True), done.said
    assert "Traceback" not in done.said
