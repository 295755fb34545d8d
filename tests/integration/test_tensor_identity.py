"""One tensor for two results, or for an argument and a result: right where nothing shows it, and said plainly where it does."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest
import torch as real

from ci_autotest import random_tensor, torch
from ci_autotest.backends.registry import build
from ci_autotest.kinds import SubstituteCandidate
from tests.engine import substitute, tried

if TYPE_CHECKING:
    from pathlib import Path


class Fused(real.autograd.Function):
    """What aminmax gives of a dimension of one: the same values twice."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x.clone().squeeze(0)

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return gradient.unsqueeze(0)


class Twice(Fused):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        y = x.clone().squeeze(0)
        return y, y

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return sum(gradients).unsqueeze(0)


def same_tensor(x: Any, *, dim: int) -> Any:
    y = x.amin(dim)
    return y, y


def fused(x: Any, *, dim: int) -> Any:
    y = Fused.apply(x)
    return y, y


def of_one_function(x: Any, *, dim: int) -> Any:
    return Twice.apply(x)


def view(x: Any, *, dim: int) -> Any:
    y = Fused.apply(x)
    return y, y.view_as(y)


def extremes(**how: Any) -> Any:
    return torch.aminmax(random_tensor(2, 1, 3, **how), dim=0)


def both() -> Any:
    return tuple(extremes())


def used() -> Any:
    low, high = extremes()
    return torch.exp(low) + 2 * high


def one_of_them() -> Any:
    _, high = extremes()
    return high * 3


def mixed() -> Any:
    low, high = extremes()
    return low, high, torch.exp(low), high * low


def gone_back() -> Any:
    x = random_tensor(2, 1, 3)
    low, high = torch.aminmax(x, dim=0)
    (low.sum() + (high * high).sum()).backward()
    return x.grad


def retained() -> Any:
    low, high = extremes()
    low.retain_grad()
    (low.sum() + (high * high).sum()).backward()
    return low.grad


def hooked() -> Any:
    low, high = extremes()
    low.register_hook(lambda gradient: gradient * 2)
    return low * 3 + high


def written() -> Any:
    low, high = extremes(requires_grad=False)
    low.mul_(2)
    return low, high


KERNELS = (same_tensor, fused, of_one_function, view)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("body", [both, used, one_of_them, mixed, gone_back])
def test_tried__one_tensor_for_two_equal_results__is_aligned(body: Any, kernel: Any):
    verdict = tried(body, substitute(aminmax=kernel), profile="ordinary")
    assert (verdict.outcome, verdict.misalignment) == ("aligned", None)


@pytest.mark.parametrize(
    ("body", "kernel"),
    [(body, kernel) for body in (retained, hooked) for kernel in KERNELS if kernel is not view],
)
def test_tried__gradient_of_one_of_them_is_asked_for__is_aliasing_and_says_which(body: Any, kernel: Any):
    verdict = tried(body, substitute(aminmax=kernel), profile="ordinary")
    found = verdict.misalignment
    assert (verdict.kind, verdict.operator, verdict.accumulated) == ("aliasing", "torch.aminmax", False)
    assert (str(found.at), found.candidate, found.reference) == (
        "memory of aminmax[1]", "shares the memory of aminmax[0]", "has memory of its own",
    )  # fmt: skip


@pytest.mark.parametrize("kernel", KERNELS)
def test_tried__one_of_them_is_written_to__is_told_of_the_other(kernel: Any):
    verdict = tried(written, substitute(aminmax=kernel), profile="ordinary")
    assert (verdict.outcome, verdict.kind, verdict.operator) == ("misaligned", "mutation", "torch.aminmax")
    assert verdict.misalignment.detail == "the value of aminmax_2 was changed by a later call"


@pytest.mark.heavy
def test_tried__isolated_kernel_whose_result_is_written_to__is_told_of_the_kernel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "onetensor.py").write_text("def aminmax(x, *, dim):\n    y = x.amin(dim)\n    return y, y\n", "utf-8")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.syspath_prepend(tmp_path)
    replace = {"torch.aminmax": "onetensor.aminmax"}
    backend = build(SubstituteCandidate(name="kernels", isolated=True, replace=replace), "cpu")
    try:
        verdict = tried(written, backend, profile="ordinary")
    finally:
        backend.close()
    assert (verdict.kind, verdict.operator) == ("mutation", "torch.aminmax")


@pytest.mark.parametrize("body", [both, used, retained, written])
def test_tried__one_tensor_for_results_that_differ__is_a_wrong_value(body: Any):
    def wrong(x: Any, *, dim: int) -> Any:
        y = x.amin(dim) + 1
        return y, y

    verdict = tried(body, substitute(aminmax=wrong), profile="ordinary")
    assert (verdict.kind, verdict.operator, verdict.blame) == ("value", "torch.aminmax", "candidate")


def test_tried__one_tensor_and_a_wrong_backward_pass__is_a_wrong_gradient():
    class Wrong(Fused):
        @staticmethod
        def backward(ctx: Any, gradient: Any) -> Any:
            return 2 * gradient.unsqueeze(0)

    def wrong(x: Any, *, dim: int) -> Any:
        y = Wrong.apply(x)
        return y, y

    verdict = tried(used, substitute(aminmax=wrong), profile="ordinary")
    assert (verdict.kind, verdict.operator, verdict.blame) == ("gradient", "torch.aminmax", "candidate")


def handed_on() -> Any:
    y = random_tensor(2, 2, 3) * 2
    return y, y.contiguous()


def reshaped() -> Any:
    y = random_tensor(2, 2, 3) * 2
    return y, torch.reshape(y, y.shape) * 3


@pytest.mark.parametrize(
    ("body", "replaced"),
    [
        pytest.param(handed_on, {"contiguous": lambda x: x.clone()}, id="copied"),
        pytest.param(reshaped, {"reshape": lambda x, shape: x}, id="itself"),
    ],
)
def test_tried__argument_itself_on_one_side_alone__is_aligned(body: Any, replaced: Any):
    verdict = tried(body, substitute(**replaced), profile="ordinary")
    assert (verdict.outcome, verdict.misalignment) == ("aligned", None)


@pytest.mark.parametrize("body", [hooked, retained])
def test_tried__one_is_a_view_of_the_other_and_its_gradient_is_asked_for__is_aligned(body: Any):
    # From outside it receives what torch's own receives; what it receives inside the operator is the kernel's business.
    verdict = tried(body, substitute(aminmax=view), profile="ordinary")
    assert (verdict.outcome, verdict.misalignment) == ("aligned", None)
