"""What backends share that run a body as one function: the setup step by step, then the body's inputs and outputs."""

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
from ci_autotest.program.edit import ending_at, replaced
from ci_autotest.program.ir import CALL_FUNCTION, PLACEHOLDER, Program, Ref, Step, output_refs
from ci_autotest.program.refusal import ACCEPTED, Refusal, bare, refusals

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ci_autotest.backends.torch_steps import TorchSteps
    from ci_autotest.errors import Unsupported

#: Classes of errors that mean that something is not implemented. Such an error is not a refusal of the input.
_LACKING: Final = frozenset({"NotImplementedError", "Unsupported"})
#: Calls that return nothing; the tensor that they write to stands for their value.
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
    """Run the setup and place the inputs; return whether that succeeded."""
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
    """Run a body with refused steps: for each one a function that ends with it, then the body without them.

    A ``try`` inside one function does not help, because a compiler raises before that function runs.
    """
    found = {}
    for index in refusals(program.steps):
        trace = run(_until(program, index), sources)
        if trace.untested is not None or (trace.failure is not None and trace.failure.kind in _LACKING):
            return trace
        found[index] = ACCEPTED if trace.failure is None else Refusal(trace.failure.kind, trace.failure.message)
    trace = run(_without_refusals(program), sources, snapshots=snapshots)
    if len(program.calls) == len(found):
        trace.untested = None  # The refusals were tested, and the body has no other call.
    if trace.failure is None and trace.untested is None:
        trace.shown = (trace.shown or frozenset()) | found.keys()
        for index, refusal in found.items():
            trace.values[index] = refusal
            see(trace, index, snapshots=snapshots)
    return trace


def _until(program: Program, index: int) -> Program:
    """Return a program that ends with a refused step and returns its value, so that no compiler drops the step."""
    step = bare(program.steps[index])
    returned = step.args[0] if step.target in _GIVES_NOTHING else Ref(index)
    return ending_at(replaced(_without_refusals(program), {index: step}), index, (returned,))


def _without_refusals(program: Program) -> Program:
    """Return a program with a zero in place of each refused step, so that the others keep their indices."""
    names = {index: program.steps[index].name for index in refusals(program.steps)}
    zeros = {index: Step(CALL_FUNCTION, "torch.zeros", ((),), (), name) for index, name in names.items()}
    return replaced(program, zeros)


def see(trace: Trace, index: int, *, snapshots: bool) -> None:
    """Observe a value: put its facts, and in a run with snapshots its copy and edge, into the trace."""
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
    """Put the outputs into the trace, and mark them and ``bound`` as the only visible steps."""
    refs = output_refs(program)
    # A wrong number of outputs is the candidate's fault, and must not crash the comparison (rule 19).
    if trace.failure is None and len(outputs) != len(refs):
        message = f"the graph returns {len(outputs)} values, the body {len(refs)}"
        trace.failure = Failure(program.calls[-1][0], "ArityError", message)
        return
    trace.shown = bound | {ref.index for ref in refs}
    for ref, value in zip(refs, outputs, strict=False):
        trace.values[ref.index] = value
        see(trace, ref.index, snapshots=snapshots)


def backward_of_whole(
    program: Program,
    trace: Trace,
    cotangents: Mapping[int, Any],
    lacks: Callable[[BaseException], Unsupported | None] = lacking,
) -> None:
    """Run one backward pass from all outputs, if a visible leaf or parameter could get a gradient."""
    if any(has_leaf(value) for value in trace.values):
        backward(program, trace, cotangents, lacks=lacks)


def has_leaf(value: Any) -> bool:
    """Whether a value, or a parameter of it, could get a gradient."""
    if isinstance(value, torch.Tensor):
        return value.requires_grad and value.is_leaf
    return isinstance(value, torch.nn.Module) and any(parameter.requires_grad for parameter in value.parameters())
