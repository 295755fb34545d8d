"""Ctrl-C, SIGTERM and SIGHUP: what they do before a run, in it, and when its report is written.

They end at once what has begun nothing, are raised where a run may stop, and are held back where it must finish what it
does. They are raised once: a second one finds the run stopping, and must not stop it from writing its report.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from contextlib import contextmanager

TYPE_CHECKING = False  # That of `typing` takes longer to import than all the rest that is needed here.
if TYPE_CHECKING:
    from collections.abc import Iterator

#: The exit status of what was interrupted.
INTERRUPTED = 130
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def end_at_once() -> None:
    """Have a signal end this process with a sentence: nothing has begun that could be lost.

    An exception cannot do that: one that is raised in a callback of the import machinery is printed and forgotten.
    """
    for number in _heeded():
        signal.signal(number, _end)


def ignore() -> None:
    """Let no signal change the exit status any more."""
    for number in _heeded():
        signal.signal(number, signal.SIG_IGN)


def _heeded() -> list[signal.Signals]:
    """Return the signals that are answered: SIGHUP not below ``nohup``, and none in a thread, which gets none."""
    if threading.current_thread() is not threading.main_thread():
        return []
    is_lasting = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    return [number for number in _SIGNALS if number != signal.SIGHUP or not is_lasting]


def _end(_number: int, _frame: object) -> None:
    os.write(2, b"interrupted before anything was run\n")
    os._exit(INTERRUPTED)


class Signals:
    """Take the place of the handlers of the signals while something runs."""

    def __init__(self) -> None:
        self._held = 0
        self._is_raised = self._is_over = False
        self.is_pending = False

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Handle the signals in the block, where this is the main thread; then put back what was there, unless over."""
        before = {number: signal.signal(number, self._handle) for number in _heeded()}
        hook, sys.unraisablehook = sys.unraisablehook, self._forgotten
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

    def _forgotten(self, told: sys.UnraisableHookArgs) -> None:
        """Keep an interruption that came in a destructor, where Python prints it and goes on, for the next place."""
        if told.exc_type is KeyboardInterrupt:
            self._is_raised, self.is_pending = False, True
        else:
            sys.__unraisablehook__(told)

    def over(self) -> None:
        """Heed nothing that comes from now on: the report is written, and says how the run ended."""
        self._held += 1
        self._is_over = True

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold back what comes in the block; it is raised at its end."""
        self._held += 1
        try:
            yield
        finally:
            self._held -= 1
        if self.is_pending and not self._held:
            self._raise_once()

    @contextmanager
    def let_through(self) -> Iterator[None]:
        """Raise in the block what was held back; at its end it is held back again."""
        self._held -= 1
        try:
            if self.is_pending:
                self._raise_once()
            yield
        finally:
            self._held += 1
