"""Properties of random numbers: their range and support and, for dropout, the kept elements."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

import torch

from ci_autotest.alignment.elements import wide

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ci_autotest.alignment.properties.call import SideCall

#: Fewest elements for which the share of zeros after dropout is checked.
_ENOUGH: Final = 64
#: Standard deviations that the share may be off.
_DEVIATIONS: Final = 6.0
#: Probability below which nothing happens by chance; six standard deviations have about the same.
_UNLIKELY: Final = 1e-9


def _kept(call: SideCall) -> str:
    """Check that each element is 0 or the input over ``1 - p``, and that about a share of ``p`` is 0."""
    found, source = call.output(0), call.input
    p = float(call.argument(1, "p", 0.5))
    if found is None or found.shape != source.shape:
        return ""
    values, inputs = wide(found), wide(source)
    scaled = inputs / (1 - p) if p < 1 else torch.zeros_like(inputs)
    eps = torch.finfo(found.dtype).eps
    is_kept = torch.isclose(values, scaled, rtol=4 * eps, atol=0.0, equal_nan=True)
    if not bool((is_kept | (values == 0)).all()):
        return "an element is neither 0 nor the input over (1 - p)"
    # A zero of the input stays zero, whether it is dropped or kept.
    live = inputs != 0
    count = int(live.sum())
    zeros = int(((values == 0) & live).sum())
    allowed = _DEVIATIONS * math.sqrt(max(count * p * (1 - p), 1.0))
    is_off = count >= _ENOUGH and abs(zeros - count * p) > allowed
    # The share of a few elements says little, but that all of them are dropped has a probability of its own.
    is_off |= 0 < count == zeros and p**count < _UNLIKELY
    return f"{zeros} of {count} elements are 0 for p = {p:g}" if is_off else ""


def _within(low: float, high: float) -> Callable[[SideCall], str]:
    def broken(call: SideCall) -> str:
        found = call.output(0)
        if found is None or not found.numel():
            return ""
        values = wide(found)
        return "" if bool(((values >= low) & (values < high)).all()) else f"an element is outside [{low:g}, {high:g})"

    return broken


def _bits(call: SideCall) -> str:
    found = call.output(0)
    return "" if found is None or bool(((found == 0) | (found == 1)).all()) else "an element is neither 0 nor 1"


def _permutation(call: SideCall) -> str:
    found = call.output(0)
    if found is None or torch.equal(found.sort().values.long(), torch.arange(found.numel())):
        return ""
    return "it is not a permutation"


def _finite(call: SideCall) -> str:
    found = call.output(0)
    return "" if found is None or bool(torch.isfinite(found).all()) else "an element is not finite"


#: Checks by operator name; other random operators define only shape and dtype.
PROMISED: Final[Mapping[str, Callable[[SideCall], str]]] = {
    "dropout": _kept, "rand": _within(0.0, 1.0), "rand_like": _within(0.0, 1.0), "bernoulli": _bits,
    "randperm": _permutation, "randn": _finite, "randn_like": _finite,
}  # fmt: skip
