"""OneFlow's ranks: a process each, whose tensors are global; what is not here is as in one process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import oneflow

if TYPE_CHECKING:
    from collections.abc import Callable

#: The placement of all ranks, and how a tensor lies that is the same on each.
PLACEMENT: Any
EVERYWHERE: Any


def wide(value: Any) -> Any:
    """Return float16 and bfloat16 as float32: OneFlow cannot send them to other ranks on the CPU."""
    return value.to(oneflow.float32) if value.dtype in (oneflow.float16, oneflow.bfloat16) else value


def tensor(array: Any, dtype: str, requires_grad: bool = False, lies: Any = None) -> Any:
    """Return a leaf that lies on the ranks."""
    lies = oneflow.sbp.broadcast if lies is None else lies
    array, kind, is_sum = np.array(array), getattr(oneflow, dtype), lies == oneflow.sbp.partial_sum
    if is_sum:  # the ranks hold 2x and -x, whose sum is x
        with np.errstate(over="ignore"):
            double = array + array
        splits = np.isfinite(double) & (array != 0)
        nothing = np.negative(np.zeros_like(array)) if array.dtype.kind == "f" else np.zeros_like(array)
        summands = np.where(splits, double, array), np.where(splits, np.negative(array), nothing), nothing
        array = summands[min(oneflow.env.get_rank(), 2)]
    made = wide((oneflow.from_numpy(array) if array.size else oneflow.zeros(array.shape)).to(kind))
    with oneflow.no_grad():
        made = made if is_sum else made.to_global(PLACEMENT, EVERYWHERE)
        made = made.to_global(PLACEMENT, [lies]).to(kind).detach()
    return made.requires_grad_() if requires_grad else made


def elements(value: Any) -> Any:
    """Return a tensor's elements and the name of its dtype; any other value as it is."""
    if not isinstance(value, oneflow.Tensor):
        return value
    dtype = str(value.dtype).rpartition(".")[2]
    value = wide(value.detach())
    array = (value.to_global(PLACEMENT, EVERYWHERE).to_local() if value.is_global else value).numpy()
    return np.array(array.astype("float16") if dtype == "float16" else array), dtype


def on_ranks(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function whose tensors are the same on every rank, if it makes them from no other tensor."""

    def called(*args: Any, **kwargs: Any) -> Any:
        found = function(*args, **kwargs)
        is_local = isinstance(found, oneflow.Tensor) and not found.is_global
        return found.to_global(PLACEMENT, EVERYWHERE) if is_local or hasattr(found, "named_parameters") else found

    return called
