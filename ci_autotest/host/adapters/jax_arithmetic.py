"""Arithmetic and comparison of two values: JAX's functions after PyTorch's promotion of types."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
import jax.scipy.special as jsp

from ci_autotest.host.adapters.jax_promotion import (
    is_array,
    is_integral,
    promoted,
    promoted_floating,
    result_type,
)
from ci_autotest.host.frameworks.protocol import LackingError

if TYPE_CHECKING:
    from jax import Array


def add(input: Any, other: Any) -> Array:
    """Add."""
    return jnp.add(*promoted(input, other))


def sub(input: Any, other: Any) -> Array:
    """Subtract."""
    return jnp.subtract(*promoted(input, other))


def mul(input: Any, other: Any) -> Array:
    """Multiply."""
    return jnp.multiply(*promoted(input, other))


def div(input: Any, other: Any, rounding_mode: str | None = None) -> Array:
    """Divide; rounding down is ``floor_divide``, and JAX has no division that rounds towards zero."""
    if rounding_mode == "floor":
        return floor_divide(input, other)
    if rounding_mode is not None:
        message = f"counterpart of rounding_mode={rounding_mode!r}: jax.numpy has true_divide and floor_divide"
        raise LackingError(message)
    return jnp.true_divide(*promoted_floating(input, other))


def floor_divide(input: Any, other: Any) -> Array:
    """Divide and round down."""
    return jnp.floor_divide(*promoted(input, other))


def remainder(input: Any, other: Any) -> Array:
    """Return the remainder with the divisor's sign."""
    return jnp.remainder(*promoted(input, other))


def fmod(input: Any, other: Any) -> Array:
    """Return the remainder with the dividend's sign."""
    return jnp.fmod(*promoted(input, other))


def pow(input: Any, exponent: Any) -> Array:
    """Raise to a power; an integer exponent stays a Python number, of which JAX knows the derivative everywhere."""
    if is_array(input) and type(exponent) is int and not (is_integral(input) and exponent < 0):
        return jnp.power(input, exponent)
    base, power = promoted(input, exponent)
    return jnp.power(base, power)


def maximum(input: Any, other: Any) -> Array:
    """Return the larger of two, NaN where one is NaN."""
    return jnp.maximum(*promoted(input, other))


def minimum(input: Any, other: Any) -> Array:
    """Return the smaller of two, NaN where one is NaN."""
    return jnp.minimum(*promoted(input, other))


def clamp(input: Any, min: Any = None, max: Any = None) -> Array:
    """Cut at two bounds."""
    dtype = result_type(*(value for value in (input, min, max) if value is not None))
    low, high = (None if bound is None else jnp.asarray(bound, dtype) for bound in (min, max))
    return jnp.clip(input.astype(dtype), low, high)


def where(condition: Any, input: Any, other: Any) -> Array:
    """Choose by a mask."""
    one, two = promoted(input, other)
    return jnp.where(condition, one, two)


def masked_fill(input: Any, mask: Any, value: Any) -> Array:
    """Put a number where a mask is true, in the array's own dtype."""
    return jnp.where(mask, jnp.asarray(value, input.dtype), input)


def atan2(input: Any, other: Any) -> Array:
    """Return the angle of a point."""
    return jnp.arctan2(*promoted_floating(input, other))


def hypot(input: Any, other: Any) -> Array:
    """Return the length of a leg and a leg."""
    return jnp.hypot(*promoted_floating(input, other))


def copysign(input: Any, other: Any) -> Array:
    """Return magnitudes with other signs."""
    return jnp.copysign(*promoted_floating(input, other))


def heaviside(input: Any, values: Any) -> Array:
    """Return the step function."""
    return jnp.heaviside(*promoted(input, values))


def logaddexp(input: Any, other: Any) -> Array:
    """Return the logarithm of a sum of exponentials."""
    return jnp.logaddexp(*promoted_floating(input, other))


def xlogy(input: Any, other: Any) -> Array:
    """Return ``x log y``."""
    return jsp.xlogy(*promoted_floating(input, other))


def xlog1py(input: Any, other: Any) -> Array:
    """Return ``x log(1 + y)``."""
    return jsp.xlog1py(*promoted_floating(input, other))


def zeta(input: Any, other: Any) -> Array:
    """Return the Hurwitz zeta function."""
    return jsp.zeta(*promoted_floating(input, other))


def gammainc(input: Any, other: Any) -> Array:
    """Return the regularized lower incomplete gamma function."""
    return jsp.gammainc(*promoted_floating(input, other))


def eq(input: Any, other: Any) -> Array:
    """Compare for equality."""
    return jnp.equal(*promoted(input, other))


def ne(input: Any, other: Any) -> Array:
    """Compare for difference."""
    return jnp.not_equal(*promoted(input, other))


def lt(input: Any, other: Any) -> Array:
    """Compare."""
    return jnp.less(*promoted(input, other))


def le(input: Any, other: Any) -> Array:
    """Compare."""
    return jnp.less_equal(*promoted(input, other))


def gt(input: Any, other: Any) -> Array:
    """Compare."""
    return jnp.greater(*promoted(input, other))


def ge(input: Any, other: Any) -> Array:
    """Compare."""
    return jnp.greater_equal(*promoted(input, other))


def bitwise_and(input: Any, other: Any) -> Array:
    """Combine bits."""
    return jnp.bitwise_and(*promoted(input, other))


def bitwise_or(input: Any, other: Any) -> Array:
    """Combine bits."""
    return jnp.bitwise_or(*promoted(input, other))


def bitwise_xor(input: Any, other: Any) -> Array:
    """Combine bits."""
    return jnp.bitwise_xor(*promoted(input, other))


def bitwise_left_shift(input: Any, other: Any) -> Array:
    """Shift bits."""
    return jnp.left_shift(*promoted(input, other))


def outer(input: Any, vec2: Any) -> Array:
    """Multiply each element of a vector by each of another."""
    return jnp.outer(*promoted(input, vec2))
