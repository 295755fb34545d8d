"""Operators of a library that answer ``torch.exp``: right ones, and ones that declare something that they do not do."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

_LIBRARY = torch.library.Library("declared", "FRAGMENT")


def keep_result(ctx, inputs, output):
    ctx.save_for_backward(output)


def gradient(ctx, weight):
    return weight * ctx.saved_tensors[0]


def exp_and_zero(x: torch.Tensor) -> torch.Tensor:
    found = x.exp()
    x.detach()[:1] = 0
    return found


class Exp(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        found = x.exp()
        ctx.save_for_backward(found)
        return found

    @staticmethod
    def backward(ctx, weight):
        return weight * ctx.saved_tensors[0]


def operator(
    name: str, fake: Callable[..., torch.Tensor] | None, *, kernel=torch.exp, has_gradient: bool = True
) -> torch._ops.OpOverloadPacket:
    """Register an operator with ``torch.library`` and return it."""

    def body(x: torch.Tensor) -> torch.Tensor:
        return kernel(x)

    made = torch.library.custom_op(f"declared::{name}", mutates_args=())(body)
    if fake is not None:
        made.register_fake(fake)
    if has_gradient:
        made.register_autograd(gradient, setup_context=keep_result)
    return getattr(torch.ops.declared, name)


def of_library(name: str, kernel, key: str = "CPU", fake=None) -> torch._ops.OpOverloadPacket:
    """Define an operator as an extension in C++ does, with a kernel for one dispatch key."""
    _LIBRARY.define(f"{name}(Tensor x) -> Tensor")
    _LIBRARY.impl(name, kernel, key)
    if fake is not None:
        torch.library.register_fake(f"declared::{name}", fake, lib=_LIBRARY)
    return getattr(torch.ops.declared, name)


#: Each operator, and what is said of it.
WRONG = {
    "fake kernel of another shape": (
        operator("wrong_shape", lambda x: x.new_empty((*x.shape, 1))), "has a fake kernel that gives something else",
    ),
    "fake kernel of another dtype": (
        operator("wrong_dtype", lambda x: x.new_empty(x.shape, dtype=torch.int64)),
        "has a fake kernel that gives something else",
    ),
    "mutation that its schema does not declare": (
        of_library("writes", lambda x: exp_and_zero(x), "CPU", torch.empty_like), "has a schema that does not say what it does",
    ),
    "gradient below autograd": (
        of_library("below", Exp.apply, "CPU"), "has no gradient that is registered with autograd",
    ),
    "no gradient": (
        operator("no_gradient", torch.empty_like, has_gradient=False), "fails in a graph with its gradient",
    ),
}  # fmt: skip
RIGHT = {
    "with all": operator("right", torch.empty_like),
    "without a fake kernel": operator("eager_only", None),
    "made of torch's operators": of_library("composite", lambda x: x.exp(), "CompositeImplicitAutograd"),
}
