"""What the ranks of a group have to do with the worker whose candidate they are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Collection


class WorkerSide(NamedTuple):
    """The worker of a group.

    Attributes:
        is_isolated: Whether this process is a worker, which ends as its ranks end if all of them end in the same way.
        on_wait: Called with the ranks that have not answered, and with none when all have, or have started.
    """

    is_isolated: bool = False
    on_wait: Callable[[Collection[int]], None] | None = None

    def wait_for(self, ranks: Collection[int]) -> None:
        """Report the ranks that have not answered."""
        if self.on_wait is not None:
            self.on_wait(ranks)


#: No worker: errors of a group are exceptions, and nobody hears that it waits.
ALONE: Final = WorkerSide()
