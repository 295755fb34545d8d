"""Limitations that a framework reports only in the text of an error: one table for each framework, in its adapter.

A row has the class of the framework's error and the beginning of its message. It counts only for an error that the
framework raised itself, in compiled code or in Python of its own folder. A user's text therefore cannot pass for a
limitation: it would stand behind that beginning, or in an error that other code raised.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ci_autotest.errors import is_of_library

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import CodeType


class Limitation(NamedTuple):
    """One error message with which a framework reports a missing feature.

    Attributes:
        kind: Class of the error.
        start: Regular expression that matches the beginning of the message.
    """

    kind: type[BaseException]
    start: str


def reported_limitation(
    error: BaseException, text: str, table: Iterable[Limitation], folder: Path | None = None
) -> str:
    """Return the part of an error's message that reports a missing feature; empty for any other error.

    Args:
        error: The error, with its traceback.
        text: Its message, without terminal colours.
        table: The framework's limitations.
        folder: Folder of the framework's Python code. Without it only errors of compiled code count.
    """
    code = raiser(error)
    # Compiled code has no frame of Python: the raiser is then whoever called it.
    is_own = code is not None and folder is not None and folder in Path(code.co_filename).resolve().parents
    if not (is_own or is_of_library(error)):
        return ""
    found = (re.match(row.start, text) for row in table if isinstance(error, row.kind))
    return next((match[0] for match in found if match), "")


def raiser(error: BaseException) -> CodeType | None:
    """Return the Python code that raised an error, or that called the compiled code that did."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace.tb_frame.f_code if trace is not None else None
