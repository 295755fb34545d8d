"""What the rest of the package asks of a backend."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from ci_autotest.backends.trace import Trace
    from ci_autotest.program.ir import Program


class Backend(Protocol):
    """Execute programs in one framework and mode.

    Attributes:
        shows_steps: Whether the value of every step can be seen; a compiler shows inputs and
            outputs only.
        takes_copies: Whether ``run`` copies the values that it is told of, because later steps write to them.
        on_step: Told the index of each step before it is entered, and -2 for the backward pass,
            where set.
    """

    shows_steps: bool
    takes_copies: bool
    on_step: Callable[[int], None] | None

    def run(
        self, program: Program, sources: Mapping[str, Any], *, snapshots: bool = False, copied: Collection[int] = ()
    ) -> Trace:
        """Run the program forward; a step that raises ends the run and is in the trace.

        Args:
            program: Setup and body.
            sources: Data of each placeholder by key.
            snapshots: Whether every value is copied at its step.
            copied: Indices of values to copy at their step; only where the backend takes copies.
        """

    def backward(self, program: Program, trace: Trace, cotangents: Mapping[int, Any]) -> None:
        """Put the cotangents into the outputs that require grad, and keep every gradient in the trace."""

    def take_seen(self) -> dict[str, int]:
        """Return the calls counted since the last time, by operator; empty for backends that count none."""
