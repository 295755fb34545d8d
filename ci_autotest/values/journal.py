"""The journal: which calls of its candidates a worker has made, in their order.

The worker writes each call down before it makes it, in memory that the parent can read after the worker is gone. So a
program can make the calls that were made, in their order.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from ci_autotest.values.schedule import RowName  # noqa: TC001 - a message has it, and decoding needs it


class Passes(IntEnum):
    """Which passes of a body a call makes."""

    FORWARD = 1
    BACKWARD = 2
    BOTH = 3


class CandidateCall(NamedTuple):
    """A call of a candidate, or a pass of one.

    Attributes:
        message: Number of the message of its process that asked for the case, from 0.
        candidate: Position of the candidate in that message.
        case: Number of the case.
        attempt: Number of the attempt.
        row: What asked for the call.
        passes: Which passes it makes.
    """

    message: int
    candidate: int
    case: int
    attempt: int
    row: RowName
    passes: Passes

    @property
    def place(self) -> tuple[int, int]:
        """The message and the case."""
        return self.message, self.case
