"""Limits: what a float64 result tends to when ever larger numbers replace the infinities among its inputs.

Float64 repeats the reference's formula, including the NaN that it makes of infinities: the running mean of ``[inf, 0]``
is ``inf - inf / 2``. The limit distinguishes such a NaN from a correct one, for example from a NaN among the inputs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import torch

from ci_autotest.alignment.elements import has_any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ci_autotest.alignment.blame.float64_value import Float64Question

#: The two numbers that replace infinity in turn; the square of both is finite in float64.
_LARGE: Final = (1e60, 1e120)
#: Sets of factors for the infinities: a limit must not depend on which of them is greater.
_PATTERNS: Final = 3
#: Factor by which a result must grow to count as infinite in the limit.
_GROWTH: Final = 1e20
_NEAR: Final = 1e-9


def limit_of(question: Float64Question) -> torch.Tensor | None:
    """Return the limit in the shape of the result, NaN where it does not exist; ``None`` if no input is infinite.

    Args:
        question: About all elements of a real result.
    """
    data = [*question.wider.sources.values(), *question.wider.cotangents.values()]
    if not any(map(_is_infinite, data)):
        return None
    generator = torch.Generator().manual_seed(0)
    found: torch.Tensor | None = None
    for _ in range(_PATTERNS):
        # Both numbers get the same factors, so that only the size of the infinities changes.
        factors = generator.get_state()
        answers = [_answer(question, large, generator.set_state(factors)) for large in _LARGE]
        first, second = answers
        if first is None or second is None or first.is_complex() or first.shape != second.shape:
            return None
        tends = _tends(first, second)
        found = tends if found is None else torch.where(_is_same(found, tends), found, torch.nan)
    return found


def _answer(question: Float64Question, large: float, generator: torch.Generator) -> torch.Tensor | None:
    sources = _grown(question.wider.sources, large, generator)
    return question.answer(sources, _grown(question.wider.cotangents, large, generator))


def _grown(data: Mapping[Any, torch.Tensor], large: float, generator: torch.Generator) -> dict[Any, torch.Tensor]:
    """Return the data with a different large number in place of each infinity."""
    found = dict(data)
    for key, value in data.items():
        if _is_infinite(value):
            factors = 1 + 15 * torch.rand(value.shape, generator=generator, dtype=torch.float64)
            found[key] = torch.where(torch.isinf(value), torch.sign(value) * factors * large, value)
    return found


def _is_infinite(value: torch.Tensor) -> bool:
    return value.dtype is torch.float64 and has_any(torch.isinf(value))


def _tends(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    """Return what two results tend to, the second from larger inputs; NaN where they show no limit."""
    # The sign must stay, because a result that changes it has no limit.
    grows = (second.abs() >= _GROWTH * first.abs()) & (second.abs() >= _GROWTH) & (first.sign() == second.sign())
    stays = torch.isfinite(second) & ((second - first).abs() <= _NEAR * second.abs().clamp_min(_NEAR))
    return torch.where(grows, second.sign() * torch.inf, torch.where(stays, second, torch.nan))


def _is_same(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    return (one == other) | ((one - other).abs() <= _NEAR * one.abs().clamp_min(_NEAR))
