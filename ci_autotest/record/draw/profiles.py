"""Profiles: boundary conditions that every test goes through, instead of leaving them to chance.

Half of a test's cases are ordinary or have one large size (``size_plan``). The others go through the profiles in turn,
starting at an offset that depends on the test's name. There are ten turns, so that 20 cases have them all: three for
memory that is not contiguous, each with another layout, and one for each other profile. A profile changes only the
properties that the test leaves free: for example, it never changes a size that the test gives. If it changes nothing,
or the reference rejects three attempts, the case is ordinary and counts as such.

If a test gives bounds, a profile's values stay within them. A bound that is left out is open: large values and
infinities go that way. No value leaves ``[low, high)``.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from zlib import crc32

import numpy as np

from ci_autotest.record.draw.size_plan import BOUNDARY
from ci_autotest.values.dtypes import FLOAT8, HALF, INTEGERS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from ci_autotest.record.draw.draws import Drawer
    from ci_autotest.record.draw.streams import Streams
    from ci_autotest.values.result import NoProfile

ORDINARY: Final = "ordinary"
SHAPE_PROFILES: Final = ("zero_dim", "zero_size", "size_one", BOUNDARY)
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
STORED: Final[NoProfile] = "stored_elements"
PROFILES: Final = SHAPE_PROFILES + LAYOUT_PROFILES + VALUE_PROFILES

#: Number of layouts of memory that is not contiguous, and so of turns of that profile: transposed, sliced, expanded.
_LAYOUTS: Final = 3
#: Numbers of dimensions for which torch has a format with the channels last.
_WITH_CHANNELS: Final = (4, 5)
#: Elements in front of a layout with an offset.
_OFFSET: Final = 3

#: Profile of timed cases only: free sizes are large, and so are sizes that a test draws from a small range.
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
#: Factors of integers in the `large` profile. The products stay within the dtype. The factors are odd, so that no
#: floating point dtype of the same size holds the products exactly.
_LARGE_INTEGERS: Final = {
    "uint8": 23,
    "int8": 11,
    "int16": (1 << 11) + 1,
    "int32": (1 << 27) + 1,
    "int64": (1 << 59) + 1,
}
#: Number of distinct values for ties in a range that is too narrow for integers.
_TIES: Final = 4
#: Least width of a range that has enough integers for ties.
_WIDE: Final = 2.0
#: Distance to an upper bound, as a share of the range's width, so that a value rounded to the dtype stays below it.
_BELOW: Final = {"half": 2.0**-5, "float": 2.0**-20}


def profile_of(test: str, case: int, attempt: int, allowed: tuple[str, ...] = PROFILES) -> str:
    """Return the profile of an attempt."""
    if case % 2 == 0 or attempt >= PROFILE_ATTEMPTS or not allowed:
        return ORDINARY
    walk = _walk(allowed)
    return walk[turn_of(test, case) % len(walk)]


def turn_of(test: str, case: int) -> int:
    """Return the number of a case in the walk through the profiles."""
    return _offset(test) + case // 2


#: Number of turns after which the walk begins again.
TURNS: Final = len(PROFILES) - len(LAYOUT_PROFILES) + _LAYOUTS


@lru_cache(maxsize=64)
def _walk(allowed: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(name for name in allowed for _ in range(_LAYOUTS if name in LAYOUT_PROFILES else 1))


@lru_cache(maxsize=256)
def _offset(test: str) -> int:
    return crc32(test.encode())


def shaped(drawer: Drawer, site: str, shape: list[int], free: list[int]) -> bool:
    """Set one free dimension of ``shape`` to the profile's size, or all to 1, in place; return whether it was done.

    Under ``large_shapes`` all free dimensions get the same large size.
    """
    profile = drawer.profile
    if profile == "zeros_and_ties":
        # A single element along a dimension has nothing to tie with.
        alone = [i for i in free if shape[i] == 1]
        for i in alone:
            shape[i] = 2
        return bool(alone)
    if profile == LARGE_SHAPES:
        size = large_size(len(free), math.prod(n for i, n in enumerate(shape) if i not in free))
        for i in free:
            shape[i] = size
        return bool(free)
    if not free or profile not in SHAPE_PROFILES or profile == "zero_dim" or drawer.plan.is_applied:
        return False
    if profile == "size_one" and drawer.choice(f"{site}.all", 2):
        for i in free:
            shape[i] = 1
        return True
    at = free[drawer.choice(f"{site}.profile_dim", len(free))] if len(free) > 1 else free[0]
    if profile == BOUNDARY:
        size = BOUNDARY_SIZES[drawer.choice(f"{site}.boundary", len(BOUNDARY_SIZES))]
        others = math.prod(n for i, n in enumerate(shape) if i != at)
        if size * others > ELEMENT_CAP:
            return False
        shape[at] = size
    else:
        shape[at] = 0 if profile == "zero_size" else 1
    return True


def large_size(count: int, others: int = 1) -> int:
    """Return the size of each of ``count`` large dimensions, if the other dimensions have ``others`` elements."""
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
        if array.dtype.kind == "c":  # the bounds hold for real and imaginary parts
            array = array.view(array.real.dtype)
        return _bounded_values(profile, bounds, dtype, array, _LARGE_HALF if dtype in HALF | FLOAT8 else LARGE)
    if profile == "zeros_and_ties":
        np.rint(array, out=array) if array.dtype.kind == "f" else np.clip(array.real, -1, 1, out=array.real)
        array.reshape(-1)[: -(-array.size // 2)] = 0  # half of all elements, so that whole rows are zero
        return True
    if dtype in INTEGERS:
        if profile == "large":
            array *= _LARGE_INTEGERS[dtype]
        return profile == "large"
    if profile == "large":
        array *= _LARGE_HALF if dtype in HALF | FLOAT8 else LARGE
        return True
    _sprinkle(streams, site, array)
    return True


def _sprinkle(streams: Streams, site: str, array: NDArray) -> None:  # type: ignore[type-arg]
    """Replace up to one element in four, but at least one element for each kind, by special values in turn.

    NaN is written last, so that no other special value can overwrite it. A single element gets a random one.
    """
    specials = _specials(array.real.dtype)
    words = streams.data(f"{site}.special", max(len(specials), array.size // 4))
    flat, size, last = array.reshape(-1), array.size, len(words) - 1
    if size == 1:
        flat[0] = specials[int(words[0] % np.uint64(len(specials)))]
        return
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

    The layout is transposed (dimensions in reverse order, or channels last), sliced (every second element, from an
    offset), or expanded from an offset (one dimension with stride 0, or two that overlap like windows). It depends on
    the turn of the case and on the site, so the tensors of a case have different layouts.
    """
    if drawer.profile != NON_CONTIGUOUS:
        return None
    numel = math.prod(shape)
    if numel < 2:  # noqa: PLR2004 - one element is contiguous in any layout
        return None
    wide = [i for i, size in enumerate(shape) if size > 1]
    kind = drawer.choice(f"{site}.layout", _LAYOUTS, given=drawer.turn + int(site))
    if kind == 0 and len(wide) > 1:
        return _strides(shape, _transposed(drawer, site, len(shape))), 0, numel
    if kind < 2:  # noqa: PLR2004 - kinds are 0, 1, 2
        return tuple(2 * stride for stride in _strides(shape, range(len(shape)))), _OFFSET, _OFFSET + 2 * numel
    strides = list(_strides(shape, range(len(shape))))
    at = drawer.choice(f"{site}.expanded", len(wide))
    if len(wide) > 1 and drawer.choice(f"{site}.overlapping", 2):
        # Like windows that move by one: neighbours along both dimensions are the same element.
        first, second = wide[at - 1 if at else 0], wide[at or 1]
        strides[first] = strides[second]
    else:
        strides = list(_strides(tuple(1 if i == wide[at] else size for i, size in enumerate(shape)), range(len(shape))))
        strides[wide[at]] = 0
    held = 1 + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
    return tuple(strides), _OFFSET, _OFFSET + held


