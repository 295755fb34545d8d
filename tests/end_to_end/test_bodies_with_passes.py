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
