"""Normalization over the trailing dimensions: ``layer_norm`` and ``rms_norm``."""

import math

import torch
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from mykernels.accumulation import require_floating, widened


class _LayerNorm(Function):
    """y = (x - mean) * rstd * weight + bias, with rstd = 1 / sqrt(variance + eps) over the normalized dimensions.

    With g = grad * weight, the gradient of x is rstd * (g - sum(g) / n) - (x - mean) * rstd ** 3 *
    sum(g * (x - mean)) / n.
    """

    @staticmethod
    def forward(ctx, x, weight, bias, shape, eps):
        dims = tuple(range(-len(shape), 0))
        wide = widened(x)
        mean = wide.mean(dims, keepdim=True)
        rstd = torch.rsqrt((wide - mean).square().mean(dims, keepdim=True) + eps)
        ctx.save_for_backward(x, mean, rstd, weight)
        ctx.shape, ctx.dims = shape, dims
        y = (wide - mean) * rstd
        if weight is not None:
            y = y * weight
        if bias is not None:
            y = y + bias
        return y.to(x.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        x, mean, rstd, weight = ctx.saved_tensors
        wide, grad = widened(x), widened(grad)
        grad_x = grad_weight = grad_bias = None
        if ctx.needs_input_grad[0]:
            scaled = grad if weight is None else grad * weight
            total = scaled.sum(ctx.dims, keepdim=True)
            weighted = (scaled * wide).sum(ctx.dims, keepdim=True)
            count = ctx.shape[-1]
            slope = (total * mean - weighted) * rstd**3 / count
            offset = -slope * mean - total * rstd / count
            grad_x = (rstd * scaled + slope * wide + offset).to(x.dtype)
        if ctx.needs_input_grad[1]:
            grad_weight = _sum_rows(grad * (wide - mean) * rstd, ctx.shape).to(x.dtype)
        if ctx.needs_input_grad[2]:
            grad_bias = _sum_rows(grad, ctx.shape).to(x.dtype)
        return grad_x, grad_weight, grad_bias, None, None


def layer_norm(input, normalized_shape, weight=None, bias=None, eps=1e-5):  # noqa: A002 - torch's name
    shape = _trailing("layer_norm", input, normalized_shape, (weight, bias))
    return _LayerNorm.apply(input, weight, bias, shape, eps)


class _RMSNorm(Function):
    """y = x * scale * weight, with scale = 1 / sqrt(mean(x ** 2) + eps) over the normalized dimensions."""

    @staticmethod
    def forward(ctx, x, weight, shape, eps):
        dims = tuple(range(-len(shape), 0))
        wide = widened(x)
        scale = torch.rsqrt(wide.square().sum(dims, keepdim=True) / math.prod(shape) + eps)
        normalized = wide * scale
        ctx.save_for_backward(normalized, scale, weight)
        ctx.shape, ctx.dims, ctx.dtype = shape, dims, x.dtype
        return (normalized if weight is None else normalized * weight).to(x.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        normalized, scale, weight = ctx.saved_tensors
        grad = grad.to(normalized.dtype)
        grad_x = grad_weight = None
        if ctx.needs_input_grad[0]:
            scaled = grad if weight is None else grad * weight
            count = math.prod(ctx.shape)
            projection = (scaled * normalized).sum(ctx.dims, keepdim=True) / count
            grad_x = (scale * (scaled - normalized * projection)).to(ctx.dtype)
        if ctx.needs_input_grad[1]:
            grad_weight = _sum_rows(grad * normalized, ctx.shape).to(ctx.dtype)
        return grad_x, grad_weight, None, None


def rms_norm(input, normalized_shape, weight=None, eps=None):  # noqa: A002 - torch's name
    shape = _trailing("rms_norm", input, normalized_shape, (weight,))
    return _RMSNorm.apply(input, weight, shape, torch.finfo(input.dtype).eps if eps is None else eps)


def _trailing(name, x, normalized_shape, parameters):
    """Return the normalized dimensions' sizes, once input and parameters are seen to have them."""
    require_floating(name, x)
    shape = tuple(normalized_shape)
    if not shape or tuple(x.shape[-len(shape) :]) != shape:
        message = f"{name}: normalized_shape {shape} is not the end of the input's shape {tuple(x.shape)}"
        raise RuntimeError(message)
    for parameter in parameters:
        if parameter is not None and (tuple(parameter.shape) != shape or parameter.dtype != x.dtype):
            message = f"{name}: expected {x.dtype} parameters of shape {shape}"
            raise RuntimeError(message)
    return shape


def _sum_rows(x, shape):
    """Sum over all dimensions but the trailing ones, which have the sizes ``shape``."""
    leading = x.dim() - len(shape)
    return x.reshape(x.shape[:leading].numel(), *shape).sum(0)
