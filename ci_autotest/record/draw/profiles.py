"""Profiles: boundary conditions that every test goes through, instead of leaving them to chance.

Half of a test's cases are ordinary; the others go through the profiles in turn, starting at an offset that depends on
the test's name. A profile changes only what the test leaves free: for example, it never changes a size that the test
gives. If it changes nothing, or the reference rejects three attempts, the case is ordinary and counts as such.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final
from zlib import crc32

import numpy as np

from ci_autotest.record.draw.bounded_values import bounded_values
from ci_autotest.values.dtypes import FLOAT8, HALF, INTEGERS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ci_autotest.record.draw.bounded_values import Bounds
    from ci_autotest.record.draw.draws import Drawer
    from ci_autotest.record.draw.streams import Streams
    from ci_autotest.values.result import NoProfile

ORDINARY: Final = "ordinary"
SHAPE_PROFILES: Final = ("zero_dim", "zero_size", "size_one", "boundary")
NON_CONTIGUOUS: Final = "non_contiguous"
LAYOUT_PROFILES: Final = (NON_CONTIGUOUS,)
VALUE_PROFILES: Final = ("zeros_and_ties", "large", "special")
#: Why a profile changed nothing in a test.
NO_INPUT: Final[NoProfile] = "no_drawn_tensor"
FIXED_SIZES: Final[NoProfile] = "fixed_sizes"
FEW_ELEMENTS: Final[NoProfile] = "too_few_elements"
DTYPE: Final[NoProfile] = "dtype"
BOUNDS: Final[NoProfile] = "bounds"
REJECTED: Final[NoProfile] = "rejected"
PROFILES: Final = SHAPE_PROFILES + LAYOUT_PROFILES + VALUE_PROFILES

#: Profile of timed cases alone: free sizes are large, and so are sizes that a test draws from a small range.
LARGE_SHAPES: Final = "large_shapes"
#: Elements of a tensor with large sizes, and the greatest of these sizes: two such vectors have an outer product that
#: fits into memory.
LARGE_ELEMENTS: Final = 1 << 18
_LARGEST_SIZE: Final = 8192

#: Number of attempts with a profile before the case falls back to ordinary.
PROFILE_ATTEMPTS: Final = 3
#: Sizes around the widths of vectors, warps and tiles.
BOUNDARY_SIZES: Final = (31, 32, 33, 127, 128, 129, 1023, 1025)
#: Greatest number of elements of a tensor with a boundary size.
ELEMENT_CAP: Final = 1 << 16
#: Factor of the `large` profile: squares, and sums of a few of them, stay finite in float32. Half precisions get a
#: smaller factor.
LARGE: Final = 1e4
_LARGE_HALF: Final = 1e2


def profile_of(test: str, case: int, attempt: int, allowed: tuple[str, ...] = PROFILES) -> str:
    """Return the profile of an attempt."""
    if case % 2 == 0 or attempt >= PROFILE_ATTEMPTS or not allowed:
        return ORDINARY
    return allowed[(_offset(test) + case // 2) % len(allowed)]


@lru_cache(maxsize=256)
def _offset(test: str) -> int:
    return crc32(test.encode())


def shaped(drawer: Drawer, site: str, shape: list[int], free: list[int]) -> bool:
    """Set one free dimension of ``shape`` to the profile's size, or all to 1, in place; return whether it was done.

    Under ``large_shapes`` all free dimensions get the same large size.
    """
    profile = drawer.profile
    if profile == "zeros_and_ties":
        # One element along a dimension ties with nothing.
        alone = [i for i in free if shape[i] == 1]
        for i in alone:
            shape[i] = 2
        return bool(alone)
    if profile == LARGE_SHAPES:
        size = large_size(len(free), math.prod(n for i, n in enumerate(shape) if i not in free))
        for i in free:
            shape[i] = size
        return bool(free)
    if not free or profile not in SHAPE_PROFILES or profile == "zero_dim":
        return False
    if profile == "size_one" and drawer.choice(f"{site}.all", 2):
        for i in free:
            shape[i] = 1
        return True
    at = free[drawer.choice(f"{site}.profile_dim", len(free))] if len(free) > 1 else free[0]
    if profile == "boundary":
        size = BOUNDARY_SIZES[drawer.choice(f"{site}.boundary", len(BOUNDARY_SIZES))]
        others = math.prod(n for i, n in enumerate(shape) if i != at)
        if size * others > ELEMENT_CAP:
            return False
        shape[at] = size
    else:
        shape[at] = 0 if profile == "zero_size" else 1
    return True


def large_size(count: int, others: int = 1) -> int:
    """Return the size of each of ``count`` large dimensions, next to ``others`` elements of the other dimensions."""
    return max(1, min(_LARGEST_SIZE, int((LARGE_ELEMENTS / max(others, 1)) ** (1 / max(count, 1)))))


def obstacle(profile: str, dtype: str, *, is_bounded: bool, count: int) -> NoProfile:
    """Return why a profile changes nothing in a tensor."""
    if profile in SHAPE_PROFILES:
        return FIXED_SIZES
    if profile in LAYOUT_PROFILES or not count:
        return FEW_ELEMENTS
    return BOUNDS if is_bounded and dtype != "bool" else DTYPE


def valued(
    profile: str,
    streams: Streams,
    site: str,
    dtype: str,
    array: NDArray,  # type: ignore[type-arg]
    bounds: Bounds | None = None,
) -> bool:
    """Apply the profile's values to the elements, in place and within ``bounds``; return whether that was done."""
    if profile not in VALUE_PROFILES or dtype == "bool" or array.size == 0:
        return False
    if bounds is not None:
        if array.dtype.kind == "c":  # the bounds are those of its parts
            array = array.view(array.real.dtype)
        return bounded_values(profile, bounds, dtype, array, _LARGE_HALF if dtype in HALF | FLOAT8 else LARGE)
    if profile == "zeros_and_ties":
        np.rint(array, out=array) if array.dtype.kind == "f" else np.clip(array.real, -1, 1, out=array.real)
        array.reshape(-1)[: -(-array.size // 2)] = 0  # half of all elements, so that whole rows are zero
        return True
    if dtype in INTEGERS:
        return False
    if profile == "large":
        array *= _LARGE_HALF if dtype in HALF | FLOAT8 else LARGE
        return True
    _sprinkle(streams, site, array)
    return True


def _sprinkle(streams: Streams, site: str, array: NDArray) -> None:  # type: ignore[type-arg]
    """Replace up to one element in four, but at least one element for each kind, by special values in turn.

    NaN is written last, so that no other special value can overwrite it.
    """
    specials = _specials(array.real.dtype)
    words = streams.data(f"{site}.special", max(len(specials), array.size // 4))
    flat, size, last = array.reshape(-1), array.size, len(words) - 1
    if last < _FEW:
        for i, word in enumerate(words.tolist()):
            flat[word % size] = specials[(last - i) % len(specials)]
    else:
        flat[words % np.uint64(size)] = specials[np.arange(last, -1, -1) % len(specials)]


#: Up to this many elements, writing them one by one is faster.
_FEW: Final = 16


@lru_cache(maxsize=4)
def _specials(dtype: np.dtype[Any]) -> NDArray[Any]:
    return np.array([np.nan, np.inf, -np.inf, -0.0, np.finfo(dtype).smallest_subnormal * 3], dtype)


def strided(drawer: Drawer, site: str, shape: tuple[int, ...]) -> tuple[tuple[int, ...], int, int] | None:
    """Return ``(strides, offset, storage size)`` of a non-contiguous layout, in elements; ``None``: contiguous.

    The layout is transposed (dimensions in reverse order), sliced (every second element, from an offset), or expanded
    (one dimension with stride 0).
    """
    if drawer.profile != NON_CONTIGUOUS:
        return None
    numel = math.prod(shape)
    if numel < 2:  # noqa: PLR2004 - one element is contiguous in any layout
        return None
    wide = [i for i, size in enumerate(shape) if size > 1]
    kind = drawer.choice(f"{site}.layout", 3)
    if kind == 0 and len(wide) > 1:
        strides, step = [0] * len(shape), 1
        for i in range(len(shape)):
            strides[i], step = step, step * shape[i]
        return tuple(strides), 0, numel
    strides, step = [0] * len(shape), 2 if kind < 2 else 1  # noqa: PLR2004 - kinds are 0, 1, 2
    expanded = wide[drawer.choice(f"{site}.expanded", len(wide))] if kind == 2 else -1  # noqa: PLR2004
    for i in reversed(range(len(shape))):
        if i != expanded:
            strides[i], step = step, step * shape[i]
    if expanded >= 0:
        return tuple(strides), 0, numel // shape[expanded]
    return tuple(strides), 3, 3 + 2 * numel
