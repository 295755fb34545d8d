"""Cotangents: the gradients that the backward pass starts from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

import torch

from ci_autotest.program.ir import COMPLEX, FLOATING
from ci_autotest.record.draw.profiles import NON_CONTIGUOUS
from ci_autotest.record.draw.tensor_data import elements

if TYPE_CHECKING:
    from ci_autotest.record.draw.draws import Drawer

#: Dtypes whose elements hold more than a float32 does.
_WIDE: Final = frozenset({torch.float64, torch.complex64, torch.complex128})
_NAMES: Final = {getattr(torch, name): name for name in FLOATING | COMPLEX}


class _Drawing(Protocol):
    """What is asked of who draws a cotangent."""

    drawer: Drawer
    profile_applied: bool


def cotangent(drawing: _Drawing, position: int, output: torch.Tensor, *, are_random: bool) -> torch.Tensor:
    """Return what is put into an output that requires grad: random and signed, or ones; its shape and dtype.

    Args:
        drawing: The attempt.
        position: Of the output.
        output: The reference's.
        are_random: Whether it is drawn.
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
    """Return a gradient with its last two dimensions the other way round in memory, as a transposition leaves it."""
    return source.mT.contiguous().mT if source.dim() > 1 else source
