"""A repro of each kind that is no number: 1 on the kernel with the fault, 0 on the right one, and `replay` agrees."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from tests.projects import Project, together

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.heavy

#: Right values, and something else wrong. Each function is also a module's of the same name, or a function's.
FAULTS = """
import torch


class Half(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y):
        ctx.save_for_backward(y)
        return x * y

    @staticmethod
    def backward(ctx, gradient):
        return gradient * ctx.saved_tensors[0], None


class Greedy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return torch.log(x)

    @staticmethod
    def backward(ctx, gradient):
        found = gradient / ctx.saved_tensors[0]
        gradient.mul_(3)
        return found


def exp(x):
    return torch.exp(x).double()


def sin(x):
    return torch.sin(x.detach())


def cos(x):
    return torch.cos(x.detach()).requires_grad_()


def tan(x):
    return torch.tan(x).detach().requires_grad_()


def abs(x):
    found = torch.abs(x)
    x.mul_(2)
    return found


def sign(x):
    found = torch.sign(x)
    x.requires_grad_()
    return found


def floor(x):
    found = torch.floor(x)
    x.unsqueeze_(0)
    return found


def square(x):
    return torch.square(x).t().contiguous().t()


def dot(x, y):
    return Half.apply(x, y).sum()


def log(x):
    return Greedy.apply(x)


def max(x, dim):
    return torch.max(x, dim)[0]
"""
#: The same, right.
RIGHT = "from torch import abs, cos, dot, exp, floor, log, max, sign, sin, square, tan\n"
STATISTICS = """

def batch_norm(input, running_mean, running_var, weight=None, bias=None, training=False, momentum=0.1, eps=1e-5):
    found = torch.nn.functional.batch_norm(input, running_mean, running_var, weight, bias, training, momentum, eps)
    mean = running_mean.clone()
    running_mean.copy_(running_var)
    running_var.copy_(mean)
    return found
"""
RIGHT_STATISTICS = "from torch.nn.functional import batch_norm\n"
TESTS = """
@autotest(n=1)
def exp():
    return torch.exp(random_tensor(ndim=2))

@autotest(n=1)
def sin():
    return torch.sin(random_tensor(ndim=2))

@autotest(n=1)
def cos():
    return torch.cos(random_tensor(ndim=2))

@autotest(n=1)
def tan():
    return torch.tan(random_tensor(ndim=2, requires_grad=False))

@autotest(n=1)
def abs_():
    return torch.abs(random_tensor(ndim=2, requires_grad=False))

@autotest(n=1)
def sign():
    return torch.sign(random_tensor(ndim=2, requires_grad=False))

@autotest(n=1)
def floor():
    return torch.floor(random_tensor(ndim=2, requires_grad=False))

@autotest(n=1)
def square():
    y = torch.square(random_tensor(ndim=2, dim0=3, dim1=4))
    return y + y.stride()[0]

@autotest(n=1)
def dot():
    return torch.dot(random_tensor(ndim=1, dim0=3), random_tensor(ndim=1, dim0=3))

@autotest(n=1)
def log():
    return torch.log(random_tensor(ndim=2, low=1.0, high=2.0))

@autotest(n=1)
def max_():
    return torch.max(random_tensor(ndim=2, requires_grad=False), 1)

@autotest(n=1)
def batch_norm():
    return torch.nn.BatchNorm1d(3)(random_tensor(ndim=2, dim0=4, dim1=3))
"""
KINDS = {
    "exp": "dtype", "sin": "metadata", "cos": "metadata", "tan": "metadata", "abs": "mutation", "sign": "mutation",
    "floor": "mutation", "stride": "value", "dot": "gradient", "log": "mutation", "max": "shape", "batch_norm": "state",
}  # fmt: skip
#: A module with torch's names: the same faults, and a module whose state they are of.
LOOKALIKE = """
import torch

globals().update({name: value for name, value in vars(torch).items() if not name.startswith("__")})
import types

from faults import *

__version__ = "0.1-lookalike"
functions = types.SimpleNamespace(**{**vars(torch.nn.functional), "batch_norm": batch_norm})


class BatchNorm1d(torch.nn.BatchNorm1d):
    def forward(self, x):
        training = self.training
        self.num_batches_tracked.add_(training)
        return batch_norm(x, self.running_mean, self.running_var, self.weight, self.bias, training, self.momentum)


nn = types.SimpleNamespace(**{**vars(torch.nn), "functional": functions, "BatchNorm1d": BatchNorm1d})
"""
#: One of each kind.
REPLAYED = ("cos", "abs", "dot", "batch_norm")


def as_functions(project: Project) -> None:
    names = {f"torch.{name}": f"faults.{name}" for name in RIGHT.split("import ")[1].strip().split(", ")}
    project.substitute({**names, "torch.nn.functional.batch_norm": "faults.batch_norm"})


def as_framework(project: Project) -> None:
    project.write("lookalike.py", LOOKALIKE)
    candidate = {"name": "kernels", "backend": "module", "module": "lookalike", "python": sys.executable}
    project.configure(candidates=[candidate])


@pytest.mark.parametrize("configure", [as_functions, as_framework])
def test_repro__flags_mutation_gradients_and_state__is_1_with_the_fault_and_0_without(configure, tmp_path: Path):
    project = Project(tmp_path)
    configure(project)
    project.write("faults.py", FAULTS + STATISTICS)
    project.tests(TESTS)

    done = project.run()

    found = {item["operator"].rpartition(".")[2]: item for item in project.report()["findings"]}
    if configure is as_functions:
        found["stride"] = found.pop("square")  # What a body reads follows from the operator that is replaced.
    assert {name: item["kind"] for name, item in found.items()} == KINDS, done.said
    assert [name for name, item in found.items() if not item["repro_verified"]] == [], done.said
    assert replayed(project, found) == [1] * len(REPLAYED)
    project.write("faults.py", RIGHT + RIGHT_STATISTICS)
    fixed = together(*(lambda item=item: project.repro(item, "autotest-report", tmp_path) for item in found.values()))
    assert [(item.status, item.out.splitlines()[-1]) for item in fixed] == [
        (0, "fixed: nothing differs from the reference any more")
    ] * len(found), "\n".join(item.said for item in fixed)
    assert all("misaligned" not in item.out.partition("\n")[2] for item in fixed)
    assert replayed(project, found) == [0] * len(REPLAYED)


def replayed(project: Project, found: dict) -> list[int]:
    ids = [found[name]["id"] for name in REPLAYED]
    done = together(*(lambda id_=id_: project.command("replay", f"autotest-report/findings/{id_}") for id_ in ids))
    return [item.status for item in done]


def test_run__kernel_returns_an_array__its_repros_say_that_it_is_no_tensor(tmp_path: Path):
    project = Project(tmp_path)
    project.write("arrays.py", "import numpy\n\n\ndef tanh(x):\n    return numpy.tanh(x.detach().numpy())\n")
    project.tests("@autotest(n=6)\ndef tanh():\n    return torch.tanh(random_tensor())\n")
    project.substitute({"torch.tanh": "arrays.tanh"})
    done = project.run()
    findings = project.report()["findings"]
    assert done.status == 1, done.said
    assert findings
    assert [item["id"] for item in findings if not item["repro_verified"]] == [], done.said
