"""Questions to float64: one tensor of a program, computed in float64 from any data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from ci_autotest.alignment.blame.random_rounding import Formula, RandomRounding
from ci_autotest.alignment.elements import has_any, wide
from ci_autotest.backends.snapshots import observed
from ci_autotest.backends.torch_eager import TorchBackend

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ci_autotest.alignment.single_step import Live
    from ci_autotest.backends.trace import GradientKey, Reference, Trace

#: Most aligned elements that are measured along with the misaligned ones.
_OTHERS: Final = 1 << 16


class Question(NamedTuple):
    """A tensor of a program whose float64 value is wanted.

    Attributes:
        live: The program.
        wider: The program in float64.
        key: ``("value" | "gradient" | "state", what)``: which tensor of ``wider``.
        chosen: Positions of the wanted elements in row-major order; ``None`` for all, in the tensor's shape.
        reference: The side believed, if it is not torch on the whole program.
    """

    live: Live
    wider: Live
    key: tuple[str, GradientKey]
    chosen: torch.Tensor | None = None
    reference: Reference | None = None

    def rounded(self, bits: int, seed: int, formula: Formula) -> torch.Tensor | None:
        """Return the elements if each intermediate result is rounded at random to so many bits."""
        # The math backend computes attention from products and a softmax, so each of their results is rounded.
        with sdpa_kernel(SDPBackend.MATH), RandomRounding(bits, seed, formula):
            return self.answer(self.wider.sources, self.wider.cotangents)

    def answer(self, sources: Mapping[str, Any], cotangents: Mapping[int, Any]) -> torch.Tensor | None:
        """Return the elements in float64 for these data; ``None`` if there is no such tensor of that shape."""
        found = wanted(self.wider._replace(sources=sources, cotangents=cotangents), self.key, self.reference)
        if found is None or self.chosen is None:
            return None if found is None else wide(found)
        flat = found.reshape(-1)
        is_there = self.chosen.numel() == 0 or int(self.chosen.max()) < flat.numel()
        return wide(flat[self.chosen]) if is_there else None


def chosen(bad: torch.Tensor) -> torch.Tensor:
    """Return the positions of the misaligned elements of a tensor and of some others, in row-major order.

    The number is limited because the measures in float64 hold sixteen copies of each element.
    """
    flat = bad.reshape(-1)
    every = -(-flat.numel() // _OTHERS) if flat.numel() else 1
    flat = flat.clone()
    flat[::every] = True
    return flat.nonzero().reshape(-1)


def wanted(live: Live, key: tuple[str, GradientKey], reference: Reference | None = None) -> torch.Tensor | None:
    """Return a tensor of a program on the reference, ``None`` if it has none; values and states as after the run."""
    backend = reference or TorchBackend()
    # A gradient belongs to the value as it was at its step, whatever is written to it later.
    copied = (key[1],) if key[0] == "gradient" and isinstance(key[1], int) else ()
    trace: Trace = backend.run(live.program, live.sources, copied=copied)
    if trace.failure is not None:
        return None
    if key[0] == "state":
        found = trace.values[key[1][0]].state_dict().get(key[1][1]) if isinstance(key[1], tuple) else None
    elif key[0] == "value":
        found = observed(trace.values[key[1]]).data if isinstance(key[1], int) else None
    else:
        backend.backward(live.program, trace, live.cotangents)
        found = trace.gradients.get(key[1])
    return found if isinstance(found, torch.Tensor) else None


def distance(side: torch.Tensor, truth: torch.Tensor) -> torch.Tensor:
    """Return ``|side - truth|``: 0 where both are NaN or the same infinity, infinite where only one is.

    Complex numbers with an infinite part are compared part by part.
    """
    same = (side == truth) | (torch.isnan(side) & torch.isnan(truth))
    apart = (side - truth).abs()
    found = torch.where(same, 0.0, torch.where(torch.isfinite(apart), apart, torch.inf))
    if side.is_complex() and truth.is_complex() and has_any(torch.isinf(found)):
        parts = distance(torch.view_as_real(side.contiguous()), torch.view_as_real(truth.contiguous()))
        found = torch.where(same, 0.0, torch.hypot(parts[..., 0], parts[..., 1]))
    return found
