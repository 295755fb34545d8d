"""A graph pass: it takes and returns the graph of a body."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ci_autotest.kinds.candidate import BodyCandidate
from ci_autotest.program.python_names import is_path

if TYPE_CHECKING:
    from collections.abc import Iterator


class FxCandidate(BodyCandidate, frozen=True, kw_only=True, tag="fx"):
    """A graph pass.

    Attributes:
        transform: The dotted path of the pass that takes and returns the graph of a program. It gets a list of example
            inputs too if it has a second argument without a default.
    """

    transform: str = ""

    @property
    def named(self) -> tuple[str, ...]:
        """What programs may name: the user's functions and modules of which it consists."""
        return (*super().named, self.transform)

    def faults(self) -> Iterator[str]:
        """Yield what is wrong with its values, and what to write instead."""
        yield from super().faults()
        if not self.transform:
            yield "of backend fx has no transform, so there is no pass to test. Give transform: module.function."
        elif not is_path(self.transform):
            yield f"has transform {self.transform!r}. Write module.function."
