"""The backend ``torch``: torch executes each step, one after the other, on one device."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, Final

import torch

from ci_autotest.backends.backward import backward
from ci_autotest.backends.body_call import BodyCalls, called_with
from ci_autotest.backends.devices import lacking
from ci_autotest.backends.input_copies import place
from ci_autotest.backends.protocol import IN_BACKWARD, Backend
from ci_autotest.backends.snapshots import keep_copy, observe
from ci_autotest.backends.torch_compile import CompileBackend, python_function
from ci_autotest.backends.torch_steps import TorchSteps
from ci_autotest.backends.trace import Failure, Trace
from ci_autotest.backends.user_errors import FOREIGN, pass_interrupt
from ci_autotest.errors import error_text, user_frame_text
from ci_autotest.host.steps import execute_step
from ci_autotest.program.codegen import GRAPH_OPTIONS
from ci_autotest.program.ir import OUTPUT, PLACEHOLDER, output_refs, step_refs

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from ci_autotest.program.ir import Program

_Tensor: Final = torch.Tensor


class TorchBackend(Backend):
    """Execute steps with torch.

    Args:
        device: ``cpu``, ``cuda`` or another attached device, to which the symbol ``device`` is bound.
        is_candidate: Whether it is held against what a test expects, and does not stand for it.
    """

    takes_copies = True

    def __init__(self, device: str = "cpu", *, is_candidate: bool = False) -> None:
        self.steps = TorchSteps(device, is_candidate=is_candidate)
        self.device = self.steps.device
        self.on_step: Callable[[int], None] | None = None

    def run(
        self,
        program: Program,
        sources: Mapping[str, Any],
        *,
        snapshots: bool = False,
        copied: Collection[int] = (),
        around: AbstractContextManager[object] | None = None,
    ) -> Trace:
        """Run the steps forward; an error ends the run and is noted in the trace.

        Args:
            program: Setup and body.
            sources: Data of each placeholder by key.
            snapshots: Whether every value is copied at its step.
            copied: Indices of values to copy at their step, because later steps write to them.
            around: Context of each call, but not of placeholders.
        """
        trace = Trace()
        if snapshots:
            trace.observations, trace.edges = [], []
        binding = self.steps.binding(sources)
        binding.run, binding.around = (trace, program.steps), around
        values, facts, device, on_step = trace.values, trace.facts, self.device, self.on_step
        for step in program.steps:
            op = step.op
            if op == OUTPUT:
                values.append(None)
                facts.append(None)
                continue
            if on_step is not None:
                on_step(len(values))
            value: Any
            try:
                if op == PLACEHOLDER:
                    value = place(sources[step.target], step.args[0], device)  # type: ignore[arg-type]
                elif around is None:
                    value = execute_step(step, values, binding)
                else:
                    with around:
                        value = execute_step(step, values, binding)
                # Reading a tensor's facts may raise too, for example its version if it was made in inference mode.
                seen = (value.requires_grad, value.is_leaf, value._version) if isinstance(value, _Tensor) else None
            except FOREIGN as error:
                pass_interrupt(error)
                trace.failure = Failure(
                    len(values), type(error).__name__, error_text(error) + user_frame_text(error), lacking(error)
                )
                return trace
            values.append(value)
            facts.append(seen)
            # A copy of every value would cost far more than the step, so only overwritten values are copied in a case.
            if snapshots:
                observe(trace, value)
            elif copied and len(values) - 1 in copied:
                keep_copy(trace, len(values) - 1, value)
        return trace

    def again(self, program: Program, trace: Trace, values: list[Any], *, holds: bool) -> Iterator[tuple[int, Any]]:
        """Run the remaining steps of a program once more."""
        binding, first, steps = self.steps.binding({}), len(values), program.steps
        around = trace.around if isinstance(trace.around, AbstractContextManager) else nullcontext()
        binding.run, binding.around = (trace, steps), around
        outputs = {ref.index for ref in output_refs(program)}
        rest = range(first, len(steps) - 1)
        used = {index: (index, *(ref.index for ref in step_refs(steps[index]))) for index in rest if not holds}
        ends = {at: index for index, every in used.items() for at in every}
        for index in rest:
            if self.on_step is not None:
                self.on_step(index)
            try:
                with around:
                    values.append(execute_step(steps[index], values, binding))
            except FOREIGN as error:
                pass_interrupt(error)
                yield (
                    index,
                    Failure(index, type(error).__name__, error_text(error) + user_frame_text(error), lacking(error)),
                )
                return
            if index in outputs:
                yield index, values[index]
            # A value is released after the last step that takes it, because nothing reads it any more.
            for at in used.get(index, ()):
                if at >= first and ends[at] == index:
                    values[at] = None
        values.append(None)

    def backward(self, program: Program, trace: Trace, cotangents: Mapping[int, Any]) -> None:
        """Run the backward pass from the outputs that require grad, and put every gradient into the trace."""
        if self.on_step is not None:
            self.on_step(IN_BACKWARD)
        backward(program, trace, cotangents)

    def body_calls(self, program: Program, values: Sequence[Any]) -> BodyCalls:
        """Return what runs the body once."""
        return BodyCalls(called_with(python_function(program, self.device), program, values))

    def as_graph(self) -> Backend:
        """Return a backend that compiles bodies with ``torch.compile``."""
        return graph_on(self)


def graph_on(backend: TorchBackend) -> CompileBackend:
    """Return a backend that compiles bodies for the device of another one, and reports steps to the same callback."""
    found = CompileBackend(dict(GRAPH_OPTIONS), str(backend.device))
    found.on_step = backend.on_step
    return found
