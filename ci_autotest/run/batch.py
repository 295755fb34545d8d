"""A batch: some cases of a test that go through every phase together, and what is known of them between phases."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ci_autotest.alignment.cases import Accepted, Contender
    from ci_autotest.run.work import Work


class Batch(NamedTuple):
    """Some cases of a test, its candidates, and their positions."""

    test: str
    cases: list[int]
    order: Mapping[str, int]
    contenders: Mapping[str, Contender]


class Begun(NamedTuple):
    """A batch that the reference has run.

    Attributes:
        batch: Its cases and candidates.
        work: Those cases that have an accepted attempt.
        refused: Cases whose first attempt was rejected, with what came of the others.
        undefined: How many have no gradients on the reference.
    """

    batch: Batch
    work: Work
    refused: list[tuple[int, Accepted]]
    undefined: int
