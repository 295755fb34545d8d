"""The protocol of backends. Nothing outside ``backends`` asks which backend it has."""

from __future__ import annotations

from abc import abstractmethod
from contextlib import contextmanager
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Protocol

import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from ci_autotest.backends.trace import Attempt, Trace
    from ci_autotest.program.ir import Program


#: What ``on_step`` is called with when the backward pass begins.
IN_BACKWARD: Final = -2


class Enter(Protocol):
    """Says which case of a batch is entered, so that a crash is attributed to that case."""

    def __call__(self, position: int, /) -> None:
        """Say that the case at a position of the batch is entered."""

    def step(self, index: int, /) -> None:
        """Say which step of that case is entered: a program of many calls may take longer than one case may."""

    def restored(self) -> AbstractContextManager[object]:
        """Return a block after which the place is again the one before: inside, another batch says where it is."""


class Submission(Protocol):
    """A batch that was given to a backend."""

    def traces(self) -> Sequence[Trace]:
        """Return what was seen of each attempt, forward and backward, in the order given."""

    def close(self) -> None:
        """Give the batch up, where it was not asked for: no answer to it is left over for what comes next."""


class Backend(Protocol):
    """Execute programs in one framework and mode.

    A backend implements ``run`` and ``backward``; the rest has defaults.

    Attributes:
        shows_steps: Whether the value of every step can be seen; a compiler shows inputs and
            outputs only.
        takes_copies: Whether ``run`` copies the values that it is told of, because later steps write to them.
        batches_ahead: How many batches may be submitted before the traces of the first are asked for.
        on_step: Called with the index of each step before it is entered, and with -2 for the backward pass,
            where set.
        version: Of the framework.
        libraries: Versions of other libraries that matter, by name.
        mode: What reports call the mode; empty for the usual one.
        functions: The user's own that answer operators in this process, by operator.
        is_in_process: Whether the framework's code runs in this process.
        lacks_graph: Why a test that asks for a graph is not compared; empty where it is, or where this is a graph.
    """

    shows_steps: bool = True
    takes_copies: bool = False
    batches_ahead: int = 0
    on_step: Callable[[int], None] | None = None
    version: str = str(torch.__version__)
    libraries: Mapping[str, str] = {}
    mode: str = ""
    functions: Mapping[str, Callable[..., Any]] = MappingProxyType({})
    is_in_process: bool = True
    lacks_graph: str = ""

    @abstractmethod
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

    @abstractmethod
    def backward(self, program: Program, trace: Trace, cotangents: Mapping[int, Any]) -> None:
        """Put the cotangents into the outputs that require grad, and keep every gradient in the trace."""

    def submit(self, attempts: Sequence[Attempt], enter: Enter) -> Submission:
        """Give the backend a batch, forward and backward; it may begin at once, or when the traces are asked for.

        Args:
            attempts: Accepted, with the reference's gradients.
            enter: Called with the position of the attempt that is entered next.
        """
        return _Deferred(self, attempts, enter)

    def again(
        self,
        program: Program,  # noqa: ARG002
        trace: Trace,  # noqa: ARG002
        values: list[Any],  # noqa: ARG002
        *,
        holds: bool,  # noqa: ARG002
    ) -> Iterable[tuple[int, Any]]:
        """Run the rest of a program's steps once more.

        Args:
            program: What was run.
            trace: Of that run.
            values: Of the steps before the rest; the others are appended.
            holds: Whether a value is held after its last use.

        Yields:
            The index and the value of each output, or of the step that raised its ``Failure``; nothing where a backend
            cannot.
        """
        return ()

    def as_graph(self) -> Backend | None:
        """Return this candidate with bodies that run as one compiled graph; ``None`` where it has no such mode."""
        return None

    def as_eager(self) -> Backend | None:
        """Return a graph mode's own eager mode, which its graphs must agree with; ``None`` for every other one."""
        return None

    def repro_note(self, program: Program, sources: Mapping[str, Any]) -> dict[str, Any] | None:  # noqa: ARG002
        """Return what a repro has to know of a program here, as plain JSON values; ``None`` where that is nothing."""
        return None

    def fill_freed_memory(self, blocks: Sequence[tuple[torch.Tensor, int]]) -> None:
        """Write to memory of this process and free it, so that a result that nothing is written to shows the numbers.

        Args:
            blocks: Tensors that hold the numbers, each with how many of its size there are to be; it is one of them.
        """
        held = [tensor.clone() for tensor, count in blocks for _ in range(count - 1)]
        del held

    def close(self) -> None:
        """End what the backend started: a process, a session. Most start nothing."""
        return None  # noqa: RET501 - of a protocol, an empty body would be an abstract method


class _Deferred:
    """A batch of a backend that runs in this process: it runs, phase by phase, when the traces are asked for."""

    def __init__(self, backend: Backend, attempts: Sequence[Attempt], enter: Enter) -> None:
        self._backend, self._attempts, self._enter = backend, attempts, enter

    def traces(self) -> list[Trace]:
        backend, enter, found = self._backend, self._enter, []
        for position, attempt in enumerate(self._attempts):
            enter(position)
            if attempt.is_probe:
                with each_step(backend, enter.step):
                    found.append(run_forward(backend, attempt))
            else:
                found.append(run_forward(backend, attempt))
        for position, (attempt, trace) in enumerate(zip(self._attempts, found, strict=True)):
            enter(position)
            run_backward(backend, attempt, trace)
        return found

    def close(self) -> None:
        """Nothing has begun."""


@contextmanager
def each_step(backend: Backend, enter: Callable[[int], None]) -> Iterator[None]:
    """Have a backend say which step it enters."""
    before, backend.on_step = backend.on_step, enter
    try:
        yield
    finally:
        backend.on_step = before


def run_forward(backend: Backend, attempt: Attempt) -> Trace:
    """Run the forward pass of an attempt; what the reference copied because later steps write to it is copied too."""
    copies = attempt.trace.copies
    if copies and backend.takes_copies:
        return backend.run(attempt.program, attempt.sources, copied=copies)
    return backend.run(attempt.program, attempt.sources)


def run_backward(backend: Backend, attempt: Attempt, trace: Trace) -> None:
    """Run the backward pass of an attempt whose forward pass raised nothing."""
    if attempt.cotangents and trace.failure is None:
        backend.backward(attempt.program, trace, attempt.cotangents)
