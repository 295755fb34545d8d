"""MindSpore, which differentiates functions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import mindspore
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

#: Names of what the candidate takes, and of what it is differentiated for.
TAKES: list[str]
WANTED: list[str]


def tensor(array: Any, dtype: str, requires_grad: bool = False) -> Any:
    """Return a tensor with the elements of an array; bfloat16 comes as the float32 of the same values."""
    return mindspore.Tensor(np.array(array)).astype(getattr(mindspore, "bool_" if dtype == "bool" else dtype))


def elements(value: Any) -> Any:
    """Return a tensor's elements and the name of its dtype; any other value as it is."""
    if not isinstance(value, mindspore.Tensor):
        return value
    dtype = str(value.dtype).lower()
    return np.array((value.astype(mindspore.float32) if dtype == "bfloat16" else value).asnumpy()), dtype


def flags_of(name: str, value: Any) -> dict[str, Any]:
    """Return nothing: tensors have no flags."""
    return {}


def differentiated(function: Callable[..., Any], given: dict[str, Any], weights: dict[int, Any]) -> Any:
    """Return a function's outputs and gradients."""
    outputs = function(**{name: given[name] for name in TAKES})
    places = [i for i in weights if i < len(outputs)]
    if not WANTED or not places:
        return outputs, {}

    def whole(*leaves: Any) -> Any:
        now = {**given, **dict(zip(WANTED, leaves))}
        found = function(**{name: now[name] for name in TAKES})
        return found[places[0]] if len(places) == 1 else tuple(found[i] for i in places)

    put_in = tuple(weights[i].astype(outputs[i].dtype) for i in places)
    pull = mindspore.ops.GradOperation(get_all=True, sens_param=True)(whole)
    found = pull(*(given[name] for name in WANTED), put_in[0] if len(put_in) == 1 else put_in)
    return outputs, dict(zip(WANTED, found))
