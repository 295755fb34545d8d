"""Spatial operators: convolutions, pooling by ``reduce_window``, interpolation by ``image.resize``."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.image
import jax.numpy as jnp
import numpy as np

from ci_autotest.host.adapters.sizes import per_dimension
from ci_autotest.host.frameworks.protocol import LackingError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from jax import Array

    from ci_autotest.host.adapters.sizes import Sizes


def _batched(function: Callable[[Any], Array], input: Any, rank: int) -> Array:
    """Call with a batch dimension, which is optional in PyTorch."""
    return function(input) if input.ndim == rank + 2 else function(input[None])[0]


def conv(
    input: Any, weight: Any, bias: Any = None, stride: Sizes = 1, padding: Any = 0, dilation: Sizes = 1, groups: int = 1
) -> Array:
    """Convolve over as many dimensions as the weight has."""
    rank = weight.ndim - 2
    pads = padding.upper() if isinstance(padding, str) else [(size, size) for size in per_dimension(padding, rank)]

    def call(x: Any) -> Array:
        found = jax.lax.conv_general_dilated(
            x,
            weight,
            per_dimension(stride, rank),
            pads,
            rhs_dilation=per_dimension(dilation, rank),
            feature_group_count=groups,
        )
        return _with_bias(found, bias)

    return _batched(call, input, rank)


def conv_transpose(
    input: Any,
    weight: Any,
    bias: Any = None,
    stride: Sizes = 1,
    padding: Sizes = 0,
    output_padding: Sizes = 0,
    groups: int = 1,
    dilation: Sizes = 1,
) -> Array:
    """Convolve the input, dilated by the stride, with the flipped kernel. This is the gradient of ``conv``."""
    rank = weight.ndim - 2
    kernel, dilations = weight.shape[2:], per_dimension(dilation, rank)
    sizes = zip(kernel, dilations, per_dimension(padding, rank), per_dimension(output_padding, rank), strict=True)
    pads = [(d * (k - 1) - p, d * (k - 1) - p + extra) for k, d, p, extra in sizes]
    inner, outer = weight.shape[0] // groups, weight.shape[1]
    # torch stores this weight as (in, out / groups, ...), and a convolution wants (out, in / groups, ...) of each
    # group.
    grouped = jnp.reshape(weight, (groups, inner, outer, *kernel))
    turned = jnp.reshape(jnp.swapaxes(grouped, 1, 2), (groups * outer, inner, *kernel))
    turned = jnp.flip(turned, tuple(range(2, rank + 2)))

    def call(x: Any) -> Array:
        found = jax.lax.conv_general_dilated(
            x,
            turned,
            (1,) * rank,
            pads,
            lhs_dilation=per_dimension(stride, rank),
            rhs_dilation=dilations,
            feature_group_count=groups,
        )
        return _with_bias(found, bias)

    return _batched(call, input, rank)


def _with_bias(output: Any, bias: Any) -> Array:
    found: Array = output if bias is None else output + jnp.reshape(bias, (-1, *(1,) * (output.ndim - 2)))
    return found


def unfold(input: Any, kernel_size: Sizes, dilation: Sizes = 1, padding: Sizes = 0, stride: Sizes = 1) -> Array:
    """Return the patches of a sliding window as columns."""
    pads = [(size, size) for size in per_dimension(padding, 2)]

    def call(x: Any) -> Array:
        found = jax.lax.conv_general_dilated_patches(
            x, per_dimension(kernel_size, 2), per_dimension(stride, 2), pads, rhs_dilation=per_dimension(dilation, 2)
        )
        return jnp.reshape(found, (*found.shape[:2], math.prod(found.shape[2:])))

    return _batched(call, input, 2)


class _Window(NamedTuple):
    """Sizes of a pooling window in each spatial dimension, with the padding before and after the elements."""

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]
    dilation: tuple[int, ...]


def _window(shape: Sequence[int], sizes: tuple[Sizes, Sizes | None, Sizes, Sizes], *, ceil_mode: bool) -> _Window:
    """Return a window with the padding that gives PyTorch's number of windows.

    Source: PyTorch 2.13, ``MaxPool2d``: with ``ceil_mode`` a last partial window counts if it starts inside the input
    or the padding before it.
    """
    rank = len(shape)
    kernel = per_dimension(sizes[0], rank)
    # torch takes an empty stride for a missing one.
    stride = kernel if sizes[1] is None or sizes[1] == () or sizes[1] == [] else per_dimension(sizes[1], rank)
    before, dilation = per_dimension(sizes[2], rank), per_dimension(sizes[3], rank)
    after = []
    for size, k, s, p, d in zip(shape, kernel, stride, before, dilation, strict=True):
        room = size + 2 * p - d * (k - 1) - 1
        count = (-(-room // s) if ceil_mode else room // s) + 1
        if ceil_mode and (count - 1) * s >= size + p:
            count -= 1
        after.append(max((count - 1) * s + d * (k - 1) + 1 - size - p, 0))
    return _Window(kernel, stride, before, tuple(after), dilation)


def _reduced(x: Any, start: Any, function: Any, window: _Window) -> Array:
    # ``start`` must not be a tracer: by its value JAX recognizes maxima and sums, which it can differentiate.
    found: Array = jax.lax.reduce_window(
        x,
        start,
        function,
        (1, 1, *window.kernel),
        (1, 1, *window.stride),
        [(0, 0), (0, 0), *zip(window.before, window.after, strict=True)],
        window_dilation=(1, 1, *window.dilation),
    )
    return found


def max_pool(
    input: Any,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    dilation: Sizes = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
    *,
    rank: int,
) -> Array:
    """Take the maximum in windows over ``rank`` dimensions."""
    if return_indices:
        message = "counterpart of return_indices=True: jax.lax.reduce_window gives no indices"
        raise LackingError(message)
    sizes = (kernel_size, stride, padding, dilation)

    def call(x: Any) -> Array:
        # Padding must lose against every element.
        least = -jnp.inf if jnp.issubdtype(x.dtype, jnp.floating) else jnp.iinfo(x.dtype).min
        start = np.asarray(least, x.dtype)
        return _reduced(x, start, jax.lax.max, _window(x.shape[2:], sizes, ceil_mode=ceil_mode))

    return _batched(call, input, rank)


def avg_pool(
    input: Any,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
    *,
    rank: int,
) -> Array:
    """Average in windows over ``rank`` dimensions."""

    def call(x: Any) -> Array:
        window = _window(x.shape[2:], (kernel_size, stride, padding, 1), ceil_mode=ceil_mode)
        zero = np.zeros((), x.dtype)
        total = _reduced(x, zero, jax.lax.add, window)
        if divisor_override is not None:
            return total / jnp.asarray(divisor_override, x.dtype)
        # The divisor is the number of elements in a window, which is the same pooling of ones: padding counts as an
        # element if ``count_include_pad``, and what a last partial window reaches beyond the padding never does.
        ones = jnp.ones((1, 1, *x.shape[2:]), x.dtype)
        if count_include_pad:
            ones = jnp.pad(ones, [(0, 0), (0, 0), *((p, p) for p in window.before)], constant_values=1)
            after = [a - p for a, p in zip(window.after, window.before, strict=True)]
            ones = ones[(..., *(slice(None, size + min(a, 0)) for size, a in zip(ones.shape[2:], after, strict=True)))]
            window = window._replace(before=(0,) * rank, after=tuple(max(a, 0) for a in after))
        return total / _reduced(ones, zero, jax.lax.add, window)

    return _batched(call, input, rank)


def interpolate(
    input: Any,
    size: Sizes | None = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> Array:
    """Resize. JAX's ``nearest`` is PyTorch's ``nearest-exact``; its cubic coefficient is -0.5 instead of -0.75."""
    method = {"nearest-exact": "nearest", "linear": "linear", "bilinear": "linear", "trilinear": "linear"}.get(mode)
    if method is None or align_corners:
        message = f"counterpart of mode={mode!r}, align_corners={align_corners}: jax.image.resize has no such mode"
        raise LackingError(message)
    old = input.shape[2:]
    if size is None:
        scales = [scale_factor] * len(old) if isinstance(scale_factor, int | float) else list(scale_factor)
        exact = [length * scale for length, scale in zip(old, scales, strict=True)]
        if not recompute_scale_factor and any(length != int(length) for length in exact):
            message = (
                f"counterpart of scale_factor={scale_factor} of {tuple(old)}: jax.image.resize takes whole sizes only"
            )
            raise LackingError(message)
        new = tuple(int(length) for length in exact)
    else:
        new = per_dimension(size, len(old))
    return jax.image.resize(input, (*input.shape[:2], *new), method, antialias=antialias)
