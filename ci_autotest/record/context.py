"""The recorder of the case that is being recorded: the only ambient state of recording."""

from __future__ import annotations

import functools
import sys
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final

from ci_autotest.errors import AuthorError

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    from ci_autotest.record.recorder import Recorder

CURRENT: Final[ContextVar[Recorder | None]] = ContextVar("ci_autotest_recorder", default=None)

_RECORDING: Final = __name__.rpartition(".")[0]


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


def asking_module() -> str:
    """Return the name of the module that called recording: the author's, or one of torch's."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and _module_of(frame).startswith(_RECORDING):
        frame = frame.f_back
    return "" if frame is None else _module_of(frame)


def _module_of(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__"))


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
