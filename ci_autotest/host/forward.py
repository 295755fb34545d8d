"""Run a program in a framework and keep what was seen: values, metadata, copies, gradients."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from ci_autotest.host.binding import Binding
from ci_autotest.host.frameworks.protocol import LackingError
from ci_autotest.host.step_errors import failed, needs_attribute
from ci_autotest.host.steps import execute_step
from ci_autotest.host.trace import Facts, Run, Seen
from ci_autotest.program.ir import LOADS_STATE, OUTPUT, PLACEHOLDER, Mapping_, Ref

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import numpy as np

    from ci_autotest.host.frameworks.protocol import Framework
    from ci_autotest.program.ir import Program, Step


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


def seen(value: Any, facts: Facts | None, framework: Framework) -> Seen:
    """Return a value as it is now; of a module nothing: its state is told at the end."""
    if facts is not None:
        return Seen(facts, framework.array(value))
    return Seen(None, None if hasattr(value, "state_dict") else value)
