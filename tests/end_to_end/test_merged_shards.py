"""Shards of a run with many faults are merged into the report of the unsharded run, field by field."""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from tests.projects import Project, together

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

#: Each command has a hash seed of its own, as a user's has.
OWN_SERVER = True

KERNELS = """
import os

import torch
from torch.nn import functional as F


class Tripled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.sin()

    @staticmethod
    def backward(ctx, grad):
        return 3 * grad


def tanh(x):
    return torch.Tensor.tanh(x) * 1.001


def sin(x):
    return Tripled.apply(x)


def relu(x, inplace=False):
    return x.clamp(min=0).double()


def square(x):
    if x.numel() > 12:
        raise RuntimeError("too many elements")
    return x * x


def ceil(x):
    if x.numel() > 40:
        os.kill(os.getpid(), 11)
    return torch.Tensor.ceil(x)


def floor(x):
    if x.dim() == 2:
        os.kill(os.getpid(), 6)
    return torch.Tensor.floor(x)


def neg(x):
    with torch.no_grad():
        x.add_(1)
    return -x


def tril(x, diagonal=0):
    return x if x.dim() < 2 else torch.Tensor.tril(x, diagonal)


def log(x):
    return torch.Tensor.log(x + 1e-4)


def sqrt(x):
    return torch.Tensor.sqrt(x) if x.dim() else x.sqrt() + 1


def exp(x):
    return torch.Tensor.exp(x)
"""
#: Files and tests in another order than that of their names; operators that several tests share.
TESTS = {
    "autotests/autotest_b.py": """
@autotest(n=31)
def zeta():
    x = random_tensor(ndim=2, low=-1, high=1)
    return torch.tanh(x) + torch.exp(x)


@autotest()
def alpha():
    x = random_tensor(ndim=3, low=-1, high=1)
    return torch.tanh(torch.exp(x)), torch.square(x)


@autotest(n=3)
def rarely():
    return torch.tanh(random_tensor(ndim=1, low=-1, high=1) * 2)


@autotest()
def once_more():
    return torch.cat([random_tensor(ndim=1, low=-1, high=1).tanh(), random_tensor(ndim=1)])


@autotest()
def dies():
    return torch.ceil(random_tensor(ndim=2))


@autotest()
def asks_too_much():
    return torch.tril(random_tensor(ndim=random(1, 4).to(int)))
""",
    "autotests/autotest_a.py": """
@autotest(n=25)
def mixed():
    x = random_tensor(ndim=2, low=-1, high=1)
    return torch.square(x), torch.sin(x), torch.nn.functional.relu(x)


@autotest()
def early():
    return torch.sin(torch.exp(random_tensor(ndim=1, low=-1, high=1)))


@autotest()
def falls():
    return torch.floor(random_tensor(ndim=random(1, 4).to(int)))


@autotest()
def falls_too():
    return torch.ceil(torch.floor(random_tensor(ndim=random(1, 4).to(int))))


@autotest()
def writes():
    return torch.neg(random_tensor(ndim=2)), torch.log(random_tensor(ndim=1, low=0.5, high=1))


@autotest()
def right():
    return torch.exp(random_tensor(ndim=2, low=-1, high=1))


@autotest()
def replaces_nothing():
    return torch.cos(random_tensor(ndim=2))


@autotest()
def refused():
    return torch.exp(random_tensor(ndim=2)).view(0, -1)


@autotest()
def scalars():
    return torch.sqrt(random_tensor(low=1, high=2))
""",
}
OPERATORS = ("tanh", "sin", "nn.functional.relu", "square", "ceil", "floor", "neg", "tril", "log", "sqrt", "exp")
#: What may differ, with the reason.
APART: Mapping[str, Callable[[Any], Any]] = {
    "duration_s": lambda _: None,  # a time
    "compile_s": lambda _: None,  # likewise
    "output": bool,  # numbers of threads, and what else its process had imported
    "replay": lambda value: OUTPUT.sub("", value),  # a path
    "message": lambda value: OUTPUT.sub("", value),  # ends with the line that replays, and its path
}
OUTPUT = re.compile(r"\b[\w-]+/(?=findings/)")


def sharded(folder: Path, count: int) -> Project:
    """Return a project with many faults, run in shards and whole from the same durations."""
    made = Project(folder)
    made.write("mykernels.py", KERNELS)
    made.substitute(
        {f"torch.{name}": f"mykernels.{name.rpartition('.')[2]}" for name in OPERATORS},
        known=[{"operator": "torch.nn.functional.relu", "reason": "computes in float64"}],
        cases=20,
    )
    for name, text in TESTS.items():
        made.tests(text, name)
    runs = (("--shard", f"{index}/{count}", "--output", f"shard{index}") for index in range(1, count + 1))
    for done in together(*(partial(made.run, *words) for words in runs)):
        assert done.status == 1, done.said
    done = made.run("--output", "whole")  # last: it writes the durations that shards plan by
    assert done.status == 1, done.said
    return made


def flat(value: Any, where: str = "") -> dict[str, Any]:
    """Return the leaves of a report by their path; a list's length is one."""
    if isinstance(value, dict):
        pairs = ((f"{where}.{key}", APART[key](item) if key in APART else item) for key, item in value.items())
    elif isinstance(value, list):
        pairs = ((f"{where}[{index}]", item) for index, item in enumerate(value))
    else:
        return {where: value}
    found = {path: leaf for name, item in pairs for path, leaf in flat(item, name).items()}
    return {**found, f"{where}#": len(value)}


@pytest.mark.heavy
@pytest.mark.parametrize(
    "count", [pytest.param(2, marks=pytest.mark.matrix), 3, pytest.param(5, marks=pytest.mark.matrix)]
)
def test_report__shards_of_a_run_with_many_faults__are_the_whole_run(count: int, tmp_path: Path):
    project = sharded(tmp_path, count)
    done = project.command("report", *(f"shard{i}" for i in range(1, count + 1)), "--output", "merged")
    assert done.status == 1, done.said
    whole = flat(project.report("whole"))
    found = flat(project.report("merged"))
    differing = {path: (whole.get(path), found.get(path)) for path in sorted({*whole, *found})}
    assert {path: pair for path, pair in differing.items() if pair[0] != pair[1]} == {}
