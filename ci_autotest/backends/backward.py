"""The backward pass of a run in torch: from which outputs, with which cotangents, to which values.

Only gradients between calls are compared, because each side may compute the inside of a call as it likes: a compared
gradient is that of a leaf, or the one that a value receives from other calls. If one output of a call is computed from
another one, as the hidden state of an LSTM is from its cell state, the share of the gradient that flows inside the call
is passed on but not compared (rule 26).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import torch

from ci_autotest.backends.autograd_engine import gradients
from ci_autotest.backends.devices import lacking
from ci_autotest.backends.input_copies import same_layout
from ci_autotest.backends.trace import Raised
from ci_autotest.backends.user_errors import FOREIGN, pass_interrupt
from ci_autotest.errors import error_text
from ci_autotest.program.edit import maker_of
from ci_autotest.program.ir import PLACEHOLDER, is_unpacking, output_refs, ref_to

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from ci_autotest.backends.trace import Trace
    from ci_autotest.errors import Unsupported
    from ci_autotest.program.ir import Program

_Tensor: Final = torch.Tensor
_Module: Final = torch.nn.Module


def _copied(source: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    return same_layout(source) if value.is_cpu else source.to(value.device)


def backward(
    program: Program,
    trace: Trace,
    cotangents: Mapping[int, Any],
    weight_of: Callable[[torch.Tensor, torch.Tensor], torch.Tensor] = _copied,
    lacks: Callable[[BaseException], Unsupported | None] = lacking,
) -> None:
    """Run one backward pass from all outputs of a trace, and put the gradients into ``trace.gradients``.

    Each side decides by itself which outputs require grad (rule 9), and gets its own copy of the cotangents (rule 8).
    Leaves, parameters and intermediates all get gradients.

    Args:
        program: The program.
        trace: Its run.
        cotangents: Gradients of the outputs, by position.
        weight_of: Makes this side's copy of a cotangent for an output.
        lacks: Returns what this side lacks, if an error says so.
    """
    roots, weights = _roots(program, trace, cotangents, weight_of)
    if not roots:
        return
    keys, inputs = _inputs(program, trace, roots)
    if not keys:
        return
    boundary = _Boundary(_joined_outputs(program, trace, keys, inputs))
    trace.is_nothing = boundary.is_nothing
    try:
        found = gradients(roots, weights, inputs)
    except FOREIGN as error:
        pass_interrupt(error)
        trace.backward_failure = Raised(type(error).__name__, error_text(error))
        trace.backward_lacking = lacks(error)
        return
    finally:
        boundary.remove()
    trace.gradients = dict(zip(keys, boundary.from_outside(found), strict=True))
    if trace.shown is not None:
        _forget_outputs(program, trace)


def _forget_outputs(program: Program, trace: Trace) -> None:
    """Keep only the gradients of leaves and parameters of a body that ran as one function.

    For an output from which another one is computed inside, as from the cell state of an LSTM, such a body only shows
    the cotangent.
    """
    steps = program.steps
    trace.gradients = {
        key: gradient
        for key, gradient in trace.gradients.items()
        if isinstance(key, tuple) or steps[key].op == PLACEHOLDER
    }


def _roots(
    program: Program,
    trace: Trace,
    cotangents: Mapping[int, Any],
    weight_of: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    roots: list[torch.Tensor] = []
    weights: list[torch.Tensor] = []
    given = trace.cotangents = {}
    values, refs = trace.values, output_refs(program)
    for position, source in cotangents.items():
        value = values[refs[position].index] if position < len(refs) else None
        if not isinstance(value, _Tensor) or not value.requires_grad or value.shape != source.shape:
            continue
        # Each side gets a copy, because the gradient of an addition is the storage of its cotangent (rule 8).
        weight = weight_of(source, value)
        given[position] = weight
        roots.append(value)
        weights.append(weight if weight.dtype is value.dtype else weight.to(value.dtype))
    return roots, weights


def _inputs(program: Program, trace: Trace, roots: list[torch.Tensor]) -> tuple[list[Any], list[Any]]:
    """Return the keys and tensors to take gradients for: each tensor that requires grad, once, and all parameters."""
    keys: list[Any] = []
    inputs: list[Any] = []
    edges, values, copies = trace.edges, trace.values, trace.copies
    last = len(values) - 1
    # The gradient of an output that no other step uses is the cotangent itself, unless the output is a leaf.
    is_cotangent = len(roots) == 1 and program.body[-1].args == (ref_to(last - 1),) and not roots[0].is_leaf
    seen = {id(roots[0])} if is_cotangent else set()
    for index, facts in enumerate(trace.facts):
        value = values[index]
        if facts is None:
            if isinstance(value, _Module):
                _add_parameters(index, value, seen, (keys, inputs))
        elif edges:
            # After an in-place write, the tensor's own gradient is that of the new version (rule 7); the edge that was
            # taken at its step still belongs to the old one.
            if edges[index] is not None and not (id(value) in seen and index == last - 1):
                keys.append(index)
                inputs.append(edges[index])
        elif index in copies:
            if copies[index][1] is not None:
                keys.append(index)
                inputs.append(copies[index][1])
        elif value.requires_grad and id(value) not in seen:
            seen.add(id(value))
            keys.append(index)
            inputs.append(value)
    return keys, inputs


def _add_parameters(index: int, module: torch.nn.Module, seen: set[int], found: tuple[list[Any], list[Any]]) -> None:
    for name, parameter in module.named_parameters():
        if parameter.requires_grad and id(parameter) not in seen:
            seen.add(id(parameter))
            found[0].append((index, name))
            found[1].append(parameter)


class _Edge(NamedTuple):
    """The place where a gradient arrives in the graph: one output of a node."""

    node: Any
    number: int


def _joined_outputs(program: Program, trace: Trace, keys: Sequence[Any], inputs: Sequence[Any]) -> list[list[_Edge]]:
    """Return the outputs of each call with several outputs that belong to different nodes of the graph.

    If the body has a hook of its own on such an output, the hook must see what torch gives it, so the call is left as
    it is.
    """
    steps = program.steps
    calls: dict[int, list[_Edge]] = {}
    hooked: set[int] = set()
    for key, taken in zip(keys, inputs, strict=True):
        if isinstance(key, int) and is_unpacking(steps[key]):
            call, value = maker_of(steps, key), trace.values[key]
            if value._backward_hooks or value.retains_grad:
                hooked.add(call)
            edge = _Edge(taken.grad_fn, taken.output_nr) if isinstance(taken, _Tensor) else _Edge(*taken[:2])
            if edge.node is not None:  # A leaf that the call returned has no node.
                calls.setdefault(call, []).append(edge)
    return [
        edges
        for call, edges in calls.items()
        if call not in hooked and any(edge.node is not edges[0].node for edge in edges)
    ]


class _Boundary:
    """Separate the gradients that outputs of one call receive from each other from those that come from other calls.

    If a node inside the call would pass a gradient to another output, it passes zeros instead, so that the engine
    captures only what comes from outside. Before the output's own node runs, it gets the withheld gradient. The zeros
    are negative because ``-0.0 + x`` has the same bits as ``x``.

    Args:
        calls: The outputs of each call.
    """

    def __init__(self, calls: Iterable[list[_Edge]]) -> None:
        self._held: dict[_Edge, torch.Tensor] = {}
        self._zeros: dict[_Edge, torch.Tensor] = {}
        self._handles: list[Any] = []
        for edges in calls:
            outputs = set(edges)
            inner = [(node, targets) for node in _made_after(edges) if (targets := _targets(node, outputs))]
            self._handles += [node.register_hook(self._holding(targets)) for node, targets in inner]
            fed = {edge for _, targets in inner for edge in targets.values()}
            for node in {edge.node for edge in fed}:
                mine = [edge for edge in fed if edge.node is node]
                self._handles.append(node.register_prehook(self._giving(mine)))

    def from_outside(self, found: Sequence[Any]) -> list[Any]:
        """Return the captured gradients; ``None`` for an output that received none from outside its call."""
        return [None if self.is_nothing(gradient) else gradient for gradient in found]

    def is_nothing(self, gradient: object) -> bool:
        """Whether a gradient consists only of the zeros that replace a withheld gradient."""
        return any(gradient is zero for zero in self._zeros.values())

    def remove(self) -> None:
        """Remove the hooks, because another backward pass may use the graph."""
        for handle in self._handles:
            handle.remove()

    def _holding(self, targets: Mapping[int, _Edge]) -> Any:
        def hold(handed: Sequence[Any], _: object) -> tuple[Any, ...]:
            return tuple(self._hold(targets.get(i), gradient) for i, gradient in enumerate(handed))

        return hold

    def _hold(self, edge: _Edge | None, gradient: Any) -> Any:
        if edge is None or gradient is None:
            return gradient
        if edge in self._held:
            self._held[edge] = self._held[edge] + gradient
            # One tensor of zeros is enough: if the engine adds nothing to it, no gradient came from outside.
            return None
        self._held[edge] = gradient
        self._zeros[edge] = zero = -torch.zeros_like(gradient)
        return zero

    def _giving(self, edges: Sequence[_Edge]) -> Any:
        def give(arrived: Sequence[Any]) -> tuple[Any, ...]:
            found = list(arrived)
            for edge in edges:
                if edge in self._held:
                    outside, held = found[edge.number], self._held[edge]
                    found[edge.number] = held if outside is self._zeros[edge] else outside + held
            return tuple(found)

        return give


def _made_after(outputs: Sequence[_Edge]) -> Iterator[Any]:
    """Yield the nodes of one call: back from its outputs, as far as none is older than the oldest output."""
    # Autograd numbers nodes in the order of their creation, so no path between two outputs passes an older node.
    first = min(edge.node._sequence_nr() for edge in outputs)
    left, seen = [edge.node for edge in outputs], set()
    while left:
        node = left.pop()
        if node not in seen and node._sequence_nr() >= first:
            seen.add(node)
            left += [target for target, _ in node.next_functions if target is not None]
            yield node


def _targets(node: Any, outputs: set[_Edge]) -> dict[int, _Edge]:
    """Return the outputs that a node passes gradients to, by the position of the gradient."""
    return {i: edge for i, target in enumerate(node.next_functions) if (edge := _Edge(*target)) in outputs}
