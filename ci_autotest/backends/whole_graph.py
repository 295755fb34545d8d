"""Shared by backends that run a body as one function: the setup step by step, then inputs and outputs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import torch

from ci_autotest.backends.autograd_engine import gradient_edge
from ci_autotest.backends.backward import backward
from ci_autotest.backends.devices import lacking
from ci_autotest.backends.snapshots import observed
from ci_autotest.backends.trace import Failure, Trace
from ci_autotest.backends.user_errors import FOREIGN, pass_interrupt
from ci_autotest.errors import error_text
from ci_autotest.host.steps import execute_step
from ci_autotest.program.ir import CALL_FUNCTION, OUTPUT, PLACEHOLDER, Program, Ref, Step, output_refs
from ci_autotest.program.refusal import ACCEPTED, Refusal, bare, refusals

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ci_autotest.backends.torch_steps import TorchSteps

#: Errors that say that a side has not what it is asked for, which refuses nothing.
_LACKING: Final = frozenset({"NotImplementedError", "Unsupported"})
#: Calls whose value is nothing, so that what they write to is given.
_GIVES_NOTHING: Final = frozenset({"operator.setitem", "builtins.setattr"})


def begun(program: Program, *, snapshots: bool) -> Trace:
    """Return a trace with a place for each step."""
    trace = Trace()
    count = len(program.steps)
    trace.values, trace.facts = [None] * count, [None] * count
    if snapshots:
        trace.observations, trace.edges = [None] * count, [None] * count
    return trace


def prepared(torch_steps: TorchSteps, program: Program, sources: Mapping[str, Any], trace: Trace) -> bool:
    """Run the setup and place the inputs; say whether that could be done."""
    binding = torch_steps.binding(sources)
    for index, step in enumerate(program.steps):
        if step.in_setup or step.op == PLACEHOLDER:
            try:
                trace.values[index] = execute_step(step, trace.values, binding)
            except FOREIGN as error:
                pass_interrupt(error)
                trace.failure = Failure(index, type(error).__name__, error_text(error), lacking(error))
                return False
    return True


def with_refusals(run: Callable[..., Trace], program: Program, sources: Mapping[str, Any], *, snapshots: bool) -> Trace:
    """Run a body with refused steps: each as the end of a function of its own, then the rest as one without them.

    What makes one function of a body raises before a ``try`` inside of it could catch.
    """
    found = {}
    for index in refusals(program.steps):
        trace = run(_until(program, index), sources)
        if trace.untested is not None or (trace.failure is not None and trace.failure.kind in _LACKING):
            return trace
        found[index] = ACCEPTED if trace.failure is None else Refusal(trace.failure.kind, trace.failure.message)
    trace = run(_without_refusals(program), sources, snapshots=snapshots)
    if len(program.calls) == len(found):
        trace.untested = None  # What was run are the refusals.
    if trace.failure is None and trace.untested is None:
        trace.shown = (trace.shown or frozenset()) | found.keys()
        for index, refusal in found.items():
            trace.values[index] = refusal
            see(trace, index, snapshots=snapshots)
    return trace


def _until(program: Program, index: int) -> Program:
    """Return a program that ends with a step that is to raise, and gives what it gives: nothing leaves that out."""
    plain = _without_refusals(program)
    step = bare(program.steps[index])
    at = index - len(program.setup)
    returned = step.args[0] if step.target in _GIVES_NOTHING else Ref(index)
    return Program(
        program.setup, (*plain.body[:at], step, Step(OUTPUT, "output", (returned,), (), "output"))
    )  # fmt: skip


def _without_refusals(program: Program) -> Program:
    """Return a program with a zero in the place of each step that is refused: all others keep theirs."""
    refused = frozenset(refusals(program.steps))
    start = len(program.setup)
    body = (
        Step(CALL_FUNCTION, "torch.zeros", ((),), (), step.name) if index in refused else step
        for index, step in enumerate(program.body, start)
    )
    return Program(program.setup, tuple(body), program.cotangents)


def see(trace: Trace, index: int, *, snapshots: bool) -> None:
    """Note what is observed of a value."""
    value = trace.values[index]
    if isinstance(value, torch.Tensor):
        trace.facts[index] = (value.requires_grad, value.is_leaf, value._version)
        if snapshots and value.requires_grad:
            trace.edges[index] = gradient_edge(value)
    if snapshots:
        trace.observations[index] = observed(value)


def see_outputs(
    program: Program, trace: Trace, outputs: Sequence[Any], bound: frozenset[int], *, snapshots: bool
) -> None:
    """Put the outputs in their places, and say that they and ``bound`` are all that is shown."""
    refs = output_refs(program)
    if trace.failure is None and len(outputs) != len(refs):
        message = f"the graph returns {len(outputs)} values, the body {len(refs)}"
        trace.failure = Failure(program.calls[-1][0], "ArityError", message)
        return
    trace.shown = bound | {ref.index for ref in refs}
    for ref, value in zip(refs, outputs, strict=False):
        trace.values[ref.index] = value
        see(trace, ref.index, snapshots=snapshots)


def backward_of_whole(program: Program, trace: Trace, cotangents: Mapping[int, Any]) -> None:
    """Run one backward pass over all outputs, where a leaf or a parameter is shown that could get a gradient."""
    if any(_has_leaf(value) for value in trace.values):
        backward(program, trace, cotangents)


def _has_leaf(value: Any) -> bool:
    if isinstance(value, torch.Tensor):
        return value.requires_grad and value.is_leaf
    return isinstance(value, torch.nn.Module) and any(parameter.requires_grad for parameter in value.parameters())
