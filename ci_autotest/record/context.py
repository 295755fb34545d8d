"""The recorder of the case that is being recorded: the only ambient state of recording."""

from __future__ import annotations

import functools
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final

from ci_autotest.errors import AuthorError

if TYPE_CHECKING:
    from collections.abc import Callable

    from ci_autotest.record.protocol import Recorder

CURRENT: Final[ContextVar[Recorder | None]] = ContextVar("ci_autotest_recorder", default=None)


def outside(call: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function whose own calls are not recorded."""

    @functools.wraps(call)
    def unrecorded(*args: Any, **kwargs: Any) -> Any:
        token = CURRENT.set(None)
        try:
            return call(*args, **kwargs)
        finally:
            CURRENT.reset(token)

    return unrecorded


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
