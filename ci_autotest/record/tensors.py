"""``random_tensor``: a placeholder of the program with drawn shape, layout and data."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import torch

from ci_autotest.errors import AuthorError
from ci_autotest.program.ir import COMPLEX, FLOATING, ITEM_SIZE, TensorSpec, contiguous_strides
from ci_autotest.record.current import CURRENT
from ci_autotest.record.data import WIDE_DTYPE, default_range, elements
from ci_autotest.record.draws import COTANGENT_SLOT
from ci_autotest.record.dtypes import drawn_range, dtype_name
from ci_autotest.record.generators import Generator, settle
from ci_autotest.record.profiles import ORDINARY, VALUE_PROFILES, shaped, strided, valued

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from ci_autotest.record.draws import Drawer
    from ci_autotest.record.values import Value

#: Bounds of free sizes, exclusive above; source: OneFlow's AutoTest 0.9.0 (``ndim`` 1..5, free
#: dimensions 1..7).
NDIM: Final = (1, 6)
FREE_SIZE: Final = (1, 8)
_FREE_LOW, _FREE_HIGH = FREE_SIZE
_DIMS: Final = 5
_DIM_FIELDS: Final = tuple(f".dim{i}" for i in range(_DIMS))
_NONE: Final = (None,) * _DIMS
_GRAD_DTYPES: Final = FLOATING | COMPLEX
_DEFAULT_BOUNDS: Final = {dtype: default_range(dtype) for dtype in ITEM_SIZE}


def draw_tensor(
    ndim: int | Generator | None,
    dims: Sequence[int | Generator | None],
    low: float | Generator | None,
    high: float | Generator | None,
    dtype: Any,  # noqa: ANN401 - a type, a torch dtype or a generator
    requires_grad: bool | Generator,  # noqa: FBT001 - OneFlow's
) -> Value:
    """Record a tensor of drawn shape and data.

    Args:
        ndim: Number of dimensions; drawn from 1 to 5 unless given.
        dims: Sizes in elements; ``None`` is free. A given size beyond ``ndim`` is an error.
        low: Least value, in the unit of the elements; together with ``high``.
        high: Upper bound, exclusive.
        dtype: ``float``, ``int``, ``bool``, ``complex``, a torch dtype, or a generator of one.
        requires_grad: Whether the leaf asks for its gradient; integers and booleans never do.

    Raises:
        AuthorError: Called outside a test, or with arguments that contradict one another.
    """
    recorder = CURRENT.get()
    if recorder is None:
        message = (
            "random_tensor() was called outside a test. Call it in the body of a function decorated with @autotest."
        )
        raise AuthorError(message)
    drawer = recorder.drawer
    site = drawer.site()
    kind = "float32" if dtype is float else dtype_name(settle(drawer, dtype))
    shape, fitted = _shape(drawer, site, ndim, dims)
    bounds = _DEFAULT_BOUNDS[kind] if low is None and high is None else drawn_range(drawer, low, high, kind)
    with_grad = kind in _GRAD_DTYPES and (
        requires_grad if type(requires_grad) is bool else bool(settle(drawer, requires_grad, bool))
    )
    spec = _contiguous(kind, shape, with_grad)
    is_ordinary = drawer.profile == ORDINARY
    if not is_ordinary:
        layout = strided(drawer, site, shape)
        if layout is not None:
            spec, fitted = TensorSpec(kind, shape, *layout, with_grad), True
    is_free = low is None and high is None
    array = _small(drawer, site, spec) if is_free and kind == "float32" else None
    if array is None:
        source_shape = shape if spec.is_contiguous else (spec.storage_size,)
        array = elements(drawer.streams, site, kind, source_shape, bounds)
    if not is_ordinary and is_free:
        fitted = valued(drawer, site, kind, array) or fitted
    if fitted:
        recorder.profile_applied = True
    source = torch.from_numpy(array)
    if kind in WIDE_DTYPE:
        source = source.to(getattr(torch, kind))
    return recorder.tensor(source, spec)


def _small(drawer: Drawer, site: str, spec: TensorSpec) -> NDArray[np.float32] | None:
    """Return ordinary data of a small float32 storage, in shape where contiguous, or ``None`` for a large one."""
    slot = int(site)
    found = drawer.streams.small(slot, spec.storage_size) if slot < COTANGENT_SLOT else None
    if found is None:
        return None
    if drawer.profile in VALUE_PROFILES:
        found = found.copy()  # its elements will be written to, and the words are shared
    return found.reshape(spec.shape) if spec.is_contiguous else found


@lru_cache(maxsize=4096)
def _contiguous(kind: str, shape: tuple[int, ...], with_grad: bool) -> TensorSpec:  # noqa: FBT001 - part of the key
    return TensorSpec(kind, shape, contiguous_strides(shape), 0, math.prod(shape), with_grad)


def _shape(
    drawer: Drawer, site: str, ndim: int | Generator | None, dims: Sequence[int | Generator | None]
) -> tuple[tuple[int, ...], bool]:
    """Return the sizes, and whether the profile changed them."""
    if type(ndim) is int and ndim <= _DIMS and drawer.profile == ORDINARY and dims[ndim:] == _NONE[ndim:]:
        return _plain_shape(drawer, site, dims[:ndim]), False
    given = max((i + 1 for i, dim in enumerate(dims) if dim is not None), default=0)
    if ndim is None:
        if drawer.profile == "zero_dim" and not given:
            return (), True
        count = drawer.integer(f"{site}.ndim", max(NDIM[0], given), max(NDIM[1], given + 1), "ndim")
    else:
        count = int(settle(drawer, ndim, int))
        if isinstance(ndim, int) and given > count:
            message = f"random_tensor(ndim={count}) is given dim{given - 1}. Drop it, or raise ndim to {given}."
            raise AuthorError(message)
    shape = []
    free = []
    for i in range(count):
        dim = dims[i] if i < len(dims) else None
        if dim is None:
            free.append(i)
            shape.append(drawer.integer(f"{site}.dim{i}", FREE_SIZE[0], FREE_SIZE[1], "dim"))
        else:
            shape.append(dim if type(dim) is int else int(settle(drawer, dim, int)))
    changed = drawer.profile != ORDINARY and shaped(drawer, site, shape, free)
    if any(size < 0 for size in shape):
        raise AuthorError(_negative(tuple(shape)))
    return tuple(shape), changed


def _plain_shape(drawer: Drawer, site: str, dims: Sequence[int | Generator | None]) -> tuple[int, ...]:
    """Return the sizes of an ordinary tensor whose number of dimensions the test wrote."""
    shape = []
    for i, dim in enumerate(dims):
        if dim is None:
            shape.append(drawer.integer(f"{site}{_DIM_FIELDS[i]}", _FREE_LOW, _FREE_HIGH, "dim"))
        elif type(dim) is int:
            shape.append(dim)
        else:
            shape.append(int(settle(drawer, dim, int)))
    if shape and min(shape) < 0:
        raise AuthorError(_negative(tuple(shape)))
    return tuple(shape)


def _negative(shape: tuple[int, ...]) -> str:
    return f"random_tensor() is given a negative size: {shape}. Sizes are 0 or more."
