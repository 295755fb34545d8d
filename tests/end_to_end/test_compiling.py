"""How long compilers take, and how often they are asked, in real workers: one is slow, one hangs, one writes a log."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.projects import Project

COMPILERS = """
import os
import time

import torch
from torch._dynamo import register_backend


@register_backend(name="hanging")
def hanging(graph, inputs):
    if any("exp" in str(node.target) for node in graph.graph.nodes):
        time.sleep(600)
    return graph.forward


@register_backend(name="slow")
def slow(graph, inputs):
    time.sleep(0.3)
    with open("compiled.txt", "a") as file:
        file.write(f"{os.getpid()}\\n")
    return graph.forward


@register_backend(name="buffered")
def buffered(graph, inputs):
    held = []

    def run(*args):
        found = graph.forward(*args)
        held.extend(torch.empty_like(each) for each in found[len(held):])
        return tuple(own.copy_(each) for own, each in zip(held, found))

    return run


def everything(_):
    return 1000
"""
TESTS = """
from ci_autotest import autotest, random_tensor, torch


@autotest(n=6)
def exp():
    return torch.exp(torch.sin(random_tensor(ndim=1, requires_grad=False)))


@autotest(n=6)
def sin():
    return torch.sin(random_tensor(ndim=1, requires_grad=False))
"""


def project(folder: Path, compiler: str, **keys: object) -> Project:
    made = Project(folder)
    made.write("compilers.py", COMPILERS)
    made.write("autotest_two.py", TESTS)
    row = {"name": compiler, "backend": "torch.compile", "import": ["compilers"], "options": {"backend": compiler}}
    made.configure(candidates=[{**row, "delegated": "compilers.everything", **keys}], case_timeout="5s")
    return made


def test_run__compiler_hangs__costs_its_cases_and_says_that_it_compiled(tmp_path: Path):
    made = project(tmp_path, "hanging")
    done = made.run("--cases", "2")
    assert done.status == 1, done.said
    outcomes = {item["test"].rpartition("::")[2]: item["outcome"] for item in made.report()["results"]}
    assert outcomes == {"exp": "timed_out", "sin": "aligned"}
    assert "the worker made no progress for 5 s and was ended in compiling torch.exp, case 0 of" in done.out


@pytest.mark.parametrize(("shapes", "count"), [(0, 6), (1, 4)], ids=["each its own", "one set of sizes"])
def test_run__slow_compiler__its_time_is_told_and_fewer_sizes_take_less(tmp_path: Path, shapes: int, count: int):
    made = project(tmp_path, "slow", shapes=shapes)
    done = made.run("autotest_two.py::exp", "--cases", "6")
    assert done.status == 0, done.said
    (result,) = made.report()["results"]
    compiled = (tmp_path / "compiled.txt").read_text().splitlines()
    assert len(compiled) == count  # Profiles change layouts, so that one set of sizes is compiled several times.
    assert 0.3 * count <= result["compile_s"] <= result["duration_s"]
    assert ("compiling" in done.out) == (result["compile_s"] >= 0.5)


def test_run__callable_overwrites_earlier_results__is_found_and_confirmed(tmp_path: Path):
    made = project(tmp_path, "buffered", forward_only=True)
    done = made.run("autotest_two.py::sin", "--cases", "6")
    assert done.status == 1, done.said
    (finding,) = made.report()["findings"]
    assert (finding["operator"], finding["kind"], finding["outcome"]) == ("torch.sin", "stateful", "misaligned")
    assert finding["detail"] == "right when it was returned, and overwritten by a later call of the body"
    assert finding["no_program"] == "calls"
    (result,) = made.report()["results"]
    assert result["probes"]["run"] == 1
