"""The errors that end a command, each with its exit status.

A misaligned case is a result, never an exception. What is raised here is shown as one message,
without a traceback. Exit statuses are those of the table in the README ("Exit status").
"""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar, Final

_PACKAGE: Final = Path(__file__).resolve().parent


class AutotestError(Exception):
    """Carry a message that says what, where, got and allowed, and what to do."""

    exit_code: ClassVar[int] = 2


class UsageError(AutotestError):
    """Refuse an argument of the command line."""


class ConfigError(AutotestError):
    """Refuse a configuration: an unknown key, a wrong type, a value out of range."""


class ProgramError(AutotestError):
    """Refuse a saved program that is damaged, edited or names a target that is not allowed."""


class OutputError(AutotestError):
    """Refuse an output folder that cannot be written, or a report that cannot be read."""


class ToleranceError(AutotestError):
    """Refuse a tolerance of which only one half is given, or that is negative."""


class PublishError(AutotestError):
    """Refuse to publish: no token, no pull request, or an answer that is not GitHub's."""


class UnavailableError(AutotestError):
    """Stop because a required candidate, device or worker is not there."""

    exit_code: ClassVar[int] = 4


class UnsupportedError(AutotestError):
    """Say that a candidate has no counterpart of what a program does; the case is unsupported, never misaligned.

    Args:
        message: Names the framework, the operator and the argument.
        operator: Canonical operator that has none.
        argument: The argument that has none, as torch's documentation spells it, where it is one.
    """

    def __init__(self, message: str, operator: str = "", argument: str = "") -> None:
        """Hold what has no counterpart, for the tables of coverage."""
        super().__init__(message)
        self.operator = operator
        self.argument = argument


class AuthorError(AutotestError):
    """Tell a test's author what to write: a generator, a body or a declaration is wrong.

    Raised in a worker; it becomes the result of that test, and the run goes on.
    """

    exit_code: ClassVar[int] = 1


def is_own(file: str) -> bool:
    """Whether a frame's file is this package's, but not user code that ships with it: it tells a user nothing."""
    path = Path(file)
    return file.startswith("<frozen ") or (_PACKAGE in path.parents and _PACKAGE / "suite" not in path.parents)


def said(error: BaseException) -> str:
    """Return what foreign code's error says, as text that every file and pipe of ours can hold."""
    try:
        text = str(error)
    except BaseException:  # noqa: BLE001 - an error whose own text raises
        text = "(its message cannot be made)"
    return text.encode("utf-8", "backslashreplace").decode().replace("\0", "\\x00")


def where(error: BaseException) -> str:
    """Return `` (file, line n in name)`` of the innermost frame of the user's in foreign code, or nothing."""
    found = ""
    trace = error.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        if not is_own(code.co_filename) and "site-packages" not in code.co_filename:
            found = f" ({Path(code.co_filename).name}, line {trace.tb_lineno} in {code.co_name})"
        trace = trace.tb_next
    return found
