"""What a framework says it has not, for what it can be asked of in no other way: one table a framework, in its adapter.

A row holds the class of the framework's error and how its message begins, in the framework's own words. It counts only
of an error that the framework raised itself: compiled code, or Python in its own folder. An argument that a message
quotes stands behind those words, and an error of anybody else's is the outcome of the case, whatever it says.
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
    """Say one thing that a framework has not.

    Attributes:
        kind: Class of the error.
        start: Regular expression that the message begins with.
    """

    kind: type[BaseException]
    start: str


def told_by(error: BaseException, text: str, table: Iterable[Limitation], folder: Path | None = None) -> str:
    """Return the words in which a framework says that it has not what was asked for, nothing of any other error.

    Args:
        error: As it was caught.
        text: Its message, colours taken out.
        table: Of the framework.
        folder: Where its Python is; without, what compiled code raises counts alone.
    """
    code = raiser(error)
    is_own = code is not None and folder is not None and folder in Path(code.co_filename).resolve().parents
    if not (is_own or is_of_library(error)):
        return ""
    found = (re.match(row.start, text) for row in table if isinstance(error, row.kind))
    return next((match[0] for match in found if match), "")


def raiser(error: BaseException) -> CodeType | None:
    """Return the code that an error came out of: what raised it, or called the compiled code that did."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace.tb_frame.f_code if trace is not None else None
