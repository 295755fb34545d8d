"""Cotangents: the gradients of the outputs, from which the backward pass starts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import torch

from ci_autotest.record.draw.profiles import NON_CONTIGUOUS
from ci_autotest.record.draw.tensor_data import elements
from ci_autotest.values.dtypes import DIFFERENTIABLE, ITEM_SIZE

if TYPE_CHECKING:
    from ci_autotest.record.draw.draws import Drawer

#: Dtypes with more bits per element than float32; they need words of their own.
_WIDE: Final = frozenset(getattr(torch, name) for name in DIFFERENTIABLE if ITEM_SIZE[name] > 4)  # noqa: PLR2004 - bytes
_NAMES: Final = {getattr(torch, name): name for name in DIFFERENTIABLE}


def cotangent(
    drawer: Drawer, position: int, output: torch.Tensor, *, are_random: bool, has_layout: bool
) -> torch.Tensor:
    """Return the gradient of an output, with its shape and dtype: random and signed, or ones.

    Args:
        drawer: The drawer of the attempt.
        position: Position of the output.
        output: The output on the reference; it requires grad.
        are_random: True to draw the gradient; otherwise it is ones.
        has_layout: True if the case's profile may change the layout of the gradient.
    """
    dtype, shape = output.dtype, output.shape
    if dtype in _WIDE:
        array = elements(drawer.streams, f"cotangent{position}", _NAMES[dtype], (output.numel(),), (-1.0, 1.0))
    else:
        array = drawer.streams.cotangent(position, output.numel(), drawer.seed)
    source = torch.from_numpy(array.reshape(shape))
    source = source if source.dtype is dtype else source.to(dtype)
    if has_layout and drawer.profile == NON_CONTIGUOUS:
        source = _strided(source, drawer.turn + position)
    return source if are_random else torch.ones_like(source)


def _strided(source: torch.Tensor, turn: int) -> torch.Tensor:
    """Return a gradient that is not contiguous, with a different layout in each turn.

    Its memory is transposed, is a slice of every second element, or is expanded as after a sum. If it is expanded, all
    elements along the last dimension are equal to the first.
    """
    if source.dim() == 0 or source.numel() < 2:  # noqa: PLR2004 - one element is contiguous in any layout
        return source
    kind = turn % 3
    if kind == 0 and source.dim() > 1:
        return source.mT.contiguous().mT
    if kind < 2:  # noqa: PLR2004 - kinds are 0, 1, 2
        held = torch.zeros(*source.shape[:-1], 2 * source.shape[-1], dtype=source.dtype)
        held[..., ::2] = source
        return held[..., ::2]
    return source[..., :1].contiguous().expand(source.shape)
