"""Exceptions of user code: each one is the candidate's outcome, except for Ctrl-C and the debugger's ``quit``."""

from __future__ import annotations

import bdb
import signal
from typing import Final

#: A kernel may raise something other than an ``Exception``, for example ``SystemExit`` or a panic in Rust.
FOREIGN: Final = BaseException


def pass_interrupt(error: BaseException) -> None:
    """Raise what a user does at the terminal again, unless this process ignores SIGINT, as workers do.

    Raises:
        KeyboardInterrupt: The user may have pressed Ctrl-C.
        bdb.BdbQuit: The user may have left the debugger.
    """
    if isinstance(error, KeyboardInterrupt | bdb.BdbQuit) and signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        raise error
