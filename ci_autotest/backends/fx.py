"""The backend ``fx``: the body as a ``torch.fx.GraphModule``, transformed by the user's pass.

Only inputs and outputs are visible, because the nodes of the transformed graph are not steps of the program. A
parameter or module that the pass changed has no counterpart on the reference and is not compared, but results computed
from it are. If the pass leaves the graph unchanged, the case is unsupported because nothing was tested.
"""

from __future__ import annotations

import copy
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import fx

from ci_autotest.backends.body_call import BodyCalls
from ci_autotest.backends.body_function import backward_of_whole, begun, prepared, see, see_outputs, with_refusals
from ci_autotest.backends.devices import lacking
from ci_autotest.backends.fx_graph import modules_of, printed, to_graph_module
from ci_autotest.backends.protocol import IN_BACKWARD, Backend
from ci_autotest.backends.substitute import load_function
from ci_autotest.backends.torch_steps import TorchSteps
from ci_autotest.backends.trace import Failure, Trace
from ci_autotest.backends.user_errors import FOREIGN, pass_interrupt
from ci_autotest.errors import ProgramError, Unsupported, UnsupportedReason, error_text, user_frame_text
from ci_autotest.program.codegen import names
from ci_autotest.program.ir import PLACEHOLDER
from ci_autotest.program.refusal import refusals

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from ci_autotest.program.ir import Program


class FxBackend(Backend):
    """Run each body as a graph module.

    Args:
        transform: Dotted path of a function that takes a ``GraphModule`` and returns the module to run; empty to run
            the graph itself.
        device: ``cpu``, ``cuda`` or another attached device.

    Raises:
        UnavailableError: The pass cannot be imported.
    """

    shows_steps = False
    takes_copies = False

    def __init__(self, transform: str, device: str = "cpu") -> None:
        self._torch = TorchSteps(device)
        self.device = self._torch.device
        self.on_step: Callable[[int], None] | None = None
        self._name = transform
        self._transform: Callable[..., Any] | None = load_function(transform, "transform") if transform else None

    def run(
        self,
        program: Program,
        sources: Mapping[str, Any],
        *,
        snapshots: bool = False,
        copied: Collection[int] = (),  # noqa: ARG002 - a graph shows its outputs only when it ends
    ) -> Trace:
        """Run the setup, then the transformed graph of the body."""
        if refusals(program.steps):
            return with_refusals(self.run, program, sources, snapshots=snapshots)
        trace = begun(program, snapshots=snapshots)
        if not prepared(self._torch, program, sources, trace):
            return trace
        first = program.calls[0][0] if program.calls else len(program.steps) - 1
        if self.on_step is not None:
            self.on_step(first)
        placed = [i for i, step in enumerate(program.body, len(program.setup)) if step.op == PLACEHOLDER]
        for index in placed:
            see(trace, index, snapshots=snapshots)
        try:
            graph = to_graph_module(program, modules_of(program, trace.values), self._torch.constant)
            state = _state(graph)
            found = self._transformed(graph, state, trace)
            kept = _keep_modules(program, trace, found, state)
            outputs = found(*(trace.values[index] for index in placed))
        except ProgramError:
            raise
        except fx.proxy.TraceError as error:  # The pass traces again, and the body branches on a value.
            detail = f"torch.fx cannot trace this body: {error_text(error)}"
            trace.untested, trace.shown = Unsupported(UnsupportedReason.NO_GRAPH, detail), frozenset()
            return trace
        except FOREIGN as error:
            pass_interrupt(error)
            trace.failure = Failure(
                first, type(error).__name__, error_text(error) + user_frame_text(error), lacking(error)
            )
            return trace
        see_outputs(program, trace, outputs, frozenset({*placed, *kept}), snapshots=snapshots)
        return trace

    def backward(self, program: Program, trace: Trace, cotangents: Mapping[int, Any]) -> None:
        """Run one backward pass from all outputs to leaves and unchanged parameters."""
        if self.on_step is not None:
            self.on_step(IN_BACKWARD)
        backward_of_whole(program, trace, cotangents)

    def body_calls(self, program: Program, values: Sequence[Any]) -> BodyCalls:
        """Return what runs the transformed graph once, and the same graph before the pass."""
        before = self._graph(program, values)
        after = before if self._transform is None else self._transform(self._graph(program, values))
        placed = [i for i, step in enumerate(program.body, len(program.setup)) if step.op == PLACEHOLDER]
        own, against = (partial(graph, *(values[index] for index in placed)) for graph in (after, before))
        return BodyCalls(own, against, is_original=True)

    def _graph(self, program: Program, values: Sequence[Any]) -> torch.nn.Module:
        # Modules of its own, because a pass may change those that it gets.
        modules = {index: copy.deepcopy(module) for index, module in modules_of(program, values).items()}
        return to_graph_module(program, modules, self._torch.constant)

    def _transformed(self, graph: fx.GraphModule, state: Mapping[str, torch.Tensor], trace: Trace) -> torch.nn.Module:
        if self._transform is None:
            return graph
        before = printed(graph)
        given = self._transform(graph)
        if not isinstance(given, torch.nn.Module):
            message = f"{self._name} returned a {type(given).__name__}, not the transformed module"
            raise TypeError(message)
        found: torch.nn.Module = given
        # A pass may change the values of parameters and leave the code as it is, so both are compared.
        if isinstance(found, fx.GraphModule) and printed(found) == before and _is_same(_state(found), state):
            detail = f"{self._name} left the graph unchanged, so nothing of it was tested"
            trace.untested = Unsupported(UnsupportedReason.UNCHANGED, detail)
        return found


def _keep_modules(
    program: Program, trace: Trace, found: torch.nn.Module, state: Mapping[str, torch.Tensor]
) -> list[int]:
    """Make modules of the setup visible if the pass left them unchanged, as they are in its result; hide the others."""
    named = names(program)
    parts = dict(found.named_modules())
    kept = []
    for index, module in modules_of(program, trace.values).items():
        name = f"{named[index]}."
        before = {key.removeprefix(name): value for key, value in state.items() if key.startswith(name)}
        part = parts.get(named[index])
        is_kept = (
            part is not None
            and _is_used(found, named[index])
            and type(part) is type(module)
            and _is_same(_state(part), before)
        )
        trace.values[index] = part if is_kept else None
        kept += [index] if is_kept else []
    return kept


def _is_used(found: torch.nn.Module, name: str) -> bool:
    """Whether a graph still uses a submodule; a module that is not a graph is assumed to use all of its submodules."""
    if not isinstance(found, fx.GraphModule):
        return True
    targets = [str(node.target) for node in found.graph.nodes if node.op in {"call_module", "get_attr"}]
    return any(target == name or target.startswith(f"{name}.") for target in targets)


def _state(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {name: value.detach().clone() for name, value in module.state_dict().items()}


def _is_same(left: Mapping[str, torch.Tensor], right: Mapping[str, torch.Tensor]) -> bool:
    return left.keys() == right.keys() and all(
        left[name].dtype is value.dtype and torch.equal(left[name], value) for name, value in right.items()
    )
