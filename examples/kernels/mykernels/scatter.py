"""Scattering: ``scatter_add``."""

import torch
from torch.autograd import Function
from torch.autograd.function import once_differentiable


class _ScatterAdd(Function):
    """y = x, with each element of the source added where its index points along one dimension."""

    @staticmethod
    def forward(ctx, x, source, positions):
        ctx.save_for_backward(positions)
        ctx.shape = source.shape
        y = x.clone(memory_format=torch.contiguous_format)
        y.view(-1).index_add_(0, positions, source.reshape(-1))
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        (positions,) = ctx.saved_tensors
        grad_source = grad.reshape(-1)[positions].reshape(ctx.shape) if ctx.needs_input_grad[1] else None
        return grad, grad_source, None


def scatter_add(input, dim, index, src):  # noqa: A002 - torch's name
    if input.dtype != src.dtype:
        message = f"scatter_add: the source is {src.dtype}, the input {input.dtype}"
        raise RuntimeError(message)
    if not 0 < input.dim() == index.dim() or index.shape != src.shape:
        message = "scatter_add: the index must have the rank of the input and the shape of the source"
        raise NotImplementedError(message)
    dim %= input.dim()
    if any(index.shape[i] > input.shape[i] for i in range(input.dim()) if i != dim):
        message = f"scatter_add: index of shape {tuple(index.shape)} for an input of shape {tuple(input.shape)}"
        raise RuntimeError(message)
    if bool(((index < 0) | (index >= input.shape[dim])).any()):
        message = f"scatter_add: an index is out of bounds of {input.shape[dim]} elements"
        raise RuntimeError(message)
    return _ScatterAdd.apply(input, src, _positions(input.shape, dim, index))


def _positions(shape, dim, index):
    """Return where, in a flat tensor of ``shape``, each element of ``index`` points: ``(index.numel(),)``."""
    positions, stride = torch.zeros_like(index), 1
    for axis in reversed(range(len(shape))):
        if axis == dim:
            coordinate = index
        else:
            along = [-1 if i == axis else 1 for i in range(len(shape))]
            coordinate = torch.arange(index.shape[axis], device=index.device).view(along)
        positions = positions + coordinate * stride
        stride *= shape[axis]
    return positions.reshape(-1)
