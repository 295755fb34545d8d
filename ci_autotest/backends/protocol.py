"""The protocol of backends. Code outside ``backends`` never checks which backend it has."""

from __future__ import annotations

from abc import abstractmethod
from contextlib import contextmanager
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Protocol

import torch

from ci_autotest.backends.case_scope import EVERY_CASE, without_gradients
from ci_autotest.backends.trace import Trace
from ci_autotest.values.schedule import Passes

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from ci_autotest.backends.body_call import BodyCalls
    from ci_autotest.backends.case_scope import CaseScope
    from ci_autotest.backends.trace import Attempt
    from ci_autotest.errors import Unsupported
    from ci_autotest.program.ir import Program
    from ci_autotest.program.note import HostNote, PlanNote
    from ci_autotest.values.schedule import Ability


#: The index that ``on_step`` is called with when the backward pass begins.
IN_BACKWARD: Final = -2
#: The index that it is called with before a body is compiled or exported.
IN_COMPILING: Final = -5


class Enter(Protocol):
    """Reports which case of a batch begins, so that a crash is attributed to that case."""

    def __call__(self, position: int, /) -> None:
        """Report that the case at a position of the batch begins."""

    def step(self, index: int, /) -> None:
        """Report which step of that case begins, because a program of many calls may take longer than one case may."""

    def calls(self, position: int, passes: Passes, /) -> None:
        """Write down that the candidate is called with the case at a position."""

    def restored(self) -> AbstractContextManager[object]:
        """Return a context manager within which another batch reports its progress; the old place is then restored."""


class Submission(Protocol):
    """A batch that was submitted to a backend."""

    def traces(self) -> Sequence[Trace]:
        """Return the trace of each attempt, forward and backward, in the order of the batch."""

    def close(self) -> None:
        """Abandon the batch if its traces were never read, so that no answer to it is left for the next one."""


class Backend(Protocol):
    """Execute programs in one framework and mode.

    A backend implements ``run`` and ``backward``; the rest has defaults.

    Attributes:
        takes_modules: Whether it needs to know in which module of the user's each step was recorded.
        shows_steps: Whether the value of every step is visible; of a compiled body, only inputs and outputs are.
        writes_inputs: Whether kernels may write to inputs, also to those that they have saved (``writes`` of the row).
        takes_copies: Whether ``run`` can copy values that later steps write to (its argument ``copied``).
        batches_ahead: How many batches may be submitted before the traces of the first are read.
        on_step: If set, called with the index of each step before it runs, with -2 for the backward pass, and with -5
            before a body is compiled.
        version: Version of the framework.
        libraries: Versions of other libraries that matter, by name.
        mode: Name of the mode in reports; empty for the usual one.
        functions: The user's functions that replace operators in this process, by operator.
        is_in_process: Whether the framework's code runs in this process.
        lacks_graph: Why a test that asks for a graph is not compared; empty if it is, or if this is a graph mode.
        case_scope: What the candidate takes of cases as a whole.
    """

    shows_steps: bool = True
    takes_modules: bool = False
    writes_inputs: bool = False
    takes_copies: bool = False
    batches_ahead: int = 0
    on_step: Callable[[int], None] | None = None
    version: str = str(torch.__version__)
    libraries: Mapping[str, str] = {}
    mode: str = ""
    functions: Mapping[str, Callable[..., Any]] = MappingProxyType({})
    is_in_process: bool = True
    lacks_graph: str = ""
    case_scope: CaseScope = EVERY_CASE

    @property
    def abilities(self) -> frozenset[Ability]:
        """What the schedule may ask of it beside its cases."""
        if not self.shows_steps:
            return frozenset({"body"})
        return frozenset({"steps", "again"}) if self.is_in_process else frozenset({"steps"})

    @abstractmethod
    def run(
        self, program: Program, sources: Mapping[str, Any], *, snapshots: bool = False, copied: Collection[int] = ()
    ) -> Trace:
        """Run the program forward; an error ends the run and is noted in the trace.

        Args:
            program: Setup and body.
            sources: Data of each placeholder by key.
            snapshots: Whether every value is copied at its step.
            copied: Indices of values to copy at their step; only for a backend with ``takes_copies``.
        """

    @abstractmethod
    def backward(self, program: Program, trace: Trace, cotangents: Mapping[int, Any]) -> None:
        """Run the backward pass from the outputs that require grad, and put every gradient into the trace."""

    def adapted(self, attempt: Attempt) -> Attempt:
        """Return an attempt as this candidate runs it; a group of ranks adds how its inputs lie on the ranks."""
        return self.narrowed(attempt)

    def narrowed(self, attempt: Attempt) -> Attempt:
        """Return an attempt without gradients, if this candidate is not trained and the body does not ask for any."""
        scope = self.case_scope
        if scope.is_trained or scope.needs_gradient(attempt.program):
            return attempt
        return attempt._replace(program=self.untrained(attempt.program), cotangents={})

    def untrained(self, program: Program) -> Program:
        """Return a program as this candidate runs it without gradients."""
        return without_gradients(program)

    def submit(self, attempts: Sequence[Attempt], enter: Enter) -> Submission:
        """Submit a batch, forward and backward; it may begin at once, or when its traces are read.

        Args:
            attempts: Accepted attempts with the reference's gradients.
            enter: Called with the position of each attempt when it begins.
        """
        return _Deferred(self, list(map(self.adapted, attempts)), enter)

    def again(
        self,
        program: Program,  # noqa: ARG002
        trace: Trace,  # noqa: ARG002
        values: list[Any],  # noqa: ARG002
        *,
        holds: bool,  # noqa: ARG002
    ) -> Iterable[tuple[int, Any]]:
        """Run the remaining steps of a program once more.

        Args:
            program: A program that was run.
            trace: Trace of that run.
            values: Values of the steps before the remaining ones, whose values are appended.
            holds: Whether a value is kept after its last use.

        Yields:
            The index and value of each output, or the index of the step that raised and its ``Failure``. A backend that
            cannot run steps again yields nothing.
        """
        return ()

    def as_graph(self) -> Backend | None:
        """Return a backend that runs each body of this candidate as one graph; ``None`` if it has no such mode."""
        return None

    def as_eager(self) -> Backend | None:
        """Return the eager mode that this graph mode must agree with; ``None`` if this is not a graph mode."""
        return None

    def body_calls(self, program: Program, values: Sequence[Any]) -> BodyCalls | None:  # noqa: ARG002
        """Return what runs a body once, as a user would call it; ``None`` if calls of this backend cannot be timed.

        Args:
            program: A program that was run here and is aligned.
            values: Values of the setup and of the placeholders, by index of their step; both sides get the same ones.
        """
        return None

    def forget_bodies(self) -> bool:
        """Compile bodies anew from now on; return whether this backend compiles any."""
        return False

    def begin_window(self) -> None:
        """Begin a window of cases, in which a callable for several sizes is used again; most backends have none."""
        return None  # noqa: RET501 - in a protocol, an empty body would make the method abstract

    def taken_compile_s(self) -> float:
        """Return the seconds spent compiling since the last call of this method; 0 if this backend compiles nothing."""
        return 0.0

    def has_operators(self) -> bool:
        """Whether an operator of a user's library answers calls, so that what it declares can be checked."""
        return False

    def repro_note(self, program: Program, sources: Mapping[str, Any]) -> HostNote | None:  # noqa: ARG002
        """Return what a repro needs to know about a program here; ``None`` if it needs nothing."""
        return None

    def plan_note(
        self,
        program: Program,  # noqa: ARG002
        sources: Mapping[str, Any],  # noqa: ARG002
        cotangents: Mapping[int, Any],  # noqa: ARG002
    ) -> PlanNote | None:
        """Return how ranks share the batch of a program; ``None`` if this candidate has no such ranks.

        Args:
            program: A program that was run here.
            sources: Data of each placeholder by key.
            cotangents: Gradients of the outputs, by position.
        """
        return None

    def fill_freed_memory(self, blocks: Sequence[tuple[torch.Tensor, int]]) -> None:
        """Write numbers to memory of this process and free it, so that a result that was never written shows them.

        Args:
            blocks: Tensors with the numbers, and how many blocks of that size to make; the tensor is one of them.
        """
        held = [tensor.clone() for tensor, count in blocks for _ in range(count - 1)]
        del held

    def close(self) -> None:
        """End what the backend started, for example a process; most start nothing."""
        return None  # noqa: RET501 - in a protocol, an empty body would make the method abstract


