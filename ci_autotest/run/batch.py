"""A batch: some cases of a test that go through every phase together."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ci_autotest.alignment.cases import Accepted
    from ci_autotest.backends.protocol import Submission
    from ci_autotest.backends.trace import Attempt
    from ci_autotest.run.meter import Meter


class Batch(NamedTuple):
    """What is known of a batch after the reference ran it.

    Attributes:
        cases: Numbers.
        spots: Case and number of each accepted attempt.
        attempts: The accepted attempts.
        refused: Cases whose first attempt was rejected, with what came of the others.
        undefined: How many have no gradients on the reference.
        probes: Several calls of a case's body, as an attempt that the reference has run, by the case's position.
        submissions: What each candidate was given, by name: the attempts, then the probes.
        meters: What watches each candidate that runs in this process; of a test's first case none does.
        reference_s: Seconds of the attempts on the reference, at the median of one.
        resident_bytes: Of the process, before the batch was begun.
        allocated_bytes: Likewise; 0 where memory is not watched.
    """

    cases: list[int]
    spots: list[tuple[int, int]]
    attempts: list[Attempt]
    refused: list[tuple[int, Accepted]]
    undefined: int
    probes: Mapping[int, Attempt]
    submissions: Mapping[str, Submission]
    meters: Mapping[str, Meter]
    reference_s: float
    resident_bytes: int
    allocated_bytes: int
