"""The backend ``fx``: the body as a ``torch.fx.GraphModule``, transformed by the user's pass.

Only inputs and outputs are visible, because the nodes of the transformed graph are not steps of the program. A
parameter or module that the pass changed has no counterpart on the reference and is not compared, but results computed
from it are. If the pass leaves the graph unchanged, the case is unsupported because nothing was tested.
"""

from __future__ import annotations

import copy
import inspect
from collections import Counter
from contextlib import nullcontext
from functools import partial
from hashlib import sha256
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

import torch
from torch import fx

from ci_autotest.backends.body_call import BodyCalls
from ci_autotest.backends.body_function import backward_of_whole, begun, prepared, see, see_outputs, with_refusals
from ci_autotest.backends.devices import lacking
from ci_autotest.backends.function_paths import load_function
from ci_autotest.backends.fx.graph import STEP, modules_of, printed, to_graph_module
from ci_autotest.backends.protocol import IN_BACKWARD, Backend
from ci_autotest.backends.sameness import same_tensors
from ci_autotest.backends.torch_steps import TorchSteps
from ci_autotest.backends.trace import Failure, Trace
from ci_autotest.backends.user_errors import FOREIGN, pass_interrupt
from ci_autotest.errors import ProgramError, Unsupported, UnsupportedReason, error_text, user_frame_text
from ci_autotest.program.ir import is_without_grad
from ci_autotest.program.module_calls import module_tree
from ci_autotest.program.refusal import refusals

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from ci_autotest.program.ir import Program
    from ci_autotest.values.schedule import Ability

_POSITIONAL: Final = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


class FxBackend(Backend):
    """Run each body as a graph module.

    Args:
        transform: Dotted path of a function that takes a ``GraphModule``, and a list of example inputs if it has a
            second argument without a default, and returns the module to run; empty to run the graph itself.
        device: ``cpu``, ``cuda`` or another attached device.

    Raises:
        UnavailableError: The pass cannot be imported.
    """

    shows_steps = False
    takes_modules = True
    takes_copies = False

    @property
    def abilities(self) -> frozenset[Ability]:
        """None, because a graph is made anew for each run."""
        return frozenset()

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
        placed = _inputs(program)
        for index in placed:
            see(trace, index, snapshots=snapshots)
        try:
            graph = to_graph_module(program, trace.values, self._torch.constant)
            given = [trace.values[index] for index in placed]
            state = _state(graph)
            found = self._transformed(graph, given, trace)
            kept = [*_keep_modules(program, trace, found, state), *_keep_states(program, trace, found, state)]
            for index in kept:
                see(trace, index, snapshots=snapshots)
            outputs = _call(program, found, given)
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
        given = [values[index] for index in _inputs(program)]
        before, graph = (to_graph_module(program, _copied(program, values), self._torch.constant) for _ in range(2))
        own, against = (partial(_call, program, each, given) for each in (self._passed(graph, given), before))
        return BodyCalls(own, against, is_original=True)

    def _passed(self, graph: fx.GraphModule, given: Sequence[Any]) -> Any:
        """Return the result of the pass, which gets copies of the inputs if it takes them."""
        if self._transform is None:
            return graph
        if not takes_inputs(self._transform):
            return self._transform(graph)
        return self._transform(graph, [value.detach().clone().requires_grad_(value.requires_grad) for value in given])

    def _transformed(self, graph: fx.GraphModule, given: Sequence[Any], trace: Trace) -> torch.nn.Module:
        state, code, before = _state(graph), printed(graph), _signatures(graph)
        found = self._passed(graph, given)
        if not isinstance(found, torch.nn.Module):
            message = f"{self._name} returned a {type(found).__name__}, not the transformed module"
            raise TypeError(message)
        if self._transform is None or not isinstance(found, fx.GraphModule):
            return found
        # A pass may change the values of parameters and leave the code as it is, so both are compared.
        if printed(found) == code and same_tensors(_state(found), state):
            detail = f"{self._name} left the graph unchanged, so nothing of it was tested"
            trace.untested = Unsupported(UnsupportedReason.UNCHANGED, detail)
        left = Counter(signature for _, signature in _signatures(found))
        trace.replaced = frozenset(_missing(before, left))
        return found


def takes_inputs(transform: Callable[..., Any]) -> bool:
    """Whether a pass takes example inputs after the graph: a second argument without a default."""
    try:
        parameters = inspect.signature(transform).parameters.values()
    except ValueError:
        return False  # A function in C says nothing about its arguments.
    return sum(each.default is each.empty and each.kind in _POSITIONAL for each in parameters) == len(_POSITIONAL)