class _Deferred:
    """A batch of a backend in this process: it runs when its traces are read, all forward passes first."""

    def __init__(self, backend: Backend, attempts: Sequence[Attempt], enter: Enter) -> None:
        self._backend, self._attempts, self._enter = backend, attempts, enter

    def traces(self) -> list[Trace]:
        backend, enter, found = self._backend, self._enter, []
        # All forward passes come first: alternating the two phases takes longer, because each one then starts cold.
        for position, attempt in enumerate(self._attempts):
            enter(position)
            if out_of_scope(backend, attempt) is None:
                enter.calls(position, Passes.FORWARD)
            # Compiling takes many times as long as running, so each of the two is progress.
            if attempt.is_probe or not backend.shows_steps:
                with each_step(backend, enter.step):
                    found.append(run_forward(backend, attempt))
            else:
                found.append(run_forward(backend, attempt))
        for position, (attempt, trace) in enumerate(zip(self._attempts, found, strict=True)):
            if attempt.cotangents and out_of_scope(backend, attempt) is None:
                enter(position)
                enter.calls(position, Passes.BACKWARD)
                run_backward(backend, attempt, trace)
        return found

    def close(self) -> None:
        """Do nothing, because nothing has begun."""


@contextmanager
def each_step(backend: Backend, enter: Callable[[int], None]) -> Iterator[None]:
    """Make a backend report each step that begins."""
    before, backend.on_step = backend.on_step, enter
    try:
        yield
    finally:
        backend.on_step = before


def out_of_scope(backend: Backend, attempt: Attempt) -> Unsupported | None:
    """Return what of an attempt a candidate does not take; ``None`` if it takes the attempt."""
    return backend.case_scope.refusal(attempt)


def run_forward(backend: Backend, attempt: Attempt) -> Trace:
    """Run the forward pass of an attempt, and copy the values that the reference copied."""
    outside = out_of_scope(backend, attempt)
    if outside is not None:
        trace = Trace()
        trace.untested = outside
        return trace
    copies = attempt.trace.copies
    if copies and backend.takes_copies:
        trace = backend.run(attempt.program, attempt.sources, copied=copies)
    else:
        trace = backend.run(attempt.program, attempt.sources)
    backend.case_scope.mark(trace)
    return trace


def run_backward(backend: Backend, attempt: Attempt, trace: Trace) -> None:
    """Run the backward pass of an attempt unless its forward pass raised an error or did not run."""
    if attempt.cotangents and trace.failure is None and out_of_scope(backend, attempt) is None:
        backend.backward(attempt.program, trace, attempt.cotangents)
