"""Ends of a body that are no failures: skips of unittest and pytest, our own with reasons, and false assumptions.

A false assumption about what was drawn rejects the attempt, and another one is drawn.
"""

from __future__ import annotations

import sys
import unittest
from typing import TYPE_CHECKING, NoReturn

from ci_autotest.errors import Unsupported
from ci_autotest.record.context import CURRENT, recorder_for

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


class FalseAssumption(BaseException):  # a body that catches ``Exception`` must not go on
    """Ends the body of an attempt; it is raised by ``assume`` and caught by the recorder."""


def assume(condition: object) -> None:
    """Reject this attempt, and draw another, unless the condition is true.

    The report counts rejected attempts; a test that accepts few of its ordinary ones is reported as weak.

    Args:
        condition: A boolean, or a recorded value, of which the truth is read.

    Raises:
        AuthorError: Called outside a test.
        FalseAssumption: The condition is false.
    """
    recorder = recorder_for("assume")
    if not condition:
        # The attempt is rejected even if the body catches the exception.
        recorder.notes.assumption = "assume() was false"
        raise FalseAssumption