def _inputs(program: Program) -> list[int]:
    """Return the placeholders that a graph takes: those that are no attribute of a module of the user's."""
    states = module_tree(program).states
    return [index for index in program.inputs if index not in states]


def _copied(program: Program, values: Sequence[Any]) -> list[Any]:
    """Return the values with modules and states of their own, because a pass may change those that it gets."""
    own = {*modules_of(program, values), *module_tree(program).states}
    copies: dict[int, Any] = {}  # A module and its part stay one.
    return [copy.deepcopy(value, copies) if index in own else value for index, value in enumerate(values)]


def _call(program: Program, graph: torch.nn.Module, given: Sequence[Any]) -> Any:
    with torch.no_grad() if is_without_grad(program) else nullcontext():
        return graph(*given)


def _signatures(graph: fx.GraphModule) -> list[tuple[int, object]]:
    """Return for each call of a graph the index of its step and what it calls, without the values that it gets."""
    found: list[tuple[int, object]] = []
    for node in graph.graph.nodes:
        if node.op.startswith("call_"):
            constants = repr(fx.map_arg((node.args, node.kwargs), lambda _: None))
            called = _module_text(graph.get_submodule(node.target)) if node.op == "call_module" else str(node.target)
            found.append((node.meta.get(STEP, -1), (node.op, called, constants)))
    return found


def _module_text(module: torch.nn.Module) -> str:
    state = ((name, value.dequantize() if value.is_quantized else value) for name, value in _state(module).items())
    elements = repr([(name, value.tolist()) for name, value in state])
    return f"{module} {module.training} {sha256(elements.encode()).hexdigest()}"


def _missing(before: list[tuple[int, object]], left: Counter[object]) -> Iterator[int]:
    """Yield the steps whose calls are no longer in a graph."""
    for step, signature in before:
        if left[signature] <= 0 and step >= 0:
            yield step
        left[signature] -= 1


def _keep_modules(
    program: Program, trace: Trace, found: torch.nn.Module, state: Mapping[str, torch.Tensor]
) -> list[int]:
    """Make modules of the setup visible if the pass left them unchanged, as they are in its result; hide the others."""
    parts = dict(found.named_modules())
    kept = []
    for index, path in modules_of(program, trace.values).items():
        name = f"{path}."
        before = {key.removeprefix(name): value for key, value in state.items() if key.startswith(name)}
        part = parts.get(path)
        is_kept = (
            part is not None
            and _is_used(found, path)
            and _is_alike(part, trace.values[index])
            and same_tensors(_state(part), before)
        )
        trace.values[index] = part if is_kept else None
        kept += [index] if is_kept else []
    return kept


def _is_alike(part: torch.nn.Module, module: torch.nn.Module) -> bool:
    """Whether a part of a graph has the classes of a module; where the graph enters it, it has a plain module."""
    kinds = {name: type(inner) for name, inner in module.named_modules()}
    return all(type(inner) in {torch.nn.Module, kinds.get(name)} for name, inner in part.named_modules())


def _keep_states(
    program: Program, trace: Trace, found: torch.nn.Module, state: Mapping[str, torch.Tensor]
) -> list[int]:
    """Make parameters and buffers of the user's modules visible as ``_keep_modules`` does; hide the others."""
    tensors = dict(chain(found.named_parameters(remove_duplicate=False), found.named_buffers(remove_duplicate=False)))
    kept = []
    for index, path in module_tree(program).states.items():
        tensor = tensors.get(path)
        before = {key: value for key, value in state.items() if key == path}
        is_kept = tensor is not None and _is_used(found, path) and same_tensors({path: tensor.detach()}, before)
        trace.values[index] = tensor if is_kept else None
        kept += [index] if is_kept else []
    return kept


def _is_used(found: torch.nn.Module, name: str) -> bool:
    """Whether a graph still uses a submodule; a module that is not a graph is assumed to use all of its submodules."""
    if not isinstance(found, fx.GraphModule):
        return True
    targets = [str(node.target) for node in found.graph.nodes if node.op in {"call_module", "get_attr"}]
    return any(f"{target}.".startswith(f"{name}.") or name.startswith(f"{target}.") for target in targets)


def _state(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    # Quantized layers also keep tuples and dtypes there.
    state = module.state_dict().items()
    return {name: value.detach().clone() for name, value in state if isinstance(value, torch.Tensor)}
