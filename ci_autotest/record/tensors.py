"""Implementation of ``random_tensor``: it records a placeholder with drawn shape, layout and data."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import torch

from ci_autotest.errors import AuthorError
from ci_autotest.program.ir import TensorSpec
from ci_autotest.record.author_names import author_name
from ci_autotest.record.context import recorder_for
from ci_autotest.record.draw.dtypes import drawn_range, dtype_name
from ci_autotest.record.draw.generators import Generator, drawn_size, settle
from ci_autotest.record.draw.profiles import (
    LARGE_SHAPES,
    ORDINARY,
    VALUE_PROFILES,
    Bounds,
    large_size,
    obstacle,
    shaped,
    strided,
    valued,
)
from ci_autotest.record.draw.streams import COTANGENT_SLOT, SMALL
from ci_autotest.record.draw.tensor_data import WIDE_DTYPE, default_range, elements
from ci_autotest.values.case import FREE_SIZE
from ci_autotest.values.dtypes import DIFFERENTIABLE, DTYPES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ci_autotest.record.draw.draws import Drawer
    from ci_autotest.record.recorder import Recorder
    from ci_autotest.record.values import RecordedTensor


#: Bounds of ``ndim``; the upper one is exclusive. Source: OneFlow's AutoTest 0.9.0.
NDIM: Final = (1, 6)
_DIMS: Final = 5
#: Least number of elements of a tensor that counts as large.
_LARGE: Final = 1024
_NONE: Final = (None,) * _DIMS
_from_numpy: Final = torch.from_numpy
_DEFAULT_BOUNDS: Final = {dtype: default_range(dtype) for dtype in DTYPES}


def draw_tensor(
    ndim: int | Generator | None,
    dims: Sequence[int | Generator | None],
    low: float | Generator | None,
    high: float | Generator | None,
    dtype: Any,
    requires_grad: bool | Generator,  # noqa: FBT001 - OneFlow's
) -> RecordedTensor:
    """Record a tensor with drawn shape and data.

    Args:
        ndim: Number of dimensions; drawn from 1 to 5 if ``None``.
        dims: Sizes in elements; ``None`` is free. A size beyond ``ndim`` is an error, or is dropped if that is drawn.
        low: Lowest value, in the unit of the elements.
        high: Upper bound, exclusive.
        dtype: ``float``, ``int``, ``bool``, ``complex``, a torch dtype, or a generator of one.
        requires_grad: True if the tensor requires grad; integers and booleans never do.

    Raises:
        AuthorError: Called outside a test, or with arguments that contradict each other.
    """
    recorder = recorder_for("random_tensor")
    drawer = recorder.drawer
    slot = drawer.next_site
    drawer.next_site = slot + 1
    if drawer.names is not None:
        drawer.name(str(slot), author_name(drawer.names.__contains__))
    if dtype is float and recorder.dtype is not None:
        dtype = recorder.dtype
    kind = "float32" if dtype is float else dtype_name(settle(drawer, dtype))
    sizes, free = _sizes(drawer, slot, ndim, dims)
    with_grad = requires_grad if type(requires_grad) is bool else bool(settle(drawer, requires_grad, bool))
    spec, count = usual_spec(kind, tuple(sizes), with_grad)
    if drawer.profile != ORDINARY or low is not None or high is not None or slot >= COTANGENT_SLOT or kind != "float32":
        unusual: RecordedTensor = recorder.tensor(*_unusual(recorder, str(slot), spec, (sizes, free), (low, high)))
        return unusual
    # Ordinary float32 tensors in the default range are the most common ones, so they skip `_unusual`.
    _note(drawer, slot, sizes, free)
    if count <= SMALL:
        array = drawer.streams.small(slot, count)
    else:
        array = elements(drawer.streams, str(slot), "float32", spec.shape, _DEFAULT_BOUNDS["float32"])
    value: RecordedTensor = recorder.tensor(_from_numpy(array.reshape(spec.shape)), spec)
    return value


def _unusual(
    recorder: Recorder,
    site: str,
    spec: TensorSpec,
    drawn: tuple[list[int], list[int]],
    given: tuple[float | Generator | None, float | Generator | None],
) -> tuple[torch.Tensor, TensorSpec]:
    """Return the data and spec of any tensor; those of an ordinary tensor are the same as on the fast path above."""
    drawer, kind = recorder.drawer, spec.dtype
    count = spec.storage_size
    fitted = (drawer.profile == "zero_dim" and not spec.shape) or (drawer.profile == LARGE_SHAPES and count >= _LARGE)
    if drawer.profile != ORDINARY:
        sizes, free = drawn
        if shaped(drawer, site, sizes, free):
            (spec, count), fitted = usual_spec(kind, tuple(sizes), spec.requires_grad), True
        layout = strided(drawer, site, spec.shape)
        if layout is not None:
            spec, fitted = TensorSpec(kind, spec.shape, *layout, spec.requires_grad), True
            count = spec.storage_size
    is_free, bounds = given == (None, None), None
    slot = int(site)
    _note(drawer, slot, *drawn)
    if is_free and kind == "float32" and count <= SMALL and slot < COTANGENT_SLOT:
        array = drawer.streams.small(slot, count)
    else:
        drawn_from = _DEFAULT_BOUNDS[kind] if is_free else drawn_range(drawer, *given, kind)
        bounds = None if is_free else Bounds(*drawn_from, given[0] is None, given[1] is None)
        array = elements(drawer.streams, site, kind, (count,), drawn_from)
    if drawer.profile in VALUE_PROFILES:
        array = array.copy()  # small arrays are shared
        fitted = valued(drawer.profile, drawer.streams, site, kind, array, bounds) or fitted
    if not fitted and drawer.profile != ORDINARY:
        recorder.notes.profile_obstacle = obstacle(drawer.profile, kind, is_bounded=bounds is not None, count=count)
    recorder.notes.profile_applied = recorder.notes.profile_applied or fitted
    source = _from_numpy(array.reshape(spec.shape) if spec.is_contiguous else array)
    return source.to(getattr(torch, kind)) if kind in WIDE_DTYPE else source, spec


def _note(drawer: Drawer, slot: int, sizes: list[int], free: list[int]) -> None:
    """Note the final sizes of the free dimensions of a tensor."""
    for i in free:
        drawer.plan.saw(f"{slot}.dim{i}", sizes[i])


@lru_cache(maxsize=4096)
def usual_spec(kind: str, shape: tuple[int, ...], with_grad: bool) -> tuple[TensorSpec, int]:  # noqa: FBT001 - part of the key
    """Return the spec of a contiguous tensor, and its number of elements.

    Raises:
        AuthorError: A size is negative.
    """
    if shape and min(shape) < 0:
        message = f"random_tensor() got a negative size: {shape}. Sizes are 0 or more."
        raise AuthorError(message)
    return TensorSpec.plain(kind, shape, requires_grad=with_grad and kind in DIFFERENTIABLE), math.prod(shape)


def _sizes(
    drawer: Drawer, slot: int, ndim: int | Generator | None, dims: Sequence[int | Generator | None]
) -> tuple[list[int], list[int]]:
    """Return the sizes, and the indices of the free dimensions."""
    if ndim is None and drawer.profile == "zero_dim" and dims == _NONE:
        return [], []
    turn = drawer.plan.claim(_open(dims, ndim if type(ndim) is int else _DIMS))
    if type(ndim) is not int or dims[ndim:] != _NONE[ndim:]:
        drawer.least = 0 if turn is None or drawer.plan.is_refused else turn + 1
        ndim = _ndim(drawer, slot, ndim, dims)
        drawer.least = 0
        turn = None if turn is not None and turn >= ndim else turn
    if ndim < 0:
        message = f"random_tensor(ndim={ndim}): a tensor cannot have fewer than 0 dimensions. Give 0 or more."
        raise AuthorError(message)
    if drawer.profile == LARGE_SHAPES:
        # Sizes that the test draws from a small range are scaled, so that the tensor has about as many elements.
        drawer.scale = max(1, large_size(ndim) // FREE_SIZE[1])
    given = (*dims[:ndim], *[None] * (ndim - len(dims)))
    sizes, free = _drawn_sizes(drawer, slot, given, turn)
    drawer.scale = 1
    return sizes, free


def _open(dims: Sequence[int | Generator | None], ndim: int) -> Sequence[int]:
    """Return the free dimensions of a tensor that has up to ``ndim`` dimensions."""
    return range(ndim) if dims == _NONE else [i for i in range(ndim) if i >= len(dims) or dims[i] is None]


def _drawn_sizes(
    drawer: Drawer, slot: int, dims: Sequence[int | Generator | None], turn: int | None
) -> tuple[list[int], list[int]]:
    """Draw the sizes of a tensor in order, the planned one last, and return them with the free dimensions."""
    sizes, free = [], [i for i, dim in enumerate(dims) if dim is None]
    limit, at = 0, 0
    if turn is not None:
        limit = drawer.plan.limit(len(free), math.prod(dim for dim in dims if type(dim) is int))
    for i, dim in enumerate(dims):
        if dim is None:
            at = len(drawer.log) if i == turn else at
            sizes.append(drawer.size(slot, i, 0 if i == turn else limit))
        else:
            sizes.append(dim if type(dim) is int else drawn_size(drawer, dim))
    if turn is not None:
        others = math.prod(sizes[:turn] + sizes[turn + 1 :])
        sizes[turn] = drawer.turn_size(f"{slot}.dim{turn}", at, sizes[turn], others)
    return sizes, free


def _ndim(drawer: Drawer, slot: int, ndim: int | Generator | None, dims: Sequence[int | Generator | None]) -> int:
    """Return the number of dimensions, drawn if it is free."""
    given = max((i + 1 for i, dim in enumerate(dims) if dim is not None), default=0)
    if ndim is None:
        return drawer.integer(f"{slot}.ndim", max(NDIM[0], given), max(NDIM[1], given + 1), "ndim")
    count = int(settle(drawer, ndim, int))
    if isinstance(ndim, int) and given > count:
        message = f"random_tensor(ndim={count}) got dim{given - 1} too. Drop it, or raise ndim to {given}."
        raise AuthorError(message)
    return count
