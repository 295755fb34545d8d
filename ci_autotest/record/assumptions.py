"""Assumptions of a body about what was drawn: a false one rejects the attempt, and another is drawn."""

from __future__ import annotations

from ci_autotest.record.context import recorder_for


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
