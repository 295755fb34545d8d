"""Cotangents: the gradients of the outputs, from which the backward pass starts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

import torch

from ci_autotest.record.draw.profiles import NON_CONTIGUOUS
from ci_autotest.record.draw.tensor_data import elements
from ci_autotest.values.dtypes import DIFFERENTIABLE, ITEM_SIZE

if TYPE_CHECKING:
    from ci_autotest.record.draw.draws import Drawer

#: Dtypes with more bits per element than float32; they need words of their own.
_WIDE: Final = frozenset(getattr(torch, name) for name in DIFFERENTIABLE if ITEM_SIZE[name] > 4)  # noqa: PLR2004 - bytes
_NAMES: Final = {getattr(torch, name): name for name in DIFFERENTIABLE}


class _Drawing(Protocol):
    """The attributes of a recorder that a cotangent needs."""

    drawer: Drawer
    profile_applied: bool


def cotangent(drawing: _Drawing, position: int, output: torch.Tensor, *, are_random: bool) -> torch.Tensor:
    """Return the gradient of an output, with its shape and dtype: random and signed, or ones.

    Args:
        drawing: The recorder of the attempt.
        position: Position of the output.
        output: The output on the reference; it requires grad.
        are_random: Whether to draw the gradient; otherwise it is ones.
    """
    drawer, dtype, shape = drawing.drawer, output.dtype, output.shape
    if dtype in _WIDE:
        array = elements(drawer.streams, f"cotangent{position}", _NAMES[dtype], (output.numel(),), (-1.0, 1.0))
    else:
        array = drawer.streams.cotangent(position, output.numel(), drawer.seed)
    source = torch.from_numpy(array.reshape(shape))
    source = source if source.dtype is dtype else source.to(dtype)
    if drawing.profile_applied and drawer.profile == NON_CONTIGUOUS:
        source = _strided(source)
    return source if are_random else torch.ones_like(source)


def _strided(source: torch.Tensor) -> torch.Tensor:
    """Return a gradient whose last two dimensions are swapped in memory, as after a transposition."""
    return source.mT.contiguous().mT if source.dim() > 1 else source
