"""The worker process: it imports tests and frameworks, runs cases and sends their results.

The parent starts it with a pipe in each direction. Nothing that a test prints reaches the pipes, and whatever a test
does to this process, only the case in flight is lost.
"""

from __future__ import annotations

import faulthandler
import io
import os
import signal
import sys
import traceback
from typing import TYPE_CHECKING, Final

from ci_autotest.errors import error_text, is_own
from ci_autotest.host.this_process import end_with_parent

if TYPE_CHECKING:
    from ci_autotest.run.messages import FromWorker, ToWorker
    from ci_autotest.run.worker.dispatch import Dispatcher

_READ_BYTES: Final = 1 << 20
_TRACEBACK_CHARS: Final = 8000


def main(argv: list[str]) -> None:
    """Serve the parent until it closes the pipe.

    Args:
        argv: File descriptors to read from and to write to, and that of the progress beacon.
    """
    read_fd, write_fd, beacon_fd = map(int, argv)
    end_with_parent()
    # Ctrl-C in a terminal is for the parent. An interrupt here could only come from a test or a kernel.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    faulthandler.enable()
    if isinstance(sys.stdout, io.TextIOWrapper):
        # What a kernel printed before it ended this process is in its finding, and `-s` shows it as it comes.
        sys.stdout.reconfigure(line_buffering=True)
    from ci_autotest.backends.first_use import prepare  # noqa: PLC0415 - imports the framework, after the fault handler is on
    from ci_autotest.run.frames import HEADER, decode_to_worker, frame, size_of  # noqa: PLC0415 - likewise
    from ci_autotest.run.progress_beacon import ProgressBeacon  # noqa: PLC0415 - likewise
    from ci_autotest.run.worker.dispatch import Dispatcher  # noqa: PLC0415 - likewise
    from ci_autotest.run.worker.memory import spare_memory  # noqa: PLC0415 - likewise

    prepare()
    dispatcher = Dispatcher(ProgressBeacon(beacon_fd), lambda message: _write(write_fd, frame(message)), is_fresh=True)
    spare_memory()
    while True:
        head = _read(read_fd, HEADER.size)
        if head is None:
            # Python's own exit would run what tests and frameworks have registered for it.
            os._exit(0)
        size = size_of(head)
        body = _read(read_fd, size) if size is not None else None
        if body is None:
            os._exit(0)
        _write(write_fd, frame(answer_of(dispatcher, decode_to_worker(body))))


def answer_of(dispatcher: Dispatcher, message: ToWorker, passed: tuple[type[BaseException], ...] = ()) -> FromWorker:
    """Return the answer to a message; any error of user code becomes a ``Broken``, except those that are ``passed``."""
    from ci_autotest.errors import AutotestError, UnavailableError  # noqa: PLC0415 - after the fault handler is on
    from ci_autotest.run.messages import Broken  # noqa: PLC0415 - likewise

    try:
        return dispatcher.answer(message)
    except passed:
        raise
    except AutotestError as error:
        cause = error.__cause__
        shown = cause is not None and not isinstance(cause, AutotestError)
        text = user_traceback(cause) if shown and cause is not None else ""
        is_refusal = not isinstance(error, UnavailableError)
        return Broken(message=str(error), traceback=text, is_refusal=is_refusal, is_changed=dispatcher.is_changed())
    except BaseException as error:  # noqa: BLE001 - user code at import may raise anything, SystemExit too
        text = f"{type(error).__name__}: {error_text(error)}"
        return Broken(message=text, traceback=user_traceback(error), is_changed=dispatcher.is_changed())


def user_traceback(error: BaseException) -> str:
    """Return the traceback without this package's frames, because the user's own lines are what helps."""
    shown = traceback.TracebackException.from_exception(error)
    shown.stack = traceback.StackSummary.from_list([frame for frame in shown.stack if not is_own(frame.filename)])
    text = "".join(shown.format())[-_TRACEBACK_CHARS:]
    # A message may contain half of a surrogate pair, which no frame can carry.
    return text.encode("utf-8", "backslashreplace").decode()


def _read(fd: int, size: int) -> bytes | None:
    parts = []
    while size:
        part = os.read(fd, min(size, _READ_BYTES))
        if not part:
            return None
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def _write(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


if __name__ == "__main__":
    main(sys.argv[1:])
