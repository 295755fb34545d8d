"""Arithmetic on several values, where PyTorch's type promotion alone does not give the call of JAX.

Operators that need promotion and nothing else have no function here: their rows say ``promote``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax.numpy as jnp

from ci_autotest.host.adapters.jax_promotion import common_float, is_array, is_integral, promoted, result_type
from ci_autotest.host.frameworks.protocol import LackingError

if TYPE_CHECKING:
    from jax import Array


def div(input: Any, other: Any, rounding_mode: str | None = None) -> Array:
    """Divide, and round down if asked; JAX has no division that rounds towards zero."""
    if rounding_mode == "floor":
        return jnp.floor_divide(*promoted(input, other))
    if rounding_mode is not None:
        message = f"counterpart of rounding_mode={rounding_mode!r}: jax.numpy has only true_divide and floor_divide"
        raise LackingError(message)
    return jnp.true_divide(common_float(input, other), common_float(other, input))


def pow(input: Any, exponent: Any) -> Array:
    """Raise to a power. An integer exponent stays a Python number, because then JAX knows the derivative everywhere."""
    if is_array(input) and type(exponent) is int and not (is_integral(input) and exponent < 0):
        return jnp.power(input, exponent)
    base, power = promoted(input, exponent)
    return jnp.power(base, power)


def clamp(input: Any, min: Any = None, max: Any = None) -> Array:
    """Limit to the range between two bounds."""
    dtype = result_type(*(value for value in (input, min, max) if value is not None))
    low, high = (None if bound is None else jnp.asarray(bound, dtype) for bound in (min, max))
    return jnp.clip(input.astype(dtype), low, high)


def where(condition: Any, input: Any, other: Any) -> Array:
    """Choose elements by a mask."""
    one, two = promoted(input, other)
    return jnp.where(condition, one, two)


def masked_fill(input: Any, mask: Any, value: Any) -> Array:
    """Replace elements where a mask is true. The number takes the array's dtype."""
    return jnp.where(mask, jnp.asarray(value, input.dtype), input)
