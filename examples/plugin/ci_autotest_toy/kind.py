"""The kind of candidate. It imports no torch: editors and ci-autotest's parent process read it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ci_autotest.kinds import BodyCandidate, ExportCandidate, running_as

if TYPE_CHECKING:
    from collections.abc import Iterator


class ToyCandidate(BodyCandidate, frozen=True, kw_only=True, tag="toy"):
    """The toy compiler.

    Attributes:
        level: How much it optimizes, 0 to 2.
    """

    level: int = 1

    def faults(self) -> Iterator[str]:
        """Yield what is wrong with its values, and what to write instead."""
        yield from super().faults()
        if not 0 <= self.level <= 2:
            yield f"has level: {self.level}. Give 0 to 2."

    def lowered(self) -> ExportCandidate:
        """Return what it runs as: a function that makes a callable of a body."""
        return running_as(
            self, ExportCandidate, compile="ci_autotest_toy.compiler.compiled", takes="module",
            delegated="ci_autotest_toy.compiler.operators", options={"level": self.level},
        )  # fmt: skip
