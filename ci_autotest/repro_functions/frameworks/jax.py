"""JAX, which differentiates functions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

#: Names of what the candidate takes, and of what it is differentiated for.
TAKES: list[str]
WANTED: list[str]


def tensor(array: Any, dtype: str, requires_grad: bool = False) -> Any:
    """Return an array of JAX; bfloat16 comes as the float32 of the same values."""
    return jax.numpy.asarray(array, dtype=dtype)


def elements(value: Any) -> Any:
    """Return an array's elements and the name of its dtype; any other value as it is."""
    if not isinstance(value, jax.Array):
        return value
    dtype = str(value.dtype)
    return np.array(value.astype("float32") if dtype == "bfloat16" else value), dtype


def flags_of(name: str, value: Any) -> dict[str, Any]:
    """Return nothing: arrays have no flags."""
    return {}


def differentiated(function: Callable[..., Any], given: dict[str, Any], weights: dict[int, Any]) -> Any:
    """Return a function's outputs and gradients; a complex gradient is the conjugate of JAX's."""
    wanted = {name: given[name] for name in WANTED}

    def whole(leaves: dict[str, Any]) -> Any:
        return function(**{name: {**given, **leaves}[name] for name in TAKES})

    outputs = whole({})
    places = [i for i in weights if i < len(outputs)]
    if not wanted or not places:
        return outputs, {}
    _, pull = jax.vjp(lambda leaves: [whole(leaves)[i] for i in places], wanted)
    (gradients,) = pull([weights[i].conj().astype(outputs[i].dtype) for i in places])
    return outputs, {name: gradient.conj() for name, gradient in gradients.items()}
