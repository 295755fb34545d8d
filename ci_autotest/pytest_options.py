"""Options that pytest was given on its command line: the plugin sets them around each test."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Final, NamedTuple


class PytestOptions(NamedTuple):
    """Hold the options ``--autotest-cases``, ``-seed`` and ``-candidate``; ``None`` or ``()``: not given.

    Attributes:
        cases: Of each test, whatever it declares.
        seed: Root seed.
        candidates: Names from the configuration, or built in.
    """

    cases: int | None = None
    seed: int | None = None
    candidates: tuple[str, ...] = ()


PYTEST_OPTIONS: Final[ContextVar[PytestOptions]] = ContextVar("ci_autotest_asked", default=PytestOptions())  # noqa: B039 - a frozen value
