"""Skips: marks of pytest and unittest that skip a test or expect its failure, and other ends of a body without failure.

Marks are read as pytest reads them, without importing pytest. A body ends early by an exception of unittest or pytest
that skips the case, by our own ``UnsupportedTest``, which has a reason, or by a false assumption about the draws. A
false assumption rejects the attempt, and another one is drawn.
"""

from __future__ import annotations

import sys
import unittest
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from ci_autotest.errors import AuthorError, Unsupported
from ci_autotest.record.context import CURRENT, recorder_for
from ci_autotest.values.result import XFail

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ci_autotest.errors import UnsupportedReason

#: The reason that pytest gives for a mark without one.
_NO_REASON = "unconditional skip"


class UnsupportedTest(BaseException):  # a body that catches ``Exception`` must not go on
    """Ends a body that needs something that no candidate can have here; its case is unsupported.

    Args:
        why: The reason.
    """

    def __init__(self, why: Unsupported) -> None:
        super().__init__(why.detail)
        self.why = why


def unsupported(reason: UnsupportedReason, detail: str) -> NoReturn:
    """End the body of this case. The case is unsupported even if the body catches the exception.

    Raises:
        UnsupportedTest: Always.
    """
    why = Unsupported(reason, detail)
    recorder = CURRENT.get()
    if recorder is not None:
        recorder.notes.untested = why
    raise UnsupportedTest(why)


class Unavailable:
    """A name that a body may use but that does not exist here. Its use in a test makes the case unsupported."""

    def refuse(self) -> None:
        """End the body of this case; outside a test, do nothing."""
        raise NotImplementedError


def skip_exceptions() -> tuple[type[BaseException], ...]:
    """Return the exceptions that skip a test; pytest's only if the user has imported pytest."""
    pytest = sys.modules.get("pytest")
    # `pytest.xfail()` ends the body, so no part of it is left that could pass.
    return (unittest.SkipTest, *([pytest.skip.Exception, pytest.xfail.Exception] if pytest is not None else []))


def skip_reason(error: BaseException) -> str:
    """Return the reason of a skip."""
    return str(getattr(error, "msg", None) or error) or "no reason given"


class FalseAssumption(BaseException):  # a body that catches ``Exception`` must not go on
    """Ends the body of an attempt; it is raised by ``assume`` and caught by the recorder."""


def assume(condition: object) -> None:
    """Reject this attempt and draw another one, unless the condition is true.

    The report counts rejected attempts. A test that accepts few of its ordinary attempts is reported as weak.

    Args:
        condition: A boolean, or a recorded value that is converted to one.

    Raises:
        AuthorError: Called outside a test.
        FalseAssumption: The condition is false.
    """
    recorder = recorder_for("assume")
    if not condition:
        # The attempt is rejected even if the body catches the exception.
        recorder.notes.assumption = "assume() was false"
        raise FalseAssumption


class MarkBearers(NamedTuple):
    """Objects that can carry marks, the nearest first.

    Attributes:
        row: Marks of the test's row of ``parametrize``.
        function: The decorated function.
        owner: Its class, if it is a method.
        module: Its module.
    """

    row: Sequence[Any]
    function: object
    owner: type | None
    module: object


def skip_reason_of(marked: MarkBearers) -> str | None:
    """Return why a test is skipped; ``None`` if it is not.

    Raises:
        AuthorError: The condition of ``skipif`` is a text, or ``pytestmark`` has something that is no mark.
    """
    # unittest asks the class first, too.
    for carrier in (marked.owner, marked.function):
        if getattr(carrier, "__unittest_skip__", False):
            return str(getattr(carrier, "__unittest_skip_why__", "")) or _NO_REASON
    for mark in _marks(marked):
        if mark.name == "skip":
            return _reason(mark, mark.args) or _NO_REASON
        if mark.name == "skipif" and _holds(mark):
            return _reason(mark, ()) or _NO_REASON
        if mark.name == "xfail" and mark.kwargs.get("run") is False and _holds(mark):
            return f"[NOTRUN] {_reason(mark, ())}".strip()
    return None


def expected_failure_of(marked: MarkBearers) -> XFail | None:
    """Return the mark of a test that is expected to fail; ``None`` if it is not.

    Raises:
        AuthorError: The condition of ``xfail`` is a text, its ``raises`` is no exception class, or ``pytestmark`` has
            something that is no mark.
    """
    for carrier in (marked.owner, marked.function):
        if getattr(carrier, "__unittest_expecting_failure__", False):
            return XFail(reason="unittest.expectedFailure", is_strict=True)
    for mark in _marks(marked):
        if mark.name == "xfail" and _holds(mark):
            # Under pytest, a misalignment is an AssertionError.
            raises = mark.kwargs.get("raises") or AssertionError
            _refuse_no_errors(raises)
            is_meant = issubclass(AssertionError, raises)
            reason = _reason(mark, ()) or "no reason given"
            return XFail(reason=reason, is_strict=bool(mark.kwargs.get("strict"))) if is_meant else None
    return None


def _marks(marked: MarkBearers) -> Iterator[Any]:
    yield from (getattr(each, "mark", each) for each in marked.row)
    carriers = [marked.function, *(marked.owner.__mro__ if marked.owner is not None else ()), marked.module]
    for carrier in carriers:
        # `getattr` would also find the marks of base classes, which the loop visits by itself.
        own = vars(carrier).get("pytestmark", ()) if hasattr(carrier, "__dict__") else ()
        for each in own if isinstance(own, list | tuple) else (own,):
            found = getattr(each, "mark", each)
            if not hasattr(found, "kwargs"):
                message = f"pytestmark has {found!r:.80}, which is no mark. Write pytest.mark.NAME."
                raise AuthorError(message)
            yield found


def _refuse_no_errors(raises: object) -> None:
    """Refuse a wrong value of ``xfail(raises=...)``.

    Raises:
        AuthorError: It is neither an exception class nor a tuple of them.
    """
    for each in raises if isinstance(raises, tuple) else (raises,):
        if not (isinstance(each, type) and issubclass(each, BaseException)):
            message = f"xfail(raises={each!r:.80}) is no class of exceptions. Write the class, such as AssertionError."
            raise AuthorError(message)


def _holds(mark: Any) -> bool:
    """Return true if any of a mark's conditions is true, or it has none."""
    conditions = (*mark.args, *([mark.kwargs["condition"]] if "condition" in mark.kwargs else []))
    for condition in conditions:
        if isinstance(condition, str):
            message = (
                f"the condition of {mark.name} is the text {condition!r}. Write the expression itself: "
                f"{mark.name}({condition}, reason=...)."
            )
            raise AuthorError(message)
    return any(conditions) or not conditions


def _reason(mark: Any, args: Sequence[Any]) -> str:
    return str(mark.kwargs.get("reason") or (args[0] if args else ""))
