"""The recorder of the case that is being recorded: the only ambient state of recording."""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING, Final

from ci_autotest.errors import AuthorError

if TYPE_CHECKING:
    from ci_autotest.record.protocol import Recorder

CURRENT: Final[ContextVar[Recorder | None]] = ContextVar("ci_autotest_recorder", default=None)


def recorder_for(name: str) -> Recorder:
    """Return the recorder of the current case.

    Raises:
        AuthorError: No case is being recorded.
    """
    recorder = CURRENT.get()
    if recorder is None:
        message = f"{name}() was called outside a test. Call it in the body of a function decorated with @autotest."
        raise AuthorError(message)
    return recorder