def _transposed(drawer: Drawer, site: str, ndim: int) -> Sequence[int]:
    """Return the dimensions in the order of memory, outermost first."""
    channels_last = (0, *range(2, ndim), 1)
    is_last = ndim in _WITH_CHANNELS and drawer.choice(f"{site}.channels_last", 2)
    return channels_last if is_last else tuple(reversed(range(ndim)))


def _strides(shape: tuple[int, ...], order: Sequence[int]) -> tuple[int, ...]:
    """Return the strides of a shape; ``order`` is the order of its dimensions in memory, outermost first."""
    strides, step = [0] * len(shape), 1
    for i in reversed(order):
        strides[i], step = step, step * shape[i]
    return tuple(strides)


class Bounds(NamedTuple):
    """The range ``[low, high)`` of a tensor's elements; a bound that the test left out is open."""

    low: float
    high: float
    is_open_below: bool
    is_open_above: bool

    def has(self, value: float) -> bool:
        """Return true if a value is in the range."""
        return (self.is_open_below or value >= self.low) and (self.is_open_above or value < self.high)


def _bounded_values(profile: str, bounds: Bounds, dtype: str, array: NDArray[Any], large: float) -> bool:
    """Apply a profile's values to elements that have bounds, in place; return whether that was done.

    Args:
        profile: ``zeros_and_ties``, ``large`` or ``special``.
        bounds: The range.
        dtype: Name without framework; neither bool nor complex.
        array: The elements, drawn in the range.
        large: Factor of the large values.
    """
    flat = array.reshape(-1)
    if profile == "zeros_and_ties":
        _tie(bounds, dtype, flat)
        return True
    if profile == "large":
        _stretch(bounds, dtype, flat, large)
        return True
    specials = [] if dtype in INTEGERS else _bounded_specials(bounds, np.finfo(array.dtype).smallest_subnormal * 3)
    for at, value in enumerate(specials):
        # Three elements apart. In a short tensor the positions wrap around, and a later value may replace an earlier.
        flat[(3 * at) % flat.size] = value
    return bool(specials)


