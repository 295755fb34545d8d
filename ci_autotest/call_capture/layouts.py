"""The layout of an observed tensor as an expression over a contiguous one: a slice, a permutation, an expansion."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ci_autotest.program.ir import contiguous_strides

if TYPE_CHECKING:
    from ci_autotest.program.ir import TensorSpec

_CHANNELS_LAST: Final = {4: "torch.channels_last", 5: "torch.channels_last_3d"}


@dataclass(frozen=True, slots=True)
class Layout:
    """How a view is made of a contiguous tensor, in this order.

    Args:
        kept: For each dimension of the contiguous tensor, ``(size, step)`` of the slice; ``None`` for all of it.
        permutation: Which dimension of the slice each dimension of the view is; empty if they are in order.
        expanded: The size of each expanded dimension of the view, -1 for the others; empty if there is none.
        memory_format: The format to which the tensor is converted instead, with its path in torch.
    """

    kept: tuple[tuple[int, int] | None, ...] = ()
    permutation: tuple[int, ...] = ()
    expanded: tuple[int, ...] = ()
    memory_format: str = ""

    def suffixes(self) -> list[str]:
        """Return the subscript and the method calls that make the view."""
        found = []
        if self.memory_format:
            found.append(f".to(memory_format={self.memory_format})")
        if any(self.kept):
            shown = [":" if part is None else f":{part[0]}" if part[1] == 1 else f"::{part[1]}" for part in self.kept]
            while shown[-1] == ":":
                shown.pop()
            found.append(f"[{', '.join(shown)}]")
        moved = [i for i, at in enumerate(self.permutation) if i != at]
        if len(moved) == 2:  # noqa: PLR2004 - a transposition moves two dimensions
            found.append(f".transpose({moved[0]}, {moved[1]})")
        elif moved:
            found.append(f".permute({', '.join(map(str, self.permutation))})")
        if self.expanded:
            found.append(f".expand({', '.join(map(str, self.expanded))})")
        return found


PLAIN: Final = Layout()


def layout_of(spec: TensorSpec) -> tuple[tuple[int, ...], Layout] | None:
    """Return the sizes of a contiguous tensor, and how the view is made of it; ``None`` if no expression is known."""
    if is_plain(spec.shape, spec.strides):
        return spec.shape, PLAIN
    if _is_channels_last(spec):
        return spec.shape, Layout(memory_format=_CHANNELS_LAST[len(spec.shape)])
    expanded = tuple(
        size if stride == 0 and size > 1 else -1 for size, stride in zip(spec.shape, spec.strides, strict=True)
    )
    shape = tuple(1 if whole > 0 else size for size, whole in zip(spec.shape, expanded, strict=True))
    # Outer dimensions first. A dimension of size 1 can stand anywhere, so it stays next to its neighbour.
    strides = _without_ones(shape, spec.strides)
    order = sorted(range(len(shape)), key=lambda i: (-strides[i], i))
    sliced = _sliced([shape[i] for i in order], [strides[i] for i in order])
    if sliced is None:
        return None
    dims, kept = sliced
    permutation = tuple(order.index(i) for i in range(len(shape)))
    is_moved = permutation != tuple(range(len(shape)))
    has_expanded = any(size > 0 for size in expanded)
    layout = Layout(tuple(kept) if any(kept) else (), permutation if is_moved else (), expanded if has_expanded else ())
    return tuple(dims), layout


def elements_shape(spec: TensorSpec) -> tuple[int, ...]:
    """Return the sizes of a tensor without the repeats of its expanded dimensions, if an expression expands them."""
    found = layout_of(spec)
    if found is None or not found[1].expanded:
        return spec.shape
    return tuple(1 if whole > 0 else size for size, whole in zip(spec.shape, found[1].expanded, strict=True))


def base_size(spec: TensorSpec) -> int:
    """Return the number of elements of the contiguous tensor of which a tensor is a view."""
    found = layout_of(spec)
    return math.prod(spec.shape if found is None else found[0])


def is_plain(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """Whether elements lie in order without gaps; the stride of a dimension of size 1 means nothing."""
    if 0 in shape:
        return True
    wanted = contiguous_strides(shape)
    return all(size == 1 or stride == own for size, stride, own in zip(shape, strides, wanted, strict=True))


def _is_channels_last(spec: TensorSpec) -> bool:
    if len(spec.shape) not in _CHANNELS_LAST:
        return False
    moved = (0, *range(2, len(spec.shape)), 1)
    return is_plain(tuple(spec.shape[i] for i in moved), tuple(spec.strides[i] for i in moved))


def _without_ones(shape: tuple[int, ...], strides: tuple[int, ...]) -> list[int]:
    """Return the strides, with that of a dimension of size 1 replaced by that of the next larger dimension inside."""
    found = list(strides)
    for i in reversed(range(len(shape))):
        if shape[i] == 1:
            found[i] = found[i + 1] * shape[i + 1] if i + 1 < len(shape) else 1
    return found


def _sliced(shape: list[int], strides: list[int]) -> tuple[list[int], list[tuple[int, int] | None]] | None:
    """Return the sizes of the tensor from which a view with descending strides is sliced, and the slices."""
    dims = list(shape)
    kept: list[tuple[int, int] | None] = [None] * len(shape)
    block = 1  # elements of the contiguous tensor inside of the current dimension
    for i in reversed(range(len(shape))):
        if shape[i] == 1:
            block *= dims[i]
            continue
        if strides[i] != block:
            inner = next((k for k in range(i + 1, len(shape)) if shape[k] > 1), None)
            if inner is None:
                dims[i], kept[i] = shape[i] * strides[i], (shape[i], strides[i])
                block = dims[i]
                continue
            unit = block // dims[inner]
            if kept[inner] is not None or strides[i] % unit or strides[i] < block:
                return None
            dims[inner], kept[inner] = strides[i] // unit, (shape[inner], 1)
        block = strides[i] * dims[i]
    return dims, kept
