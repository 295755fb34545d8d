"""Skips of a body: the exceptions of unittest and pytest that skip a case, and the one that is ours, with reasons."""

from __future__ import annotations

import sys
import unittest
from typing import TYPE_CHECKING, NoReturn

from ci_autotest.errors import Unsupported
from ci_autotest.record.context import CURRENT

if TYPE_CHECKING:
    from ci_autotest.errors import UnsupportedReason


class UnsupportedTest(BaseException):  # a body that catches ``Exception`` must not go on
    """Ends a body that asks for what no candidate can have here; its case is unsupported.

    Args:
        why: The reason.
    """

    def __init__(self, why: Unsupported) -> None:
        super().__init__(why.detail)
        self.why = why


def unsupported(reason: UnsupportedReason, detail: str) -> NoReturn:
    """End the body of this case. If the body catches even this, its case is unsupported all the same.

    Raises:
        UnsupportedTest: Always.
    """
    why = Unsupported(reason, detail)
    recorder = CURRENT.get()
    if recorder is not None:
        recorder.notes.untested = why
    raise UnsupportedTest(why)


class Unavailable:
    """Something that a body names and that nothing can have here. Used in a test, it makes the case unsupported."""

    def refuse(self) -> None:
        """End the body of this case; outside of a test do nothing."""
        raise NotImplementedError


def skip_exceptions() -> tuple[type[BaseException], ...]:
    """Return the exceptions that skip a test; pytest's only if the user has imported pytest."""
    pytest = sys.modules.get("pytest")
    # After `pytest.xfail()` nothing of the body runs, so there is nothing that could pass.
    return (unittest.SkipTest, *([pytest.skip.Exception, pytest.xfail.Exception] if pytest is not None else []))


def skip_reason(error: BaseException) -> str:
    """Return the reason that a skip gives."""
    return str(getattr(error, "msg", None) or error) or "no reason given"
