"""Ctrl-C and SIGTERM: raised where a run may stop, held back where it must finish what it does."""

from __future__ import annotations

import signal
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


class Signals:
    """Take the place of the handlers of SIGINT and SIGTERM for the time of a run."""

    def __init__(self) -> None:
        """Hold nothing back yet."""
        self._held = 0
        self.is_pending = False

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Handle the signals in the block, where this is the main thread; then put back what was there."""
        is_main = threading.current_thread() is threading.main_thread()
        before = {number: signal.signal(number, self._handle) for number in _SIGNALS if is_main}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _handle(self, _number: int, _frame: object) -> None:
        if self._held:
            self.is_pending = True
        else:
            raise KeyboardInterrupt

    def hold(self) -> None:
        """Hold back what comes from now on: the report is written."""
        self._held += 1

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold back what comes in the block; it is raised at its end."""
        self._held += 1
        try:
            yield
        finally:
            self._held -= 1
        if self.is_pending and not self._held:
            self.is_pending = False
            raise KeyboardInterrupt
