"""Exceptions of user code: each one is the candidate's outcome, except for Ctrl-C."""

from __future__ import annotations

import signal
from typing import Final

#: A kernel may raise something other than an ``Exception``, for example ``SystemExit`` or a panic in Rust.
FOREIGN: Final = BaseException


def pass_interrupt(error: BaseException) -> None:
    """Raise a ``KeyboardInterrupt`` again unless this process ignores SIGINT, as workers do.

    Raises:
        KeyboardInterrupt: The user may have pressed Ctrl-C.
    """
    if isinstance(error, KeyboardInterrupt) and signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        raise error
