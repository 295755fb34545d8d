"""Activations: ``softmax`` and ``gelu``."""

import math

import torch
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from mykernels.accumulation import require_floating, widened

_SQRT_HALF = math.sqrt(0.5)
_SQRT_TWO_PI = math.sqrt(2 * math.pi)
_SQRT_TWO_OVER_PI = math.sqrt(2 / math.pi)
_CUBIC = 0.044715


class _Softmax(Function):
    """y = exp(x - max) / sum(exp(x - max)) along one dimension."""

    @staticmethod
    def forward(ctx, x, dim):
        wide = widened(x)
        if x.numel():
            wide = torch.exp(wide - wide.amax(dim, keepdim=True))
        y = wide / wide.sum(dim, keepdim=True)
        ctx.save_for_backward(y)
        ctx.dim, ctx.dtype = dim, x.dtype
        return y.to(x.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        (y,) = ctx.saved_tensors
        grad = grad.to(y.dtype)
        return (y * (grad - (grad * y).sum(ctx.dim, keepdim=True))).to(ctx.dtype), None


def softmax(input, dim=None, _stacklevel=3, dtype=None):  # noqa: A002 - torch's name
    if dim is None:
        message = "softmax: the implicit dimension is not supported; give dim"
        raise NotImplementedError(message)
    x = input if dtype is None else input.to(dtype)
    require_floating("softmax", x)
    return _Softmax.apply(x, dim)


class _GELU(Function):
    """y = x * P(X <= x) for a standard normal X."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        wide = widened(x)
        return (0.5 * wide * (1 + torch.erf(wide * _SQRT_HALF))).to(x.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        wide = widened(x)
        probability = 0.5 * (1 + torch.erf(wide * _SQRT_HALF))
        density = torch.exp(-0.5 * wide.square()) / _SQRT_TWO_PI
        return (grad * (probability + wide * density)).to(x.dtype)


class _GELUTanh(Function):
    """y = 0.5 * x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x ** 3)))."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        wide = widened(x)
        return (0.5 * wide * (1 + torch.tanh(_SQRT_TWO_OVER_PI * (wide + _CUBIC * wide**3)))).to(x.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        wide = widened(x)
        tanh = torch.tanh(_SQRT_TWO_OVER_PI * (wide + _CUBIC * wide**3))
        slope = (1 - tanh.square()) * _SQRT_TWO_OVER_PI * (1 + 3 * _CUBIC * wide.square())
        return (grad * (0.5 * (1 + tanh) + 0.5 * wide * slope)).to(x.dtype)


def gelu(input, *, approximate="none"):  # noqa: A002 - torch's name
    require_floating("gelu", input)
    if approximate not in {"none", "tanh"}:
        message = f"gelu: approximate is {approximate!r}, and may be 'none' or 'tanh'"
        raise RuntimeError(message)
    return (_GELUTanh if approximate == "tanh" else _GELU).apply(input)
