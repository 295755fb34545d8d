"""The errors that end a command, each with its exit status, and helpers for errors of foreign code.

A misaligned case is a result, never an exception. The command shows an ``AutotestError`` as one message without a
traceback. The exit statuses are those of the README's table ("Exit status").
"""

from __future__ import annotations

import dis
import importlib
import os
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple

from ci_autotest.doc_links import Page, more

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

#: Opcodes of ``raise`` and ``assert``.
_RAISES: Final = frozenset({"RAISE_VARARGS", "RERAISE"})
_PACKAGE: Final = Path(__file__).resolve().parent
_SEARCHED: Final = (
    "It is looked for in the test file's folder, the configuration's folder, the current folder and PYTHONPATH."
    + more(Page.IMPORTS)
)


class AutotestError(Exception):
    """An error whose message says what is wrong, where, what was found and allowed, and what to do.

    Attributes:
        exit_code: Status of the command.
        page: Page of the documentation to which the command line links, if a sentence is not enough.
    """

    exit_code: ClassVar[int] = 2
    page: ClassVar[Page | None] = None


class UsageError(AutotestError):
    """A command line argument is wrong."""


class ConfigError(AutotestError):
    """The configuration has an unknown key, a wrong type or a value out of range."""


class NoCandidateError(ConfigError):
    """A test that another tool runs has nothing to be compared with. The tests beside it go on."""


class ProgramError(AutotestError):
    """A saved program is damaged, was edited or names a target that is not allowed."""


class OutputError(AutotestError):
    """The output folder cannot be written, or a report cannot be read."""


class ToleranceError(AutotestError):
    """A tolerance is negative or not a number."""


class PublishError(AutotestError):
    """The comment cannot be published: no token, no pull request, or an answer that is not from GitHub."""

    page = Page.NO_COMMENT


class UnavailableError(AutotestError):
    """A required candidate, device or worker is not available."""

    exit_code: ClassVar[int] = 4


class MissingNameError(UnavailableError):
    """A module of a candidate can be imported and lacks a name: in a configuration, that is a mistake in it."""


class SessionError(AutotestError):
    """Stop a pytest or unittest session: the configuration is wrong, or a candidate is not available."""


class UnsupportedReason(str, Enum):
    """Why a case is unsupported. Decisions depend on this value and never on the text beside it.

    Attributes:
        NO_COUNTERPART: The framework or its exporter has no counterpart of what the test calls.
        NO_KERNEL: The device has no kernel for it.
        NOT_REPLACED: The test calls nothing that the candidate replaces.
        CONSTANT: The exporter computed the body itself, so that nothing is left to run.
        NOT_IMPLEMENTED: A user function raised ``NotImplementedError``.
        NOT_COMPILED: The body was not compiled.
        NOT_TRAINED: The compiler raises where a gradient is wanted, and gives the right values without one.
        NOT_DELEGATED: PyTorch ran every call of the body in the compiler's place.
        STEP_BY_STEP: The body ran step by step instead of as a graph.
        UNCHANGED: The pass did not change the graph.
        NO_GRAPH: The body cannot be one graph, or the candidate has no graphs.
        OUTSIDE: All outputs of the test were computed outside the recorded steps.
        COPIED: The test writes to a tensor that is a copy on the device but not on the reference.
        NO_SAMPLES: A data loader gave no sample.
        OUT_OF_SCOPE: The candidate's row in the configuration says that its kernels do not take the call.
        RANKS: The test needs tensors on several ranks.
        OTHER_API: The test calls a framework of its own, and not torch.
        NO_SHARDING_RULE: DTensor has no rule for how an operator is sharded.
        PLACEMENT_REFUSED: DTensor has a rule and says that it does not take these placements.
        NOT_SIMULATED: The simulation of ranks in one process cannot run it.
        NO_PARAMETERS: The test has no parameters that ranks could train.
        BATCH: The batch of the test cannot be split over the ranks, or a part of it gives something else.
        SLICE: The body raises on the rows of one rank, and not on the whole batch.
    """

    NO_COUNTERPART = "no_counterpart"
    NO_KERNEL = "no_kernel"
    NOT_REPLACED = "not_replaced"
    CONSTANT = "constant"
    NOT_IMPLEMENTED = "not_implemented"
    NOT_COMPILED = "not_compiled"
    NOT_TRAINED = "not_trained"
    NOT_DELEGATED = "not_delegated"
    STEP_BY_STEP = "step_by_step"
    UNCHANGED = "unchanged"
    NO_GRAPH = "no_graph"
    OUTSIDE = "outside"
    COPIED = "copied"
    NO_SAMPLES = "no_samples"
    OUT_OF_SCOPE = "out_of_scope"
    RANKS = "ranks"
    OTHER_API = "other_api"
    NO_SHARDING_RULE = "no_sharding_rule"
    PLACEMENT_REFUSED = "placement_refused"
    NOT_SIMULATED = "not_simulated"
    NO_PARAMETERS = "no_parameters"
    BATCH = "batch"
    SLICE = "slice"


