"""Bodies that run a backward pass, hook gradients or move states, through workers, shrinking and their repro."""

from __future__ import annotations

from pathlib import Path

from tests.projects import Project, outcomes

KERNELS = """
import torch


class Halved(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return torch.Tensor.exp(x)

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return gradient * torch.Tensor.exp(x) / 2


def exp(x):
    return Halved.apply(x)
"""
BODIES = """
@autotest(n=2)
def backward():
    x = random_tensor(2, 3, 4)
    torch.exp(x).sum().backward()
    return x.grad


@autotest(n=2)
def of_a_module():
    layer = torch.nn.Linear(3, 2)
    other = torch.nn.Linear(3, 2)
    other.load_state_dict(layer.state_dict())
    torch.exp(other(random_tensor(2, 4, 3))).sum().backward()
    return [parameter.grad for parameter in other.parameters()]


@autotest(n=2)
def hooked():
    x = random_tensor(1, 4)
    y = torch.exp(x)
    y.register_hook(lambda gradient: gradient * 3)
    return y


@autotest(n=2)
def with_autocast():
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = random_tensor(2, 3, 4) @ random_tensor(2, 4, 2)
    return torch.exp(y)
"""


def test_run__bodies_with_their_own_passes__are_found_named_and_reproduced(tmp_path: Path):
    project = Project(tmp_path)
    project.substitute({"torch.exp": "mykernels.exp"})
    project.write("mykernels.py", KERNELS)
    project.tests(BODIES)
    done = project.run()
    report = project.report()
    assert outcomes(report) == {
        (name, "kernels"): "misaligned" for name in ("backward", "of_a_module", "hooked", "with_autocast")
    }, done.said  # fmt: skip
    (finding,) = report["findings"]
    assert (finding["operator"], finding["kind"], finding["blame"]) == ("torch.exp", "gradient", "candidate"), finding
    assert finding["repro_verified"] is True
    assert project.repro(finding, "autotest-report", tmp_path).status == 1


CELL = """
import torch


class Steep(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 1.5


def lstm_cell(x, state, w_ih, w_hh, b_ih, b_hh):
    h, c = state
    i, f, g, o = (x @ w_ih.t() + h @ w_hh.t() + b_ih + b_hh).chunk(4, -1)
    cell = f.sigmoid() * c + i.sigmoid() * g.tanh()
    return Steep.apply(o.sigmoid() * cell.tanh()), Steep.apply(cell)


class Halved(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return torch.Tensor.sin(x)

    @staticmethod
    def backward(ctx, gradient):
        return gradient * torch.Tensor.cos(ctx.saved_tensors[0]) / 2


def sin(x):
    return Halved.apply(x)
"""
HOOKS = """
@autotest(n=1)
def never_called():
    h, c = torch.nn.LSTMCell(3, 4)(random_tensor(ndim=2, dim1=3))
    c.register_hook(lambda gradient: gradient * 2)
    return h


@autotest(n=1)
def without_a_leaf():
    y = torch.cos(random_tensor(1, 4) * 0)
    y.register_hook(lambda gradient: gradient * 3)
    torch.sin(y).sum().backward()
    return y
"""


def test_run__wrong_gradient_that_a_hook_alone_sees__is_named_and_reproduced(tmp_path: Path):
    project = Project(tmp_path)
    project.substitute({"torch.lstm_cell": "mykernels.lstm_cell", "torch.sin": "mykernels.sin"})
    project.write("mykernels.py", CELL)
    project.tests(HOOKS)
    done = project.run()
    findings = project.report()["findings"]
    found = {(item["operator"], item["kind"], item["repro_verified"]) for item in findings}
    assert found == {("torch.lstm_cell", "gradient", True), ("torch.sin", "gradient", True)}, done.said
    assert [project.repro(item, "autotest-report", tmp_path).status for item in findings] == [1, 1]
