"""The backend ``torch.compile``: the setup is run eagerly, the body is one function that is compiled.

It shows inputs and outputs only. A run in which nothing was compiled says so: a fallback to eager
is not a pass.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from ci_autotest.backends.engine import gradient_edge
from ci_autotest.backends.torch_eager import IN_BACKWARD, TorchBackend, backward, observed
from ci_autotest.backends.trace import Failure, Trace
from ci_autotest.errors import ConfigError, said
from ci_autotest.execute.steps import execute_step
from ci_autotest.program.codegen import function_text, inputs
from ci_autotest.program.ir import PLACEHOLDER, output_refs

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ci_autotest.program.ir import Program


class CompileBackend:
    """Compile each body.

    Args:
        options: Arguments of ``torch.compile``; ``backend`` is ``inductor`` unless given.
        device: ``cpu`` or ``cuda``.
    """

    shows_steps = False

    def __init__(self, options: Mapping[str, Any], device: str = "cpu") -> None:
        """Keep the options; nothing is compiled yet."""
        self._torch = TorchBackend(device)
        self.device = self._torch.device
        self.on_step: Callable[[int], None] | None = None
        self._options = dict(options)
        self._compiler = self._options.pop("backend", "inductor")
        try:
            torch._dynamo.lookup_backend(self._compiler)
        except Exception as error:
            known = ", ".join(torch._dynamo.list_backends(exclude_tags=()))
            message = f"torch.compile has no backend {self._compiler!r}. It has {known}."
            raise ConfigError(message) from error

    def run(self, program: Program, sources: Mapping[str, Any], *, snapshots: bool = False) -> Trace:
        """Run the setup, then the compiled body."""
        trace = Trace()
        count = len(program.steps)
        trace.values, trace.facts = [None] * count, [None] * count
        if snapshots:
            trace.observations, trace.edges = [None] * count, [None] * count
        bound = self._prepare(program, sources, trace)
        if bound is None:
            return trace
        for index in bound:
            _see(trace, index, snapshots=snapshots)
        outputs = self._call(program, [trace.values[index] for index in bound], trace)
        refs = output_refs(program)
        trace.shown = frozenset({*bound, *(ref.index for ref in refs)})
        for ref, value in zip(refs, outputs, strict=False):
            trace.values[ref.index] = value
            _see(trace, ref.index, snapshots=snapshots)
        return trace

    def backward(self, program: Program, trace: Trace, cotangents: Mapping[int, Any]) -> None:
        """Run one backward pass over all outputs; leaves and parameters only."""
        if self.on_step is not None:
            self.on_step(IN_BACKWARD)
        backward(program, trace, cotangents)

    def take_seen(self) -> dict[str, int]:
        """Return nothing: no calls are counted."""
        return {}

    def _prepare(self, program: Program, sources: Mapping[str, Any], trace: Trace) -> list[int] | None:
        """Run the setup and place the inputs; return the indices of what the body takes."""
        binding = self._torch.binding(sources)
        for index, step in enumerate(program.steps):
            if step.in_setup or step.op == PLACEHOLDER:
                try:
                    trace.values[index] = execute_step(step, trace.values, binding)
                except (Exception, SystemExit) as error:  # noqa: BLE001 - foreign code: its error is the outcome
                    trace.failure = Failure(index, type(error).__name__, said(error))
                    return None
        return [index for _, index in inputs(program)]

    def _call(self, program: Program, arguments: list[Any], trace: Trace) -> tuple[Any, ...]:
        counter = _Counter(self._compiler)
        first = program.calls[0][0] if program.calls else len(program.steps) - 1
        if self.on_step is not None:
            self.on_step(first)
        try:
            torch._dynamo.reset()
            function = torch.compile(_python_function(program, self.device), backend=counter, **self._options)
            found = function(*arguments)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - foreign code: its error is the outcome
            trace.failure = Failure(first, type(error).__name__, said(error))
            return ()
        if not counter.graphs:
            trace.untested = "nothing was compiled: torch.compile ran the body eagerly"
        return tuple(found)


class _Counter:
    """Count the graphs that the compiler is given."""

    def __init__(self, compiler: str) -> None:
        self._compiler = compiler
        self.graphs = 0

    def __call__(
        self,
        graph: torch.fx.GraphModule,
        example_inputs: list[Any],
        **options: Any,  # noqa: ANN401 - torch's
    ) -> Callable[..., Any]:
        self.graphs += 1
        lookup: Any = torch._dynamo.lookup_backend
        compiled: Callable[..., Any] = lookup(self._compiler)(graph, example_inputs, **options)
        return compiled


def _python_function(program: Program, device: torch.device) -> Callable[..., Any]:
    scope: dict[str, Any] = {"torch": torch, "device": device}
    exec(compile(function_text(program), "<program>", "exec"), scope)  # noqa: S102 - text of our own making
    function: Callable[..., Any] = scope["program"]
    return function


def _see(trace: Trace, index: int, *, snapshots: bool) -> None:
    value = trace.values[index]
    if isinstance(value, torch.Tensor):
        trace.facts[index] = (value.requires_grad, value.is_leaf, value._version)
        if snapshots and value.requires_grad:
            trace.edges[index] = gradient_edge(value)
    if snapshots:
        trace.observations[index] = observed(value)
