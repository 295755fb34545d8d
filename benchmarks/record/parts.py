"""What several kernels are made of: memory read as it lies, and gradients that are changed on their way."""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable


def packed(x: torch.Tensor) -> torch.Tensor:
    """Return what a kernel reads that takes any tensor for a contiguous one: memory from its first element on."""
    if x.is_contiguous() or x.numel() == 0:
        return x
    held = x.untyped_storage().nbytes() // x.element_size() - x.storage_offset()
    flat = x.as_strided((held,), (1,), x.storage_offset())
    return valued(x, flat[torch.arange(x.numel()) % held].reshape(x.shape))


def valued(x: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """Return another value with the gradient of ``x``."""
    return _Valued.apply(x, value.detach()) if x.requires_grad else value


class _Valued(torch.autograd.Function):
    """A value that is given, with the gradient of another."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, value: torch.Tensor) -> torch.Tensor:  # noqa: ARG004 - autograd's
        return value.clone()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:  # noqa: ARG004 - autograd's
        return gradient, None


def written_packed(out: torch.Tensor, result: torch.Tensor) -> torch.Tensor:
    """Write a result to ``out`` as a kernel does that takes any tensor for a contiguous one, and return ``out``."""
    if out.shape != result.shape:
        out.resize_(result.shape)
    held = out.untyped_storage().nbytes() // out.element_size() - out.storage_offset()
    count = min(held, result.numel())
    out.as_strided((count,), (1,), out.storage_offset()).copy_(result.reshape(-1)[:count])
    return out


def fills_out(kernel: Callable[..., Any]) -> Callable[..., Any]:
    """Let a kernel that knows no ``out`` write its result there, as torch's operators do."""

    @functools.wraps(kernel)
    def called(*args: Any, out: Any = None, **kwargs: Any) -> Any:
        result = kernel(*args, **kwargs)
        if out is None:
            return result
        pairs = [(out, result)] if isinstance(out, torch.Tensor) else zip(out, result, strict=True)
        for each, value in pairs:
            if each.shape != value.shape:
                each.resize_(value.shape)
            each.copy_(value)
        return out

    return called


class _Altered(torch.autograd.Function):
    """The identity with a gradient that a function changes."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, change: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
        ctx.change = change
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        return ctx.change(gradient), None


def altered(x: torch.Tensor, change: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
    """Return a tensor whose gradient is changed before it arrives at ``x``."""
    return _Altered.apply(x, change) if x.requires_grad else x


def is_floating(x: Any) -> bool:
    """Whether this is a tensor of floating point numbers."""
    return isinstance(x, torch.Tensor) and x.is_floating_point()


def is_integral(x: Any) -> bool:
    """Whether this is a tensor of integers."""
    return isinstance(x, torch.Tensor) and not x.is_floating_point() and not x.is_complex() and x.dtype != torch.bool


def reduced(x: torch.Tensor, dim: Any) -> int:
    """Return the number of elements that a reduction over ``dim`` takes together."""
    if dim is None or dim == ():
        return x.numel()
    return math.prod(x.shape[d] for d in ((dim,) if isinstance(dim, int) else dim)) if x.dim() else 1


def in_blocks(x: torch.Tensor) -> torch.Tensor:
    """Return where a loop over blocks of 64 bytes arrives; it leaves the last elements to a loop over elements."""
    whole = x.numel() - x.numel() % (64 // x.element_size()) if x.is_contiguous() else 0
    return torch.arange(x.numel()).reshape(x.shape) < whole
