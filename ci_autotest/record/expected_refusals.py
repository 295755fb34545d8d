"""Errors that a test expects: ``@autotest(raises=…, match=…)``, ``pytest.raises`` and ``assertRaises``.

A body may also catch a refusal by itself: then it is a step that was found to be refused, and nobody demanded it.
"""

from __future__ import annotations

import re
import sys
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final
from unittest import TestCase

from ci_autotest.errors import AuthorError, said
from ci_autotest.record.context import CURRENT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ci_autotest.record.declaration import Declaration

_SHOWN: Final = 300
_CASE: Final = TestCase()


def hear_demands() -> None:
    """Hear from now on, in this process, which refusals the context managers of pytest and unittest demand."""
    _hear(_CASE.assertRaises)
    pytest: Any = sys.modules.get("pytest")
    if hasattr(pytest, "raises"):
        _hear(pytest.raises)


@lru_cache(maxsize=8)
def _hear(raises: Callable[[type[Exception]], object]) -> None:
    """Let the context managers that a function makes tell the recorder what they have caught, once."""
    kind: Any = type(raises(Exception))
    leave = kind.__exit__

    def received(self: object, kind: object, error: BaseException | None, trace: object) -> bool:
        is_caught: bool = leave(self, kind, error, trace)
        recorder = CURRENT.get()
        if is_caught and recorder is not None:
            recorder.demand(error)
        return is_caught

    kind.__exit__ = received


def check_demand(declaration: Declaration, error: BaseException | None) -> None:
    """Refuse a body that did not end as its declaration says.

    Args:
        declaration: The test's, with ``raises``.
        error: What a reference step raised and the body did not catch, ``None`` where it ran to its end.

    Raises:
        AuthorError: The reference refused nothing, or otherwise than it was to.
    """
    demand = " or ".join(kind.__name__ for kind in declaration.raises)
    if declaration.match is not None:
        demand += f" matching {declaration.match!r}"
    if error is None:
        message = (
            f"the reference refuses nothing: the body was to raise {demand} and ran to its end. "
            "Correct what the body asks for, draw it so that it is refused in every profile, or take raises= away."
        )
        raise AuthorError(message)
    if not is_met(declaration, error):
        message = (
            f"the reference raises {type(error).__name__}: {said(error)[:_SHOWN]}, and the body was to raise {demand}. "
            "Correct raises= and match=, or what the body asks for."
        )
        raise AuthorError(message)


def is_met(declaration: Declaration, error: BaseException) -> bool:
    """Whether the reference raises what a declaration says."""
    is_meant = isinstance(error, declaration.raises)
    return is_meant and (declaration.match is None or re.search(declaration.match, said(error)) is not None)


def comes_of(error: BaseException, refusal: BaseException) -> bool:
    """Whether what ended a body is what a reference step raised, or came of it; an assertion is the author's own."""
    return error is refusal or (
        not isinstance(error, AssertionError) and any(cause is refusal for cause in _causes(error))
    )


def _causes(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    cause = error.__cause__ or error.__context__
    while cause is not None and id(cause) not in seen:
        seen.add(id(cause))
        yield cause
        cause = cause.__cause__ or cause.__context__
