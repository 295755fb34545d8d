"""Arguments of samples that are written by hand, drawn from torch's global generator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import torch

from ci_autotest.opinfo.overload_calls import OverloadCall

#: Arguments of a call, by position; a dictionary at the end has those that go by name.
Arguments: TypeAlias = tuple[Any, ...]
#: By operator of the dispatcher, the functions that draw the arguments of its samples.
Samples: TypeAlias = dict[str, tuple[Callable[[], Arguments], ...]]


def t(*shape: int) -> torch.Tensor:
    """Return signed elements."""
    return torch.randn(shape)


def p(*shape: int) -> torch.Tensor:
    """Return elements between 0.1 and 0.9."""
    return 0.1 + 0.8 * torch.rand(shape)


def i(high: int, *shape: int) -> torch.Tensor:
    """Return integers from 0 on."""
    return torch.randint(high, shape)


def b(*shape: int) -> torch.Tensor:
    """Return truth values."""
    return torch.rand(shape) > 0.5  # noqa: PLR2004 - half of them


def f(*values: float) -> torch.Tensor:
    """Return given elements."""
    return torch.tensor(values)


def n(*values: int) -> torch.Tensor:
    """Return given integers."""
    return torch.tensor(values, dtype=torch.int64)


def coo(*shape: int) -> torch.Tensor:
    """Return a sparse tensor."""
    return (t(*shape) * b(*shape)).to_sparse().coalesce()


def csr(*shape: int) -> torch.Tensor:
    """Return a tensor of compressed sparse rows."""
    return (t(*shape) * b(*shape)).to_sparse_csr()


def dnn(*shape: int) -> torch.Tensor:
    """Return a tensor in the layout of oneDNN."""
    return t(*shape).to_mkldnn()


def q(*shape: int) -> torch.Tensor:
    """Return a quantized tensor."""
    return torch.quantize_per_tensor(t(*shape), 0.05, 100, torch.quint8)


def qc(*shape: int) -> torch.Tensor:
    """Return a tensor that is quantized by channel."""
    scales, points = 0.02 + 0.1 * torch.rand(shape[0]), torch.zeros(shape[0], dtype=torch.int64)
    return torch.quantize_per_channel(t(*shape), scales, points, 0, torch.qint8)


def arguments_of(made: Arguments) -> OverloadCall:
    """Return what a sample gives as a call: a dictionary at its end has the arguments that go by name."""
    if made and isinstance(made[-1], dict):
        return OverloadCall(made[:-1], made[-1])
    return OverloadCall(made, {})
