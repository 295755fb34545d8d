"""Functions that rows of ``oneflow.yml`` name as ``adapters.NAME``, for operators that it documents differently."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import oneflow

from ci_autotest.host.frameworks.protocol import LackingError

if TYPE_CHECKING:
    from collections.abc import Sequence


def long(result: Any) -> Any:
    """Return indices as int64, as torch does."""
    return result.long()


def with_long_indices(result: Sequence[Any]) -> tuple[Any, Any]:
    """Return values, and indices as int64, as torch does."""
    return result[0], result[1].long()


def argmax(input: Any, dim: int | None = None, keepdim: bool = False) -> Any:
    """Return the index of the maximum."""
    _need_dim(dim, keepdim)
    return oneflow.argmax(input, dim=dim, keepdim=keepdim)


def argmin(input: Any, dim: int | None = None, keepdim: bool = False) -> Any:
    """Return the index of the minimum."""
    _need_dim(dim, keepdim)
    return oneflow.argmin(input, dim=dim, keepdim=keepdim)


def lerp_(input: Any, end: Any, weight: Any) -> Any:
    """Move a tensor towards another in place, as PyTorch's Adam does with its averages.

    Source:
        ATen/native/Lerp.h (PyTorch 2.13): each of its two formulas is exact at its end.
    """
    if not isinstance(weight, int | float):
        message = "lerp_ with a tensor as its weight"
        raise LackingError(message)
    if abs(weight) < 0.5:  # noqa: PLR2004 - PyTorch's
        return input.add_((end - input) * weight)
    input.copy_(end - (end - input) * (1 - weight))  # returns nothing
    return input


def _need_dim(dim: int | None, keepdim: bool) -> None:
    if dim is None and keepdim:
        message = "keepdim without dim: its documentation says that it is ignored"
        raise LackingError(message)