def _tie(bounds: Bounds, dtype: str, flat: NDArray[Any]) -> None:
    """Round to few values; every second element is zero, or the lower bound if zero is out of range."""
    width = bounds.high - bounds.low
    floor = math.ceil(bounds.low) if dtype in INTEGERS or width >= _WIDE else bounds.low
    step = 1.0 if dtype in INTEGERS or width >= _WIDE else width / _TIES
    flat[:] = floor + np.floor((flat - floor) / step).clip(0) * step
    flat[1::2] = 0 if bounds.has(0) else bounds.low
    flat[0] = bounds.low


def _stretch(bounds: Bounds, dtype: str, flat: NDArray[Any], large: float) -> None:
    """Move elements away from a closed bound; to both bounds in turn if none is open or the dtype is an integer."""
    if dtype not in INTEGERS and bounds.is_open_above:
        flat[:] = bounds.low + (flat - bounds.low) * large
    elif dtype not in INTEGERS and bounds.is_open_below:
        flat[:] = bounds.high - (bounds.high - flat) * large
    else:
        share = _BELOW["half" if dtype in HALF | FLOAT8 else "float"]
        flat[0::2] = bounds.high - 1 if dtype in INTEGERS else bounds.high - (bounds.high - bounds.low) * share
        flat[1::2] = bounds.low


def _bounded_specials(bounds: Bounds, subnormal: float) -> list[float]:
    found = [-0.0, subnormal] if bounds.has(0) and bounds.has(subnormal) else []
    found += [math.inf] if bounds.is_open_above else []
    return [*found, -math.inf] if bounds.is_open_below else found
