"""Durations and sizes as people write them."""

from __future__ import annotations

import re
from typing import Final

from ci_autotest.errors import ConfigError

_DURATION: Final = re.compile(r"(\d{1,12}(?:\.\d{1,12})?)(ms|s|m|h)")
_UNIT_S: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_SIZE: Final = re.compile(r"(\d{1,12}(?:\.\d{1,12})?)(MiB|GiB)")
_UNIT_BYTES: Final = {"MiB": 1 << 20, "GiB": 1 << 30}


def duration_s(text: str, name: str) -> float:
    """Return a duration in seconds from ``90s``, ``10m``, ``1.5h``.

    Raises:
        ConfigError: The text is not a duration, has no unit, or is 0.
    """
    match = _DURATION.fullmatch(text.strip())
    seconds = float(match[1]) * _UNIT_S[match[2]] if match else 0.0
    if seconds <= 0:
        message = (
            f"{name} is {text[:80]!r}, which is not a duration. Write a number with ms, s, m or h, such as 90s or 10m."
        )
        raise ConfigError(message)
    return seconds


def size_bytes(text: str, name: str = "memory") -> int | None:
    """Return a size in bytes from ``512MiB``, ``4GiB``; ``None`` for ``auto``, 0 for ``off``.

    Raises:
        ConfigError: The text is not a size.
    """
    if text in {"auto", "off"}:
        return None if text == "auto" else 0
    match = _SIZE.fullmatch(text.strip())
    size = int(float(match[1]) * _UNIT_BYTES[match[2]]) if match else 0
    if size <= 0:
        message = (
            f"{name} is {text[:80]!r}, which is not a size. "
            "Write a number with MiB or GiB, such as 4GiB, or auto, or off."
        )
        raise ConfigError(message)
    return size
