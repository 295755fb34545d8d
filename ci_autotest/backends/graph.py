"""Autograd graphs of cases in lockstep, gone back through a node of all of them at a time, without the engine.

To set up torch's engine costs five microseconds a graph and two a node; a node that is called from here costs a third
of one. What the engine does around a node of torch's own is little, and is done here as it does it: of the nodes that
are ready, the one that was made last is next; what arrives at a value from several uses is added up in the order in
which it arrives; a gradient of what was broadcast is summed to its shape. Whatever there is beyond that (nodes of a
user's, nodes of several outputs, values that nobody sees, another dtype) is left to the engine, all or nothing.

Source:
    ``Engine::evaluate_function`` and ``validate_outputs`` of PyTorch 2.13.
"""

from __future__ import annotations

from operator import attrgetter, is_
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

_UsersNode: Final = torch.autograd.function.BackwardCFunction
#: Nodes that accumulate into leaves; and one that does more than its formula says. Torch has no other names for them.
_LEAF: Final = "AccumulateGrad"
_PARTIAL: Final = "CopySlices"
_node: Final = attrgetter("grad_fn")
_uses: Final = attrgetter("next_functions")
_leaf: Final = attrgetter("variable")
_dtype: Final = attrgetter("dtype")
_shape: Final = attrgetter("shape")
_version: Final = attrgetter("_version")
_add: Final = torch.add


class Seen(NamedTuple):
    """A value of each case whose gradient is asked for.

    Attributes:
        tensors: Leaves, or what has their shape and dtype.
        nodes: What made them; ``None`` of leaves.
    """

    tensors: Sequence[Any]
    nodes: Sequence[Any] | None


class _UnsuitedError(Exception):
    """The engine is needed."""


def gradients_in_columns(
    roots: Sequence[Any],
    cotangents: Sequence[Any],
    seen: Mapping[int, Seen],
    entered: Callable[[Iterable[Any]], Iterator[Any]],
) -> dict[int, Sequence[Any]] | None:
    """Return the gradients of one output of each case, as the engine computes them; ``None`` where it is needed.

    Args:
        roots: What made the outputs.
        cotangents: One for each output, of its shape and dtype; not written to.
        seen: Every value that asks for its gradient, by index; one node each, and no hook on any.
        entered: Yields the item of each case after it was told that the case is entered: a crash is that case's.
    """
    if torch.is_anomaly_enabled():
        return None  # the engine looks at every gradient then
    versions = list(map(_version, cotangents))
    enabled = torch.is_grad_enabled()
    torch._C._set_grad_enabled(False)  # noqa: FBT003 - torch's own
    try:
        found = _Walk(roots, seen).run(cotangents, entered)
    except Exception:  # noqa: BLE001 - unsuited, or a failure of a node, which the engine is to say
        return None
    finally:
        torch._C._set_grad_enabled(enabled)
    return found if list(map(_version, cotangents)) == versions else None


class _Walk:
    """Walk back from the roots."""

    def __init__(self, roots: Sequence[Any], seen: Mapping[int, Seen]) -> None:
        self._seen = seen
        self._leaves = {id(one.tensors[0]): index for index, one in seen.items() if one.nodes is None}
        self._made = {id(one.nodes[0]): index for index, one in seen.items() if one.nodes is not None}
        #: By index: nodes of that value, and for each argument the index of the value that its gradient goes to.
        self._edges: dict[int, list[int | None]] = {}
        self._nodes: dict[int, Sequence[Any]] = {}
        self._likes: dict[int, tuple[list[torch.dtype], list[torch.Size]]] = {}
        self._root = self._place(roots, self._made)

    def _place(self, column: Sequence[Any], known: Mapping[int, int]) -> int:
        """Return which value's nodes, or leaves, a column holds."""
        index = known.get(id(column[0]))
        if index is None:
            raise _UnsuitedError
        one = self._seen[index]
        if not all(map(is_, column, one.tensors if one.nodes is None else one.nodes)):
            raise _UnsuitedError
        return index

    def run(
        self, cotangents: Sequence[Any], entered: Callable[[Iterable[Any]], Iterator[Any]]
    ) -> dict[int, Sequence[Any]]:
        """Return the gradients by index; a value that none arrives at has ``None``."""
        self._explore()
        order = sorted(self._edges, key=lambda index: self._nodes[index][0]._sequence_nr(), reverse=True)
        found: dict[int, Any] = {self._root: cotangents}
        for index in order:
            nodes, arrived = self._nodes[index], found[index]
            given = [node(gradient) for node, gradient in zip(entered(nodes), arrived, strict=True)]
            edges = self._edges[index]
            for place, target in enumerate(edges):
                if target is not None:
                    column = given if len(edges) == 1 else [each[place] for each in given]
                    self._arrive(found, target, column)
        nothing = [None] * len(cotangents)
        return {index: found.get(index, nothing) for index in self._seen}

    def _explore(self) -> None:
        waiting = [self._root]
        while waiting:
            index = waiting.pop()
            if index in self._edges:
                continue
            nodes = self._seen[index].nodes
            assert nodes is not None  # noqa: S101 - leaves are not waited for
            kind = type(nodes[0])
            if set(map(type, nodes)) != {kind} or issubclass(kind, _UsersNode) or kind.__name__ == _PARTIAL:
                raise _UnsuitedError
            uses = list(map(_uses, nodes))
            if len(set(map(len, uses))) != 1:
                raise _UnsuitedError
            self._nodes[index] = nodes
            edges = self._edges[index] = [self._target(uses, place) for place in range(len(uses[0]))]
            waiting += [target for target in edges if target is not None and self._seen[target].nodes is not None]

    def _target(self, uses: list[Any], place: int) -> int | None:
        sources = [use[place][0] for use in uses]
        first = sources[0]
        if first is None:
            if sources.count(None) != len(sources):
                raise _UnsuitedError
            return None
        if type(first).__name__ == _LEAF:
            return self._place(list(map(_leaf, sources)), self._leaves)
        return self._place(sources, self._made)

    def _arrive(self, found: dict[int, Any], target: int, column: list[Any]) -> None:
        """Add a column to what has arrived at a value, in its shape."""
        dtypes, shapes = self._like(target)
        if list(map(_dtype, column)) != dtypes:
            raise _UnsuitedError
        if list(map(_shape, column)) != shapes:
            column = [
                one if one.shape == shape else one.sum_to_size(shape) for one, shape in zip(column, shapes, strict=True)
            ]
        before = found.get(target)
        found[target] = column if before is None else list(map(_add, before, column))

    def _like(self, target: int) -> tuple[list[torch.dtype], list[torch.Size]]:
        """Return the dtypes and shapes of a value, which are those of its gradient."""
        known = self._likes.get(target)
        if known is None:
            tensors = self._seen[target].tensors
            known = self._likes[target] = list(map(_dtype, tensors)), list(map(_shape, tensors))
        return known


def seen_of(tensors: Sequence[Any], edges: Sequence[Any] | None, *, are_leaves: bool) -> Seen:
    """Return values whose gradient is asked for.

    Args:
        tensors: As they are, or copies of what was overwritten.
        edges: The gradient edges of the latter.
        are_leaves: Whether nothing made them.
    """
    if are_leaves:
        return Seen(tensors, None)
    return Seen(tensors, list(map(_node, tensors)) if edges is None else [edge.node for edge in edges])
