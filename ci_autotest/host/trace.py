"""What one run of a program in a framework left behind: values, facts, copies, gradients, and where it stopped."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import numpy as np

    from ci_autotest.errors import Unsupported

#: A tensor's dtype, shape, requires_grad and is_leaf.
Facts = tuple[str, tuple[int, ...], bool, bool]


class Seen(NamedTuple):
    """Hold a value as it was at its step.

    Attributes:
        facts: Of a tensor; ``None`` for another value.
        array: Its elements, or the plain value.
    """

    facts: Facts | None
    array: Any


class PutIn(NamedTuple):
    """Hold a gradient that was put into an output.

    Attributes:
        tensor: The framework's, which a backward pass may write to.
        elements: What was put in, in C order.
        memory: Of NumPy's, where that is what holds the tensor's elements.
    """

    tensor: Any
    elements: bytes
    memory: np.ndarray | None = None


class Run:
    """What one run of a program left behind.

    Attributes:
        values: Live value of each step, by index.
        facts: Of each tensor as it was observed, ``None`` for other values.
        copies: Of each value at its step; empty unless the run took snapshots.
        failure: The step that raised, the error's kind and message.
        lacking: Why the run says nothing of the framework: mostly what it has not, where a step asked for it.
        memory: Leaves whose elements are in memory of NumPy's, with that memory.
        gradients: Live tensors, ``None`` where there is none, with what they are with respect to.
        put_in: The gradients that were put in, by position.
        backward_failure: Kind and message of the error that the backward pass raised.
        calls: How often functions of the user's were called in place of an operator.
        left_out: What the framework's modules lack of the reference's state, ``BatchNorm1d.running_mean``.
        graph: What the body ran as where it was one graph, whose outputs do not depend on one another outside of it; it
            lives as long as the run, for the backward pass may need it.
    """

    def __init__(self) -> None:
        self.values: list[Any] = []
        self.facts: list[Facts | None] = []
        self.copies: list[Seen] = []
        self.failure: tuple[int, str, str] | None = None
        self.lacking: Unsupported | None = None
        self.memory: list[tuple[Any, np.ndarray]] = []
        self.gradients: list[tuple[Any, Any]] = []
        self.put_in: dict[int, PutIn] = {}
        self.backward_failure: tuple[str, str] | None = None
        self.calls: dict[str, int] = {}
        self.left_out: list[str] = []
        self.graph: object = None

    @property
    def has_stopped(self) -> bool:
        """Whether it did not get to its end."""
        return self.failure is not None or self.lacking is not None or self.backward_failure is not None
