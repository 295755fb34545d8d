"""Run a program in a framework, and keep what was seen: values, facts, copies, gradients."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, NamedTuple

from ci_autotest.host.binding import Binding
from ci_autotest.host.frameworks.protocol import LackingError
from ci_autotest.host.step_errors import failed, needs_attribute
from ci_autotest.host.steps import execute_step
from ci_autotest.program.ir import LOADS_STATE, OUTPUT, PLACEHOLDER, Mapping_, Ref

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import numpy as np

    from ci_autotest.errors import Unsupported
    from ci_autotest.host.frameworks.protocol import Framework
    from ci_autotest.program.ir import Program, Step

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
        """Begin with nothing seen."""
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


def forward(
    program: Program,
    tensors: Mapping[str, np.ndarray],
    framework: Framework,
    enter: Callable[[int], None],
    *,
    snapshots: bool,
) -> Run:
    """Run the steps; one that raises ends the run and is in it.

    With snapshots each step is waited for, so that an error, or a crash, is told at its step; else reading the values
    waits for all.

    Args:
        program: Setup and body.
        tensors: Storage of each placeholder by key.
        framework: Runs it.
        enter: Told the index of each step before it is run.
        snapshots: Whether every value is copied at its step.
    """
    run = Run()
    begin = getattr(framework, "begin", None)
    if begin is not None:
        begin()
    around = getattr(framework, "around", nullcontext())
    binding = Binding(framework, tensors)
    run.memory = binding.memory
    for index, step in enumerate(program.steps):
        enter(index)
        value: Any = None
        facts: Facts | None = None
        if step.op != OUTPUT:
            try:
                needs_attribute(step, run.values, framework)
                with nullcontext() if step.op == PLACEHOLDER else around:
                    value = execute_step(step, run.values, binding)
                if snapshots and step.op != PLACEHOLDER:
                    framework.synchronize()
                if step.in_setup and step.target == LOADS_STATE:
                    run.left_out += _left_out(step, run.values)
                facts = framework.facts(value) if framework.is_tensor(value) else None
                if snapshots:
                    run.copies.append(seen(value, facts, framework))
            except LackingError as error:
                run.lacking = error.why
                return run
            except BaseException as error:  # noqa: BLE001 - foreign code: its error is the outcome
                failed(run, step, index, error, framework)
                return run
        elif snapshots:
            run.copies.append(Seen(None, None))
        run.values.append(value)
        run.facts.append(facts)
    return run


def _left_out(step: Step, values: Sequence[Any]) -> list[str]:
    """Return the names of a state that the module which was given it has not."""
    receiver, state = step.args
    assert isinstance(receiver, Ref)  # noqa: S101 - checked when read
    assert isinstance(state, Mapping_)  # noqa: S101 - likewise
    module = values[receiver.index]
    own = module.state_dict()
    return [f"{type(module).__name__}.{name}" for name, _ in state.items if name not in own]


def seen(value: Any, facts: Facts | None, framework: Framework) -> Seen:  # noqa: ANN401 - a framework's value
    """Return a value as it is now; of a module nothing: its state is told at the end."""
    if facts is not None:
        return Seen(facts, framework.array(value))
    return Seen(None, None if hasattr(value, "state_dict") else value)
