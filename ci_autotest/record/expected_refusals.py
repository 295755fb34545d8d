"""Errors that a test expects: ``@autotest(raises=…, match=…)``, ``pytest.raises`` and ``assertRaises``.

A body may also catch a refusal with its own ``except``. Its step is recorded as refused, but not as expected.
"""

from __future__ import annotations

import re
import sys
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final
from unittest import TestCase

from ci_autotest.errors import AuthorError, error_text
from ci_autotest.record.context import CURRENT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ci_autotest.record.declaration import Declaration

#: Greatest number of characters of an error in a message.
_SHOWN: Final = 300
_CASE: Final = TestCase()


def record_expected_errors() -> None:
    """Make ``assertRaises`` and ``pytest.raises`` in this process record the refusals that the author expects."""
    _patch(_CASE.assertRaises)
    # pytest is optional; a test file that uses `pytest.raises` has imported it.
    pytest: Any = sys.modules.get("pytest")
    if hasattr(pytest, "raises"):
        _patch(pytest.raises)


@lru_cache(maxsize=8)
def _patch(raises: Callable[[type[Exception]], object]) -> None:
    """Patch the class of a function's context managers, once, to report each caught exception to the recorder."""
    kind: Any = type(raises(Exception))
    original_exit = kind.__exit__

    def recording_exit(self: object, kind: object, error: BaseException | None, trace: object) -> bool:
        is_caught: bool = original_exit(self, kind, error, trace)
        recorder = CURRENT.get()
        if is_caught and recorder is not None:
            recorder.demand(error)
        return is_caught

    kind.__exit__ = recording_exit


def check_demand(declaration: Declaration, error: BaseException | None) -> None:
    """Refuse a body that did not end with the error of its declaration.

    Args:
        declaration: The test's declaration, with ``raises``.
        error: The exception of a reference step that the body did not catch; ``None`` if the body returned.

    Raises:
        AuthorError: The reference refused nothing, or raised another error.
    """
    demand = " or ".join(kind.__name__ for kind in declaration.raises)
    if declaration.match is not None:
        demand += f" matching {declaration.match!r}"
    if error is None:
        message = (
            f"the reference refuses nothing: the body should raise {demand}, but it returned. "
            "Correct the body, draw its inputs so that every profile is refused, or remove raises=."
        )
        raise AuthorError(message)
    if not is_met(declaration, error):
        message = (
            f"the reference raises {type(error).__name__}: {error_text(error)[:_SHOWN]}, "
            f"but the body should raise {demand}. Correct raises= and match=, or the body."
        )
        raise AuthorError(message)


def is_met(declaration: Declaration, error: BaseException) -> bool:
    """Return true if an error matches ``raises`` and ``match`` of a declaration."""
    is_meant = isinstance(error, declaration.raises)
    return is_meant and (declaration.match is None or re.search(declaration.match, error_text(error)) is not None)


def is_caused_by(error: BaseException, refusal: BaseException) -> bool:
    """Return true if a refusal of the reference caused a body's error; an assertion is always the author's own."""
    return error is refusal or (
        not isinstance(error, AssertionError) and any(cause is refusal for cause in _causes(error))
    )


def _causes(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    cause = error.__cause__ or error.__context__
    # A cause can be set by hand, so a chain of exceptions may lead back to itself.
    while cause is not None and id(cause) not in seen:
        seen.add(id(cause))
        yield cause
        cause = cause.__cause__ or cause.__context__
