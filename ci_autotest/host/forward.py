"""The forward run of a program: execute its steps and keep values, metadata and copies."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from ci_autotest.host.binding import Binding
from ci_autotest.host.frameworks.protocol import LackingError
from ci_autotest.host.step_errors import needs_attribute, record_error
from ci_autotest.host.steps import execute_step
from ci_autotest.host.trace import Facts, RunTrace, Snapshot
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
) -> RunTrace:
    """Run the steps. The first step that raises ends the run, and its error is recorded there.

    With snapshots the run waits for each step, so that an error or a crash is reported at the step that caused it.
    Without, reading the values waits for all steps together.

    Args:
        program: Setup and body.
        tensors: Storage of each placeholder by key.
        framework: The framework that runs it.
        enter: Called with the index of each step before it runs.
        snapshots: Whether every value is copied right after its step.
    """
    run = RunTrace()
    begin = getattr(framework, "begin", None)
    if begin is not None:
        begin()
    around = getattr(framework, "around", nullcontext())
    binding = Binding(framework, tensors)
    run.memory = binding.memory
    for index, step in enumerate(program.steps):
        # Before the step runs, so that a crash is attributed to it.
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
                    run.copies.append(snapshot(value, facts, framework))
            except LackingError as error:  # before BaseException: it is our own error and needs no interpretation
                run.lacking = error.why
                return run
            except BaseException as error:  # noqa: BLE001 - foreign code: its error is the outcome
                record_error(run, step, index, error, framework)
                return run
        elif snapshots:
            # The output has no value, but copies and steps must have the same indices.
            run.copies.append(Snapshot(None, None))
        run.values.append(value)
        run.facts.append(facts)
    return run


def _left_out(step: Step, values: Sequence[Any]) -> list[str]:
    """Return the names of state entries that the module which loads them lacks."""
    receiver, state = step.args
    assert isinstance(receiver, Ref)  # noqa: S101 - checked when read
    assert isinstance(state, Mapping_)  # noqa: S101 - likewise
    module = values[receiver.index]
    own = module.state_dict()
    return [f"{type(module).__name__}.{name}" for name, _ in state.items if name not in own]


def snapshot(value: Any, facts: Facts | None, framework: Framework) -> Snapshot:
    """Return a copy of a value; ``None`` for a module, whose state is read at the end of the run."""
    if facts is not None:
        return Snapshot(facts, framework.array(value))
    return Snapshot(None, None if hasattr(value, "state_dict") else value)
