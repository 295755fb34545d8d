"""How a kernel of the record and torch's operator are called alike, and the tensors that many calls take."""

import math

import torch

INF, NAN = math.inf, math.nan
T = torch.tensor
F64 = torch.float64
ROWS = torch.arange(12.0).reshape(3, 4) / 8
IMAGE = torch.arange(25.0).reshape(1, 1, 5, 5)
WHOLE = torch.arange(16.0).reshape(1, 1, 4, 4)


def call(*args, **kwargs):
    """Return what calls an operator with these arguments."""
    return lambda operator: operator(*args, **kwargs)


def gradients(*tensors, **kwargs):
    """Return what calls an operator and gives the gradients of the floating tensors among its arguments."""

    def called(operator):
        given = [x.clone().requires_grad_() if isinstance(x, torch.Tensor) and not is_fixed(x) else x for x in tensors]
        result = operator(*given, **kwargs)
        factor = torch.arange(2.0, result.numel() + 2).reshape(result.shape).to(result.dtype)
        leaves = [x for x in given if isinstance(x, torch.Tensor) and x.requires_grad]
        total = (result * factor).sum()
        return torch.autograd.grad(total.real if total.is_complex() else total, leaves)

    return called


def is_fixed(x):
    return not x.is_floating_point() and not x.is_complex()


def into(shape, *args, columns=False):
    """Return what calls an operator with ``out``, which may be a column of a matrix, and gives what it wrote."""

    def called(operator):
        held = torch.zeros(*shape)
        operator(*args, out=held[:, 0] if columns else held)
        return held

    return called
