"""The recorder of the case that is running: the only ambient state of the package."""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ci_autotest.record.protocol import Recorder

CURRENT: Final[ContextVar[Recorder | None]] = ContextVar("ci_autotest_recorder", default=None)
