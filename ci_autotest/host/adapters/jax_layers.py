"""Layers: activations with parameters, affine maps, normalization by ``standardize``, attention."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp

from ci_autotest.host.frameworks.protocol import LackingError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jax import Array


def gelu(input: Any, approximate: str = "none") -> Array:
    """Apply the Gaussian error linear unit. PyTorch's default is the exact one, JAX's is the approximation."""
    return jax.nn.gelu(input, approximate=approximate == "tanh")


def dropout(input: Any, p: float = 0.5, training: bool = True) -> Array:
    """Return the input if nothing is dropped: which elements are dropped depends on PyTorch's generator."""
    if training and p:
        message = f"counterpart of p={p}, training=True: its generator drops other elements"
        raise LackingError(message)
    found: Array = input
    return found


def linear(input: Any, weight: Any, bias: Any = None) -> Array:
    """Multiply by a transposed matrix and add."""
    found = jnp.matmul(input, jnp.swapaxes(weight, -1, -2) if weight.ndim > 1 else weight)
    return found if bias is None else found + bias


def _affine(input: Any, product: Any, beta: Any, alpha: Any) -> Array:
    scaled = product if alpha == 1 else product * jnp.asarray(alpha, product.dtype)
    # torch documents that the input is ignored then, so that its NaN and infinities do not spread.
    if beta == 0:
        return jnp.broadcast_to(scaled, jnp.broadcast_shapes(scaled.shape, input.shape))
    added: Array = scaled + (input if beta == 1 else input * jnp.asarray(beta, input.dtype))
    return added


def addmm(input: Any, mat1: Any, mat2: Any, beta: Any = 1, alpha: Any = 1) -> Array:
    """Multiply matrices and add."""
    return _affine(input, jnp.matmul(mat1, mat2), beta, alpha)


def addmv(input: Any, mat: Any, vec: Any, beta: Any = 1, alpha: Any = 1) -> Array:
    """Multiply a matrix by a vector and add."""
    return _affine(input, jnp.matmul(mat, vec), beta, alpha)


def addr(input: Any, vec1: Any, vec2: Any, beta: Any = 1, alpha: Any = 1) -> Array:
    """Multiply two vectors to a matrix and add."""
    return _affine(input, jnp.outer(vec1, vec2), beta, alpha)


def baddbmm(input: Any, batch1: Any, batch2: Any, beta: Any = 1, alpha: Any = 1) -> Array:
    """Multiply batches of matrices and add."""
    return _affine(input, jnp.matmul(batch1, batch2), beta, alpha)


def einsum(equation: str, operands: Sequence[Any]) -> Array:
    """Compute an Einstein summation."""
    found: Array = jnp.einsum(equation, *operands)
    return found


def layer_norm(
    input: Any, normalized_shape: Sequence[int], weight: Any = None, bias: Any = None, eps: float = 1e-5
) -> Array:
    """Normalize over the last dimensions."""
    # JAX's default computes the variance as a difference of large numbers, which loses digits; `stable` does not.
    axes = tuple(range(-len(normalized_shape), 0))
    return _scaled(jax.nn.standardize(input, axes, epsilon=eps, algorithm="stable"), weight, bias)


def _scaled(input: Any, weight: Any, bias: Any) -> Array:
    scaled = input if weight is None else input * weight
    found: Array = scaled if bias is None else scaled + bias
    return found


def _by_channel(value: Any, rank: int) -> Any:
    return None if value is None else jnp.reshape(value, (-1, *(1,) * (rank - 2)))


def batch_norm(
    input: Any,
    running_mean: Any = None,
    running_var: Any = None,
    weight: Any = None,
    bias: Any = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Array:
    """Normalize each channel by the given statistics, or by those of the batch. No state is updated."""
    rank = input.ndim
    if training and running_mean is not None:
        message = "counterpart of training=True with running_mean: arrays of JAX are never written to"
        raise LackingError(message)
    axes = (0, *range(2, rank))
    if training:
        found = jax.nn.standardize(input, axes, epsilon=eps, algorithm="stable")
    else:
        mean, variance = _by_channel(running_mean, rank), _by_channel(running_var, rank)
        found = jax.nn.standardize(input, axes, mean, variance, epsilon=eps)
    return _scaled(found, _by_channel(weight, rank), _by_channel(bias, rank))


def instance_norm(
    input: Any,
    running_mean: Any = None,
    running_var: Any = None,
    weight: Any = None,
    bias: Any = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Array:
    """Normalize each channel of each sample."""
    if running_mean is not None or not use_input_stats:
        message = "counterpart of running statistics: arrays of JAX are never written to"
        raise LackingError(message)
    found = jax.nn.standardize(input, tuple(range(2, input.ndim)), epsilon=eps, algorithm="stable")
    return _scaled(found, _by_channel(weight, input.ndim), _by_channel(bias, input.ndim))


def group_norm(input: Any, num_groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Array:
    """Normalize each group of channels of each sample."""
    size = input.shape[1] // num_groups
    grouped = jnp.reshape(input, (input.shape[0], num_groups, size, *input.shape[2:]))
    found = jax.nn.standardize(grouped, tuple(range(2, grouped.ndim)), epsilon=eps, algorithm="stable")
    return _scaled(jnp.reshape(found, input.shape), _by_channel(weight, input.ndim), _by_channel(bias, input.ndim))


def scaled_dot_product_attention(
    query: Any, key: Any, value: Any, attn_mask: Any = None, is_causal: bool = False, scale: float | None = None
) -> Array:
    """Compute attention. In JAX the dimension of heads follows that of the sequence."""
    if query.ndim not in {3, 4} or value.shape[-1] != key.shape[-1]:
        message = "counterpart of values with another size than the keys, or of several batch dimensions"
        raise LackingError(message)
    mask, bias = None, None
    if attn_mask is not None:
        # torch broadcasts a mask; JAX wants its four dimensions.
        spread = jnp.reshape(attn_mask, (*(1,) * (4 - attn_mask.ndim), *attn_mask.shape))
        # In torch a boolean mask says which elements take part, and any other is added to the scores.
        mask, bias = (spread, None) if attn_mask.dtype == jnp.bool_ else (None, spread)
    heads = [_heads_last(x) for x in (query, key, value)]
    found = jax.nn.dot_product_attention(*heads, bias, mask, scale=scale, is_causal=is_causal)
    return jnp.swapaxes(found, 1, 2) if query.ndim == 4 else found[:, :, 0]  # noqa: PLR2004 - batch, heads, length, size


def _heads_last(input: Any) -> Any:
    return jnp.swapaxes(input, 1, 2) if input.ndim == 4 else input[:, :, None]  # noqa: PLR2004
