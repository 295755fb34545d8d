"""Amounts in words, as far as they help: times, and differences that are not shown once they are huge."""

from __future__ import annotations

from typing import Final

#: Greatest distance in ULP that is shown as a number; the relative difference says more of a larger one.
_ULPS_SHOWN: Final = 10_000
#: Greatest ratio that is shown as a number.
_TIMES_SHOWN: Final = 1_000
_MINUTE_S: Final = 60


def amount_of(number: float, form: str) -> str:
    """Return a difference as text; one of integers keeps all its digits, because it is exact."""
    return f"{number:,}" if isinstance(number, int) else f"{number:{form}}"


def ulp_words(ulps: int | None, relative: float | None) -> str:
    """Return a distance in ULP, or that no digit is right; empty for one that only the relative difference tells.

    Args:
        ulps: The distance; ``None`` if the dtype has none.
        relative: The relative difference of the tensor; ``None`` if it is not finite.
    """
    if ulps is None:
        return ""
    if ulps <= _ULPS_SHOWN:
        return f"{ulps:,} ULP"
    return "no digit is right" if relative is not None and relative >= 1 else ""


def times_words(ratio: float) -> str:
    """Return how many times, ``2.5 times``; of a huge ratio only that it is."""
    return f"{ratio:,.3g} times" if ratio <= _TIMES_SHOWN else f"more than {_TIMES_SHOWN:,} times"


def time_text(seconds: float) -> str:
    """Return a time in the units that one reads: seconds, minutes, hours."""
    if seconds < _MINUTE_S:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(int(seconds), _MINUTE_S)
    return f"{minutes} min {rest} s" if minutes < _MINUTE_S else f"{minutes // _MINUTE_S} h {minutes % _MINUTE_S} min"


def plural(count: int, noun: str) -> str:
    """Return the count with the noun, ``1 test``, ``1,000 cases``."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
