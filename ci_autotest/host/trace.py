"""The trace of one run of a program in a framework: values, facts, copies, gradients, and where it stopped."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import numpy as np

    from ci_autotest.errors import Unsupported

#: A tensor's dtype, shape, requires_grad and is_leaf.
Facts = tuple[str, tuple[int, ...], bool, bool]


class Snapshot(NamedTuple):
    """A copy of a value from right after its step.

    Attributes:
        facts: Facts of a tensor; ``None`` for any other value.
        array: Elements of a tensor, or the plain value.
    """

    facts: Facts | None
    array: Any


class OutputCotangent(NamedTuple):
    """The gradient that the backward pass starts with at an output.

    Attributes:
        tensor: The framework's tensor, which a faulty backward pass may overwrite.
        elements: The bytes that were put in, in C order.
        memory: The NumPy array that shares its memory with the tensor, if there is one.
    """

    tensor: Any
    elements: bytes
    memory: np.ndarray | None = None


class RunTrace:
    """The trace of one run of a program.

    Attributes:
        values: Live value of each step, by index.
        facts: Facts of each tensor right after its step, ``None`` for other values.
        copies: Copy of each value right after its step; empty unless the run took snapshots.
        failure: Index of the step that raised, with the error's class and message.
        lacking: Why the case is unsupported, for example because the framework lacks a function.
        memory: Leaves that share their memory with a NumPy array, with that array.
        gradients: Pairs of a key and a live tensor or ``None``. The key is a step's index, or a module's index with a
            parameter's name.
        cotangents: The gradients that the backward pass started with, by position of the output.
        backward_failure: Class and message of the error that the backward pass raised.
        calls: How often each of the user's functions was called in place of an operator.
        left_out: State entries that the framework's modules lack, such as ``BatchNorm1d.running_mean``.
        graph: The compiled graph, in graph mode. The run keeps it alive because the backward pass may need it.
    """

    def __init__(self) -> None:
        self.values: list[Any] = []
        self.facts: list[Facts | None] = []
        self.copies: list[Snapshot] = []
        self.failure: tuple[int, str, str] | None = None
        self.lacking: Unsupported | None = None
        self.memory: list[tuple[Any, np.ndarray]] = []
        self.gradients: list[tuple[Any, Any]] = []
        self.cotangents: dict[int, OutputCotangent] = {}
        self.backward_failure: tuple[str, str] | None = None
        self.calls: dict[str, int] = {}
        self.left_out: list[str] = []
        self.graph: object = None

    @property
    def has_stopped(self) -> bool:
        """Whether the run did not finish."""
        return self.failure is not None or self.lacking is not None or self.backward_failure is not None
