"""The errors that end a command, each with its exit status.

A misaligned case is a result, never an exception. What is raised here is shown as one message,
without a traceback. Exit statuses are those of the table in the README ("Exit status").
"""

from __future__ import annotations

import dis
import importlib
import os
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

#: What Python's ``raise`` and ``assert`` are compiled into.
_RAISES: Final = frozenset({"RAISE_VARARGS", "RERAISE"})
_PACKAGE: Final = Path(__file__).resolve().parent
_SEARCHED: Final = (
    "It is looked for in the test file's folder, the configuration's folder, the current folder and PYTHONPATH."
)


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


class SessionError(AutotestError):
    """Stop a pytest or unittest session: the configuration is wrong, or a candidate is not available."""


class UnsupportedReason(str, Enum):
    """Say why a case is unsupported. What is decided of such a case goes by this value, never by the text beside it.

    Attributes:
        NO_COUNTERPART: The framework, or its exporter, has no counterpart of what the test asks for.
        NO_KERNEL: The device has no kernel of it.
        NOT_REPLACED: The test calls nothing that the candidate replaces.
        CONSTANT: The exporter computed the body itself: nothing is left to run.
        NOT_IMPLEMENTED: A function of the user's raised ``NotImplementedError``.
        NOT_COMPILED: No graph was made of the body.
        STEP_BY_STEP: A graph was asked for, and the body ran step by step.
        UNCHANGED: The pass left the graph as it was.
        NO_GRAPH: The body cannot be one graph, or the candidate has no graphs.
        OUTSIDE: All that the test gives was computed outside of the recorded steps.
        COPIED: The test writes to what is a copy on the device, and no copy on the reference.
    """

    NO_COUNTERPART = "no_counterpart"
    NO_KERNEL = "no_kernel"
    NOT_REPLACED = "not_replaced"
    CONSTANT = "constant"
    NOT_IMPLEMENTED = "not_implemented"
    NOT_COMPILED = "not_compiled"
    STEP_BY_STEP = "step_by_step"
    UNCHANGED = "unchanged"
    NO_GRAPH = "no_graph"
    OUTSIDE = "outside"
    COPIED = "copied"


class Unsupported(NamedTuple):
    """Say why a case is unsupported.

    Attributes:
        reason: What decisions go by.
        detail: For reading: the operator, the argument, what the framework said.
    """

    reason: UnsupportedReason
    detail: str


class UnsupportedError(AutotestError):
    """Say that a candidate has no counterpart of what a program does; the case is unsupported, never misaligned.

    Args:
        message: Names the framework, the operator and the argument.
        operator: Canonical operator that has none.
        argument: The argument that has none, as torch's documentation spells it, where it is one.
        reason: Why the case is unsupported.
    """

    def __init__(
        self,
        message: str,
        operator: str = "",
        argument: str = "",
        reason: UnsupportedReason = UnsupportedReason.NO_COUNTERPART,
    ) -> None:
        super().__init__(message)
        self.operator = operator
        self.argument = argument
        self.reason = reason

    @property
    def why(self) -> Unsupported:
        """Why the case is unsupported."""
        return Unsupported(self.reason, str(self))


class AuthorError(AutotestError):
    """Tell a test's author what to write: a generator, a body or a declaration is wrong.

    Raised in a worker; it becomes the result of that test, and the run goes on.
    """

    exit_code: ClassVar[int] = 1


class UntypedError(AuthorError):
    """Say that the type of a drawn number cannot be told from where it is used."""


def is_own(file: str) -> bool:
    """Whether a frame's file is Python's importer or this package, except for the suite, which is user code."""
    path = Path(file)
    is_importer = file.startswith("<frozen ") or file == importlib.__file__
    return is_importer or (_PACKAGE in path.parents and _PACKAGE / "suite" not in path.parents)


def error_text(error: BaseException) -> str:
    """Return what foreign code's error says, as text that every file and pipe of ours can hold."""
    try:
        text = str(error)
    except BaseException:  # noqa: BLE001 - an error whose own text raises
        text = "(its message cannot be made)"
    return text.encode("utf-8", "backslashreplace").decode().replace("\0", "\\x00")


def path_text(path: str) -> str:
    """Return a path as text that every file and message can hold: bytes of it that are not UTF-8 are written out."""
    return os.fsencode(path).decode(errors="backslashreplace")


def by_user(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call a function of the user's, so that what it raises is known as its own: a compiled one has no frame."""
    return function(*args, **kwargs)


def is_in_user_code(error: BaseException, framework: Path) -> bool:
    """Whether foreign code's error passed through a function that neither a framework has nor this package.

    Args:
        error: As it was caught.
        framework: Folder of the framework.
    """
    trace = error.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        file = code.co_filename
        is_generated = file.startswith("<")  # A program as a function, a graph as code.
        if code is by_user.__code__ or not (is_generated or is_own(file) or framework in Path(file).parents):
            return True
        trace = trace.tb_next
    return False


def is_of_library(error: BaseException) -> bool:
    """Whether a compiled library raised an error, and no ``raise`` in Python: at the innermost frame it was calling."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace is not None and dis.opname[trace.tb_frame.f_code.co_code[trace.tb_lasti]] not in _RAISES


def import_failure(error: BaseException, module: str) -> str:
    """Return why a user's module could not be imported, as a sentence.

    Only a module that was not found gets the list of folders that were searched; any other gets file and line.
    """
    text = f"{type(error).__name__}: {error_text(error)}".rstrip(".")
    if isinstance(error, ModuleNotFoundError) and error.name and f"{module}.".startswith(f"{error.name}."):
        return f"{text}. {_SEARCHED}"
    # The text of a SyntaxError ends with its file and line.
    return f"{text}." if isinstance(error, SyntaxError) else f"{text}{user_frame_text(error)}."


def user_frame_text(error: BaseException) -> str:
    """Return `` (file, line n in name)`` of the innermost frame of the user's in foreign code, or nothing."""
    found = ""
    trace = error.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        if not is_own(code.co_filename) and "site-packages" not in code.co_filename:
            found = f" ({Path(code.co_filename).name}, line {trace.tb_lineno} in {code.co_name})"
        trace = trace.tb_next
    return found
