"""Refuse a row of ``tolerances`` whose numbers do not belong together; the message says what to write."""

from __future__ import annotations

import math
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from ci_autotest.errors import ConfigError, ToleranceError
from ci_autotest.values.tolerance import Tolerance

if TYPE_CHECKING:
    from ci_autotest.config.values import ToleranceRule

#: The range of ``limit`` for each metric, and an example.
_LIMITS: Final = MappingProxyType({
    "relative_norm": (0.0, math.inf, "1e-3"), "cosine": (-1.0, 1.0, "0.9999"), "snr_db": (-math.inf, math.inf, "40"),
    "ulp": (0.0, math.inf, "8"),
})  # fmt: skip
#: Metrics of which a share of the elements may be off.
_OF_ELEMENTS: Final = ("elements", "ulp")


def check_tolerance(row: ToleranceRule, where: str) -> None:
    """Refuse a row that allows everything, nothing that can be read, or two things at once.

    Raises:
        ConfigError: It does.
    """
    fault = _fault_of_bounds(row) or _fault_of_limit(row) or _fault_of_share(row)
    if fault:
        message = f"{where} {fault}"
        raise ConfigError(message)
    try:
        Tolerance(row.rtol or 0.0, row.atol or 0.0)
    except ToleranceError as error:
        message = f"{where}: {error}"
        raise ConfigError(message) from error


def _fault_of_bounds(row: ToleranceRule) -> str:
    if math.inf in (row.rtol, row.atol):
        return "is infinite: nothing would be compared. Give numbers."
    given = [name for name in ("rtol", "atol") if getattr(row, name) is not None]
    if len(given) == 1:
        return f"has {given[0]} alone. Write both rtol and atol."
    if row.factor is not None and (given or row.metric != "elements" or row.share):
        return "has a factor and other numbers, of which only one can hold. Write one row for each."
    if row.factor is not None and not 1 <= row.factor < math.inf:
        return f"has factor {row.factor:g}: it is how many times the reference's own error is allowed. Give 1 or more."
    if row.scale is not None and not given:
        return f"has scale {row.scale}, which multiplies rtol and atol. Write both, or remove it."
    if row.metric != "elements":
        return f"has metric {row.metric}, which is held against limit. Remove rtol and atol." if given else ""
    if not given and row.factor is None:
        return "allows nothing. Write rtol and atol, a metric with limit, or a factor for `strictness: measured`."
    return ""


def _fault_of_limit(row: ToleranceRule) -> str:
    if row.metric == "elements":
        return "has a limit, which metric elements does not use. Write rtol and atol." if row.limit is not None else ""
    low, high, example = _LIMITS[row.metric]
    if row.limit is None:
        return f"has metric {row.metric} without a limit. Write limit: {example}."
    if math.isfinite(row.limit) and low <= row.limit <= high:
        return ""
    bounds = f"{low:g} to {high:g}" if math.isfinite(high) else "0 or more" if math.isfinite(low) else "a number"
    return f"has limit {row.limit:g} for metric {row.metric}. Give {bounds}, for example {example}."


def _fault_of_share(row: ToleranceRule) -> str:
    if not 0 <= row.share < 1:
        return f"has share {row.share:g}: it is a part of the elements. Give 0 or more and less than 1, such as 0.001."
    if row.share and row.metric not in _OF_ELEMENTS:
        return f"has a share, which metric {row.metric} does not use. Use metric elements or ulp, or remove it."
    return ""
