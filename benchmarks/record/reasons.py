"""Why the shipped suite misses a bug of record at 20 cases with the default seed."""

from __future__ import annotations

from typing import Final, Literal

#: ``reference_has_it``: torch still has the bug, so that the suite cannot call it. ``size_not_drawn``,
#: ``value_not_drawn``, ``argument_not_drawn``: no case has such a tensor or argument. ``ill_conditioned``: the
#: comparison with a result in float64 says that float32 can do no better. ``unexplained``: nobody has looked.
Reason = Literal[
    "reference_has_it", "size_not_drawn", "value_not_drawn", "argument_not_drawn", "ill_conditioned", "unexplained"
]

REASONS: Final[dict[str, Reason]] = {
    "avg_pool3d_out": "reference_has_it",
    "cumsum_of_large": "size_not_drawn",
    "cross_entropy_of_large": "ill_conditioned",
    "nanmedian_of_negative_nan": "value_not_drawn",
    "cumprod_of_zero": "value_not_drawn",
    "pad_reflected_rows": "argument_not_drawn",
}


def reason_of(name: str) -> Reason:
    """Return why a bug is missed, by the name of its kernel."""
    return REASONS.get(name, "unexplained")
