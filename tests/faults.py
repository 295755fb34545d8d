"""Small functions that answer an operator of torch: rightly, or with one planted fault. Plain torch."""

from __future__ import annotations

import torch


class Backward(torch.autograd.Function):
    """Compute something forward, and another gradient than its own."""

    @staticmethod
    def forward(ctx, x, function, backward):
        # A copy: the caller may write to its own tensor afterwards.
        ctx.save_for_backward(x.clone())
        ctx.backward_of = backward
        return function(x)

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return ctx.backward_of(x, grad), None, None


def with_backward(function, backward):
    """Return ``function`` of one tensor with ``backward(x, grad)`` for its gradient."""
    return lambda x, *args, **kwargs: Backward.apply(x, lambda value: function(value, *args, **kwargs), backward)


def right_exp_that_writes_its_cotangent(x):
    def backward(value, grad):
        found = grad * value.exp()
        grad.zero_()
        return found

    return Backward.apply(x, torch.exp, backward)


def mutating(function):
    """Return ``function``, which besides writes to its input."""

    def call(x, *args, **kwargs):
        result = function(x.clone(), *args, **kwargs)
        with torch.no_grad():
            x.mul_(1.5)
        return result

    return call
