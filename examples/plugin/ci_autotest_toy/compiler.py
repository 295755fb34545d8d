"""The toy compiler: it runs bodies as PyTorch does, and at level 2 approximates `gelu`."""

from __future__ import annotations

import torch


class Approximate(torch.overrides.TorchFunctionMode):
    """Replaces `gelu` by its approximation, which is off by up to 5e-4: the planted fault."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        if function is torch.nn.functional.gelu:
            return function(args[0], approximate="tanh")
        return function(*args, **(kwargs or {}))


def compiled(body, _inputs, level):
    """Return a callable that takes the body's tensors."""

    def run(*tensors):
        if level < 2:
            return body(*tensors)
        with Approximate():
            return body(*tensors)

    return run


def operators(_):
    """Return how many operators of a body the compiler runs itself: all of them."""
    return 1000
