"""A group of ranks as a backend uses it: it runs one program at a time, on all of its ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import torch

from ci_autotest.backends.snapshots import observed
from ci_autotest.backends.trace import Trace
from ci_autotest.program.ir import ARRAY, CALL_METHOD
from ci_autotest.values.schedule import Passes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ci_autotest.backends.protocol import Enter
    from ci_autotest.backends.trace import Attempt
    from ci_autotest.program.distribution import Distribution
    from ci_autotest.program.ir import Program


class GroupTrace(Trace):
    """The trace of a group: whole values, as another process would send them (``is_remote``).

    Attributes:
        live: What the run of simulated ranks left, with DTensors; unset for ranks in processes of their own.
        run: That run.
    """

    is_remote = True
    is_kept = True
    live: Any = None
    run: Any = None

    def __init__(self, count: int, *, snapshots: bool) -> None:
        super().__init__()
        self.values, self.facts = [None] * count, [None] * count
        self.distributions: dict[int, Distribution] = {}
        if snapshots:
            self.observations = [None] * count

    def with_arrays(self, program: Program) -> GroupTrace:
        """Return this trace with an array of each ``.numpy()``, of which the ranks have a tensor."""
        for index, step in enumerate(program.steps[: len(self.values)]):
            if step.op == CALL_METHOD and step.target == ARRAY and isinstance(self.values[index], torch.Tensor):
                self.values[index] = self.values[index].numpy()
                if self.observations:
                    self.observations[index] = observed(self.values[index])
        return self


class Group(Protocol):
    """A group of ranks."""

    def forward(
        self, program: Program, sources: Mapping[str, Any], on_step: Callable[[int], None] | None, *, snapshots: bool
    ) -> GroupTrace:
        """Run a program forward, and gather its values."""

    def backward(self, program: Program, trace: GroupTrace, cotangents: Mapping[int, Any]) -> None:
        """Run the backward pass of the program that ran last, and gather the gradients."""

    def close(self) -> None:
        """End the ranks."""


class WholeRuns:
    """A batch of ranks in processes of their own: each case runs forward and backward, as no rank keeps a graph.

    Args:
        run: Runs one attempt, forward and backward.
        attempts: The batch.
        enter: Called with the position of each attempt when it begins.
    """

    def __init__(self, run: Callable[[Attempt], Trace], attempts: Sequence[Attempt], enter: Enter) -> None:
        self._run, self._attempts, self._enter = run, attempts, enter

    def traces(self) -> list[Trace]:
        """Return the trace of each attempt."""
        found = []
        for position, attempt in enumerate(self._attempts):
            self._enter(position)
            self._enter.calls(position, Passes.BOTH)
            found.append(self._run(attempt))
        return found

    def close(self) -> None:
        """Do nothing, because nothing has begun."""
