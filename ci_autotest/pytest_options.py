"""Options from pytest's command line; the plugin sets them around each test."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Final, NamedTuple


class PytestOptions(NamedTuple):
    """The options ``--autotest-cases``, ``--autotest-seed``, ``--autotest-candidate`` and ``--autotest-output``.

    Attributes:
        cases: Number of cases of each test, whatever it declares; ``None`` if not given.
        seed: Root seed; ``None`` if not given.
        candidates: Names of candidates, from the configuration or built in; empty if not given.
        output: Folder to write findings to, with a repro each; empty if not given.
    """

    cases: int | None = None
    seed: int | None = None
    candidates: tuple[str, ...] = ()
    output: str = ""


PYTEST_OPTIONS: Final[ContextVar[PytestOptions]] = ContextVar("ci_autotest_options", default=PytestOptions())  # noqa: B039 - a frozen value
