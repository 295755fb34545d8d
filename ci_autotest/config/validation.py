"""Read durations and sizes, and refuse values that are out of range or contradict each other, saying what to write."""

from __future__ import annotations

import difflib
import math
import re
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from ci_autotest.config.values import AT_MOST, SEEDS, Config, OpInfo
from ci_autotest.errors import ConfigError, ToleranceError
from ci_autotest.values.dtypes import DTYPES
from ci_autotest.values.result import REFERENCE_CANDIDATE
from ci_autotest.values.tolerance import Tolerance

if TYPE_CHECKING:
    from ci_autotest.config.values import ToleranceRule
    from ci_autotest.kinds import Candidate

_DURATION: Final = re.compile(r"(\d{1,12}(?:\.\d{1,12})?)(ms|s|m|h)")
_UNIT_S: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_SIZE: Final = re.compile(r"(\d{1,12}(?:\.\d{1,12})?)(MiB|GiB)")
_UNIT_BYTES: Final = {"MiB": 1 << 20, "GiB": 1 << 30}
#: The range of ``limit`` for each metric, and an example.
_LIMITS: Final = MappingProxyType({
    "relative_norm": (0.0, math.inf, "1e-3"), "cosine": (-1.0, 1.0, "0.9999"), "snr_db": (-math.inf, math.inf, "40"),
    "ulp": (0.0, math.inf, "8"),
})  # fmt: skip
#: Metrics of which a share of the elements may be off.
_OF_ELEMENTS: Final = ("elements", "ulp")


def check(config: Config, where: str) -> None:
    """Refuse a configuration with a value that is out of range or contradicts another.

    Raises:
        ConfigError: It has one.
    """
    if not config.output.strip() or Path(config.output) == Path(Path(config.output).anchor):
        message = f"{where}: output is {config.output[:80]!r}. Give a folder for the report, such as autotest-report."
        raise ConfigError(message)
    # Called for their errors; the values are converted again where they are used.
    duration_s(config.case_timeout, f"{where}: case_timeout")
    size_bytes(config.memory, f"{where}: memory")
    if config.budget is not None:
        duration_s(config.budget, f"{where}: budget")
    for name, number in (("cases", config.cases), ("workers", config.workers)):
        if isinstance(number, int) and not 1 <= number <= AT_MOST[name]:
            message = f"{where}: {name} is {str(number)[:30]}. Give 1 to {AT_MOST[name]:,}."
            raise ConfigError(message)
    if not 1 <= config.slower_factor < math.inf:
        message = f"{where}: slower_factor is {config.slower_factor}. Give a ratio of 1 or more, such as 1.1."
        raise ConfigError(message)
    if isinstance(config.seed, int) and not 0 <= config.seed < SEEDS:
        message = f"{where}: seed is {config.seed}. Give 0 to {SEEDS - 1}."
        raise ConfigError(message)
    # Reports and the command line tell candidates apart by name alone.
    names = [candidate.name for candidate in config.candidates]
    doubled = sorted({name for name in names if names.count(name) > 1})
    if doubled:
        message = f"{where}: two candidates are named {doubled[0]!r}. Give each a name of its own."
        raise ConfigError(message)
    if REFERENCE_CANDIDATE in names:
        message = (
            f"{where}: candidate '{REFERENCE_CANDIDATE}' has the name that stands for PyTorch where a test expects a "
            "value. Give it another one."
        )
        raise ConfigError(message)
    _check_tolerances(config, where)
    _check_opinfo(config.opinfo, where)
    for candidate in config.candidates:
        check_candidate(candidate, where)


def _check_tolerances(config: Config, where: str) -> None:
    for number, row in enumerate(config.tolerances):
        check_tolerance(row, f"{where}: tolerances[{number}]")


def _check_opinfo(opinfo: OpInfo, where: str) -> None:
    rows = [row for own in opinfo.op_overrides.values() for row in own]
    for dtype in (*opinfo.dtypes, *(dtype for row in rows for dtype in row.dtypes or ())):
        if dtype not in DTYPES:
            nearest = difflib.get_close_matches(dtype, DTYPES, 1, 0.5)
            hint = f"Did you mean {nearest[0]!r}?" if nearest else f"Known: {', '.join(DTYPES)}."
            message = f"{where}: opinfo has dtype {dtype[:80]!r}, which does not exist. {hint}"
            raise ConfigError(message)
    # All candidates get the same cases, so none of them can be spared some.
    for row in rows:
        if row.decorator == "skip" and row.device_type is not None:
            message = (
                f"{where}: opinfo.op_overrides has a skip with device_type {row.device_type[:80]!r}, but a skip holds "
                "for all candidates. Remove device_type, or write decorator: expectedFailure."
            )
            raise ConfigError(message)


def check_candidate(candidate: Candidate, where: str) -> None:
    """Refuse a candidate whose values cannot be.

    Raises:
        ConfigError: There is one.
    """
    fault = next(candidate.faults(), None)
    if fault is not None:
        message = f"{where}: candidate {candidate.name[:80]!r} {fault}"
        raise ConfigError(message)


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
