"""Handling of Ctrl-C, SIGTERM and SIGHUP before a run, during it, and while its report is written.

Before a run starts, a signal ends the process at once. During a run, it is raised where the run may stop and held back
where the run must finish a step. It is raised only once: a second signal must not stop the run from writing its report.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from contextlib import contextmanager

TYPE_CHECKING = False  # Importing `typing` takes longer than all the other imports of this module.
if TYPE_CHECKING:
    from collections.abc import Iterator

#: Exit status of an interrupted command.
INTERRUPTED = 130
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def end_at_once() -> None:
    """Let a signal end this process with one sentence, because nothing has started that could be lost.

    An exception would not do: Python prints and drops one that is raised in a callback of its import machinery.
    """
    for number in _handled():
        signal.signal(number, _end)


def ignore() -> None:
    """Ignore signals from now on, so that none changes the exit status."""
    for number in _handled():
        signal.signal(number, signal.SIG_IGN)


def _handled() -> list[signal.Signals]:
    # Python delivers signals to the main thread only.
    if threading.current_thread() is not threading.main_thread():
        return []
    # Under `nohup` SIGHUP is ignored, and stays so.
    has_nohup = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    return [number for number in _SIGNALS if number != signal.SIGHUP or not has_nohup]


def _end(_number: int, _frame: object) -> None:
    os.write(2, b"interrupted before anything was run\n")
    os._exit(INTERRUPTED)


class Signals:
    """Signal handlers that are installed while a command runs."""

    def __init__(self) -> None:
        self._held = 0
        self._is_raised = self._is_over = False
        self.is_pending = False

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Handle the signals in the block; restore the earlier handlers at its end, unless `over` was called."""
        before = {number: signal.signal(number, self._handle) for number in _handled()}
        hook, sys.unraisablehook = sys.unraisablehook, self._unraisable
        try:
            yield
        finally:
            sys.unraisablehook = hook
            for number, handler in before.items():
                if not self._is_over:
                    signal.signal(number, handler)

    def _handle(self, _number: int, _frame: object) -> None:
        if self._held:
            self.is_pending = True
        else:
            self._raise_once()

    def _raise_once(self) -> None:
        self.is_pending = False
        if not self._is_raised:
            self._is_raised = True
            raise KeyboardInterrupt

    def _unraisable(self, unraisable: sys.UnraisableHookArgs) -> None:
        """Raise an interruption again later if it came in a destructor, where Python prints and drops it."""
        if unraisable.exc_type is KeyboardInterrupt:
            self._is_raised, self.is_pending = False, True
        else:
            sys.__unraisablehook__(unraisable)

    def over(self) -> None:
        """Hold back all signals from now on: the report is being written, and says how the run ended."""
        self._held += 1
        self._is_over = True

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold back signals that arrive in the block; they are raised at its end."""
        self._held += 1
        try:
            yield
        finally:
            self._held -= 1
        if self.is_pending and not self._held:
            self._raise_once()

    @contextmanager
    def interruptible(self) -> Iterator[None]:
        """Raise signals at once in the block, however often they are held around it."""
        held, self._held = self._held, 0
        try:
            if self.is_pending:
                self._raise_once()
            yield
        finally:
            self._held = held

    @contextmanager
    def let_through(self) -> Iterator[None]:
        """Let signals through in the block, also those held back before; hold them back again at its end."""
        self._held -= 1
        try:
            if self.is_pending:
                self._raise_once()
            yield
        finally:
            self._held += 1