class Unsupported(NamedTuple):
    """Why a case is unsupported.

    Attributes:
        reason: Typed reason, on which all decisions depend.
        detail: In words: the operator, the argument, the framework's error.
    """

    reason: UnsupportedReason
    detail: str


class UnsupportedError(AutotestError):
    """A candidate lacks something that a program uses; the case is unsupported, never misaligned.

    Args:
        message: Names the framework, the operator and the argument.
        operator: Canonical operator that is missing.
        argument: Missing argument, as torch's documentation spells it, if it is one.
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


class OutOfScopeError(NotImplementedError):
    """A call is outside what a candidate's row says that its kernels take; the kernel is not called."""

    @property
    def why(self) -> Unsupported:
        """Why the case is unsupported."""
        return Unsupported(UnsupportedReason.OUT_OF_SCOPE, str(self))


class NotCarriedError(OutOfScopeError):
    """A collective operation of ranks does not take tensors of a dtype."""

    @property
    def why(self) -> Unsupported:
        """Why the case is unsupported."""
        return Unsupported(UnsupportedReason.NO_KERNEL, str(self))


class AuthorError(AutotestError):
    """A generator, a body or a declaration of a test is wrong; the message tells the author what to write.

    A worker raises it. It becomes the result of that test, and the run goes on.
    """

    exit_code: ClassVar[int] = 1


class UntypedError(AuthorError):
    """The type of a drawn number does not follow from its use."""


class ArgumentError(AuthorError):
    """A body passes arguments that the function of torch does not take."""


def is_own(file: str) -> bool:
    """Whether a frame's file is Python's importer or this package, except for the suite, which is user code."""
    path = Path(file)
    is_importer = file.startswith("<frozen ") or file == importlib.__file__
    return is_importer or (_PACKAGE in path.parents and _PACKAGE / "suite" not in path.parents)


def error_text(error: BaseException) -> str:
    """Return the text of a foreign error, safe for every file and pipe."""
    try:
        text = str(error)
    except BaseException:  # noqa: BLE001 - ``__str__`` is foreign code too
        text = "(its message cannot be shown)"
    return text.encode("utf-8", "backslashreplace").decode().replace("\0", "\\x00")


def path_text(path: str) -> str:
    """Return a path as text that is safe for every file and message; bytes that are not UTF-8 become escapes."""
    return os.fsencode(path).decode(errors="backslashreplace")


def by_user(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call a user function so that its errors are known to be its own, because a compiled function has no frame."""
    return function(*args, **kwargs)


def is_in_user_code(error: BaseException, framework: Path) -> bool:
    """Whether a foreign error passed through a function that belongs neither to a framework nor to this package.

    Args:
        error: The error as it was caught.
        framework: Folder of the framework.
    """
    trace = error.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        file = code.co_filename
        is_generated = file.startswith("<")  # Code that was generated from a program or a graph.
        if code is by_user.__code__ or not (is_generated or is_own(file) or framework in Path(file).parents):
            return True
        trace = trace.tb_next
    return False


def is_of_library(error: BaseException) -> bool:
    """Whether a compiled library raised an error: then the innermost Python frame was at a call, not at a ``raise``."""
    trace = _innermost(error)
    return trace is not None and not _is_at_raise(trace)


def is_raised_on_purpose(error: BaseException, framework: Path) -> bool:
    """Whether a ``raise`` in Python code that is not the framework's own raised an error.

    Args:
        error: The error as it was caught.
        framework: Folder of the framework.
    """
    trace = _innermost(error)
    if trace is None or isinstance(error, AssertionError):
        return False
    return _is_at_raise(trace) and framework not in Path(trace.tb_frame.f_code.co_filename).parents


def _innermost(error: BaseException) -> TracebackType | None:
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace


def _is_at_raise(trace: TracebackType) -> bool:
    return dis.opname[trace.tb_frame.f_code.co_code[trace.tb_lasti]] in _RAISES


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
    """Return `` (file, line n in name)`` for the innermost frame of user code, or ""."""
    found = ""
    trace = error.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        if not is_own(code.co_filename) and "site-packages" not in code.co_filename:
            found = f" ({Path(code.co_filename).name}, line {trace.tb_lineno} in {code.co_name})"
        trace = trace.tb_next
    return found
