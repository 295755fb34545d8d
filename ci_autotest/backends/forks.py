"""Forks of a worker that has run nothing yet: a server of ranks, and a host of this interpreter."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from contextlib import suppress
from signal import SIGKILL
from typing import TYPE_CHECKING, Final

from ci_autotest.host.this_process import end_with_parent

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

_OPEN_FILES: Final = "/proc/self/fd"
_STANDARD: Final = frozenset({0, 1, 2})
_LOOK_S: Final = 0.01


def fork(work: Callable[[], object], kept: Collection[int]) -> int:
    """Fork a process that ends with this one, and return its id.

    Args:
        work: What it does; it ends when that returns.
        kept: Its open descriptors besides the standard ones. The worker's pipes must be closed there, or the parent
            would not see that the worker is gone.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid:
        return pid
    try:
        end_with_parent()
        for descriptor in _open_descriptors() - {*kept} - _STANDARD:
            with suppress(OSError):
                os.close(descriptor)
        work()
    except BaseException as error:  # noqa: BLE001 - this process is a copy of the worker and must not go on as it
        sys.excepthook(type(error), error, error.__traceback__)
        os._exit(1)
    finally:
        os._exit(0)


def _open_descriptors() -> set[int]:
    try:
        return {int(name) for name in os.listdir(_OPEN_FILES)}  # noqa: PTH208 - numbers, not paths
    except OSError:
        return set(range(256))


class ForkedProcess:
    """A fork of this process, with the methods of ``subprocess.Popen`` that its owner needs.

    Args:
        pid: Its process id.
    """

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._code: int | None = None

    def poll(self) -> int | None:
        """Return the exit status, negative for a signal; ``None`` while it runs."""
        if self._code is None:
            try:
                found, status = os.waitpid(self.pid, os.WNOHANG)
            except ChildProcessError:  # A kernel of this process has waited for it.
                found, status = self.pid, 0
            if found:
                self._code = os.waitstatus_to_exitcode(status)
        return self._code

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit status.

        Raises:
            subprocess.TimeoutExpired: It is still running.
        """
        until = None if timeout is None else time.monotonic() + timeout
        while (code := self.poll()) is None:
            if until is not None and time.monotonic() >= until:
                command = "a forked process"
                raise subprocess.TimeoutExpired(command, timeout or 0.0)
            time.sleep(_LOOK_S)
        return code

    def kill(self) -> None:
        """Kill it, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, SIGKILL)
