"""Accumulation: inputs are widened, computed, and rounded once. Half precisions go to float32, float32 to float64."""

import torch

_ACCUMULATE = {torch.float16: torch.float32, torch.bfloat16: torch.float32, torch.float32: torch.float64}


def widened(x):
    return x.to(_ACCUMULATE.get(x.dtype, x.dtype))


def require_floating(name, x):
    if not x.is_floating_point():
        message = f"{name} is not implemented for {x.dtype}"
        raise RuntimeError(message)
