"""What user code may raise: any exception is the candidate's outcome, except a Ctrl-C of the user."""

from __future__ import annotations

import signal
from typing import Final

#: A kernel may raise what is no ``Exception``: ``SystemExit``, or the panic of a kernel in Rust.
FOREIGN: Final = BaseException


def pass_interrupt(error: BaseException) -> None:
    """Raise a Ctrl-C again where one can come from a terminal: a worker ignores the signal.

    Raises:
        KeyboardInterrupt: It may be the user's.
    """
    if isinstance(error, KeyboardInterrupt) and signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        raise error
