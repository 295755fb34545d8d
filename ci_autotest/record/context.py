"""The recorder of the case that is being recorded: the only ambient state of recording."""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ci_autotest.record.protocol import Recorder

CURRENT: Final[ContextVar[Recorder | None]] = ContextVar("ci_autotest_recorder", default=None)
