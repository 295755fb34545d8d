"""Two kernels in Numba. One has a fault: the greatest of negative numbers is not 0."""

from __future__ import annotations

import numba
import numpy as np
import torch


@numba.njit
def _cumsum(x, out):
    total = 0.0
    for i in range(x.shape[0]):
        total += x[i]
        out[i] = total


def cumsum(x, dim):
    out = np.empty_like(x.numpy())
    _cumsum(x.numpy(), out)
    return torch.from_numpy(out)


@numba.njit
def _amax(x, out):
    for row in range(x.shape[0]):
        greatest = 0.0  # the fault: minus infinity, or the first element
        for column in range(x.shape[1]):
            greatest = max(greatest, x[row, column])
        out[row] = greatest


def amax(x, dim):
    out = np.empty(x.shape[0], np.float32)
    _amax(x.numpy(), out)
    return torch.from_numpy(out)
