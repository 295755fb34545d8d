"""PyTorch's type promotion on JAX arrays.

JAX promotes a Python float and 64-bit integers to float64, and treats 0-dim arrays like others. PyTorch has a default
dtype, float32, and gives precedence to arrays with dimensions over 0-dim arrays, and to those over Python numbers.

Source: PyTorch 2.13, "Tensor Attributes", type promotion; JAX 0.10, "Type promotion semantics".
"""

from __future__ import annotations

from typing import Any, Final

import jax
import jax.numpy as jnp

#: PyTorch's dtype of a Python number, which counts in a promotion if no array has the same category.
_NUMBERS: Final = {bool: jnp.bool_, int: jnp.int64, float: jnp.float32, complex: jnp.complex64}
_COMPLEX_OF: Final = {"float16": jnp.complex64, "bfloat16": jnp.complex64, "float32": jnp.complex64}


def is_array(value: Any) -> bool:
    """Whether a value is a JAX array, traced or not."""
    return isinstance(value, jax.Array)


def is_integral(value: Any) -> bool:
    """Whether an array has integers or booleans."""
    return not jnp.issubdtype(value.dtype, jnp.inexact)


def floating(input: Any) -> Any:
    """Return integers and booleans in PyTorch's default dtype, float32, and other arrays unchanged."""
    return input.astype(jnp.float32) if is_array(input) and is_integral(input) else input


def result_type(*values: Any) -> Any:
    """Return PyTorch's common dtype of arrays and Python numbers."""
    dims, zeros, numbers = None, None, None
    for value in values:
        if not is_array(value):
            numbers = _joined(numbers, jnp.dtype(_NUMBERS[type(value)]))
        elif value.ndim:
            dims = _joined(dims, value.dtype)
        else:
            zeros = _joined(zeros, value.dtype)
    return _over(dims, _over(zeros, numbers))


def promoted(*values: Any) -> list[Any]:
    """Return values as arrays of PyTorch's common dtype."""
    dtype = result_type(*values)
    return [jnp.asarray(value, dtype) for value in values]


def common_dtype(value: Any, *others: Any) -> Any:
    """Return a value as an array of PyTorch's common dtype of it and the others."""
    return jnp.asarray(value, result_type(value, *others))


def common_float(value: Any, *others: Any) -> Any:
    """Return the same, but in PyTorch's default dtype, float32, if all values are integers or booleans."""
    return floating(common_dtype(value, *others))


def _joined(one: Any, other: Any) -> Any:
    return other if one is None else jnp.promote_types(one, other)


def _over(higher: Any, lower: Any) -> Any:
    """Promote a dtype by one of lower precedence, which can change the category but not the size."""
    if higher is None or lower is None:
        return lower if higher is None else higher
    if jnp.issubdtype(higher, jnp.complexfloating):
        return higher
    if jnp.issubdtype(higher, jnp.floating):
        is_complex = jnp.issubdtype(lower, jnp.complexfloating)
        return jnp.dtype(_COMPLEX_OF.get(higher.name, jnp.complex128)) if is_complex else higher
    if higher == jnp.bool_ or jnp.issubdtype(lower, jnp.inexact):
        return jnp.promote_types(higher, lower)
    return higher
