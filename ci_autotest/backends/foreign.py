"""What foreign code may raise: an outcome of the candidate, but for a Ctrl-C of whoever waits for it."""

from __future__ import annotations

import signal
from typing import Final

#: ``SystemExit`` and ``KeyboardInterrupt`` are no ``Exception``, and a kernel may raise either.
FOREIGN: Final = (Exception, SystemExit, KeyboardInterrupt)


def pass_interrupt(error: BaseException) -> None:
    """Raise a Ctrl-C again where one can come from a terminal: a worker ignores the signal.

    Raises:
        KeyboardInterrupt: It may be the user's.
    """
    if isinstance(error, KeyboardInterrupt) and signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        raise error
