"""The backend ``torch``: torch executes each step, one after the other, on one device."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from ci_autotest.backends.backward import backward
from ci_autotest.backends.body_call import BodyCalls, called_with
from ci_autotest.backends.body_source import python_function
from ci_autotest.backends.compilers.torch_compile import CompileBackend
from ci_autotest.backends.devices import lacking
from ci_autotest.backends.protocol import IN_BACKWARD, Backend
from ci_autotest.backends.torch_steps import ForwardOptions, TorchSteps
from ci_autotest.backends.trace import Failure
from ci_autotest.backends.user_errors import FOREIGN, pass_interrupt
from ci_autotest.errors import error_text, user_frame_text
from ci_autotest.host.steps import execute_step
from ci_autotest.program.codegen import GRAPH_OPTIONS
from ci_autotest.program.ir import output_refs, step_refs

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from ci_autotest.backends.trace import Trace
    from ci_autotest.program.ir import Program


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
        return self.steps.run(program, sources, ForwardOptions(snapshots, copied, around, self.on_step))

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
