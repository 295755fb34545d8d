"""Aliasing: which values of a program share memory on each side, and which are one tensor, or a copy of it.

A view that became a copy misses every later write, and a result that shares its input's memory changes with the next
write to the input. Values alone show neither before somebody writes. The candidate may copy a value between devices,
while the reference has only one device and returns the value itself.
"""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING, Any, Final

import torch

from ci_autotest.alignment.compare import value_place
from ci_autotest.backends.operators.identity import step_operator
from ci_autotest.program.backward_passes import GRAD
from ci_autotest.program.codegen import names
from ci_autotest.program.edit import maker_of
from ci_autotest.program.ir import is_unpacking, step_refs
from ci_autotest.program.roles import DROPOUTS
from ci_autotest.values.verdict import Misalignment, Value

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from ci_autotest.backends.trace import Observation, Trace
    from ci_autotest.program.ir import Program, Step

#: Operators that promise a view of their input.
#: Source: https://docs.pytorch.org/docs/2.13/tensor_view.html, the list of view operators; without ``detach``,
#: whose result is no view to autograd, so that the fast path would not see it.
VIEWS: Final = frozenset({
    "__getitem__", "adjoint", "as_strided", "diagonal", "expand", "expand_as", "movedim", "narrow", "permute",
    "select", "squeeze", "swapaxes", "swapdims", "transpose", "t", "T", "H", "mT", "mH", "real", "imag", "view_as_real",
    "unflatten", "unfold", "unsqueeze", "view", "view_as", "unbind", "split", "hsplit", "vsplit", "dsplit",
    "tensor_split", "split_with_sizes", "chunk",
})  # fmt: skip
#: Operators that promise neither a view nor a copy.
#: Source: the same page, "reshape(), reshape_as() and flatten() can return either a view or new tensor", and
#: ``contiguous``, ``to`` and ``dropout`` outside training, which return their input if there is nothing to do.
#: Nothing is documented for a reduction of one number: it may return that number itself.
EITHER: Final = frozenset({
    "reshape", "reshape_as", "flatten", "ravel", "contiguous", "to", "type", "type_as", "float", "double", "half",
    "int", "long", "bool", "cpu", "cuda", "resolve_conj", "resolve_neg", "positive", "atleast_1d", "atleast_2d",
    "atleast_3d", "broadcast_tensors", "broadcast_to", "meshgrid", "conj", "Identity", "sum_to_size", "einsum", "sum",
    "mean", "prod", "amax", "amin", *DROPOUTS,
})  # fmt: skip

#: Steps that read the gradient of a value that is no leaf.
_ASKS_GRADIENT: Final = frozenset({"retain_grad", "register_hook", GRAD})


def lost_aliases(program: Program, candidate: Trace, reference: Trace) -> list[Misalignment]:
    """Return the steps whose value shares an argument's memory on one side only, in program order.

    If only the reference shares memory, the operator must promise a view; if only the candidate does, the operator must
    not leave it open.
    """
    if candidate.failure is not None or reference.failure is not None or candidate.is_remote:
        return []  # Another process does not report which values share memory.
    found = []
    for index, step in program.numbered:
        maker = program.steps[maker_of(program.steps, index)]
        if not step.is_call:
            continue
        arguments = [ref.index for ref in step_refs(maker)]
        # A graph returns only some values, and nothing is known of memory that it does not show.
        seen = [at for at in arguments if _is_seen(at, candidate) and _is_seen(at, reference)]
        ours, theirs = _shared(index, seen, candidate), _shared(index, seen, reference)
        name = step_operator(maker, program.steps).rpartition(".")[2]
        # A copy where the reference shares memory is a fault only if the documentation promises a view.
        is_open = name in EITHER or (ours is None and name not in VIEWS)
        if ours == theirs or is_open or not (_is_seen(index, candidate) and _is_seen(index, reference)):
            continue
        found.append(
            Misalignment(
                kind="aliasing", step=index, at=Value(name=names(program)[index], aspect="memory"),
                candidate=_owner(program, ours), reference=_owner(program, theirs),
            )
        )  # fmt: skip
    return found


def joined_results(program: Program, candidate: Trace, reference: Trace) -> list[Misalignment]:
    """Return the results of a call that are one tensor on the candidate alone, if the body reads a gradient of one.

    A fused kernel may return one tensor for two equal results, and that alone is no fault. But the gradient that the
    body reads is then the gradient of both.
    """
    if candidate.is_remote or candidate.failure is not None or reference.failure is not None:
        return []
    steps = program.steps
    asked = {ref.index for step in steps if step.target in _ASKS_GRADIENT for ref in step_refs(step)}
    groups: dict[int, list[int]] = {}
    for index, step in enumerate(steps):
        if is_unpacking(step) and step_operator(steps[maker_of(steps, index)], steps).rpartition(".")[2] not in EITHER:
            # Operators that may return their input are left out, because they may also return it twice.
            groups.setdefault(maker_of(steps, index), []).append(index)
    pairs = [(one, other) for group in groups.values() for one, other in combinations(group, 2) if asked & {one, other}]
    named = names(program)
    return [
        Misalignment(
            kind="aliasing", step=other,
            at=value_place(named, steps, other, "memory"),
            candidate=f"shares the memory of {str(value_place(named, steps, one)).removeprefix('value of ')}",
            reference="has memory of its own",
        )
        for one, other in pairs
        if _is_one(one, other, candidate) and not _is_one(one, other, reference)
    ]  # fmt: skip


def _is_one(one: int, other: int, trace: Trace) -> bool:
    """Whether two values of a side lie in one memory."""
    memory = _memory(trace.values[one]) if _is_seen(one, trace) and _is_seen(other, trace) else None
    return memory is not None and memory == _memory(trace.values[other])


def _shared(index: int, arguments: Sequence[int], trace: Trace) -> int | None:
    """Return the first argument whose memory a step's value shares. All values are alive, so no memory is reused."""
    memory = _memory(trace.values[index])
    shared = (at for at in arguments if memory is not None and _memory(trace.values[at]) == memory)
    return next(shared, None)


def _memory(value: object) -> int | None:
    # Empty tensors have no memory of their own: all of them have the address 0.
    if not isinstance(value, torch.Tensor) or value.layout is not torch.strided or not value.numel():
        return None
    return value.untyped_storage().data_ptr()


def _is_seen(index: int, trace: Trace) -> bool:
    return (trace.shown is None or index in trace.shown) and isinstance(trace.values[index], torch.Tensor)


def _owner(program: Program, owner: int | None) -> str:
    return "has memory of its own" if owner is None else f"shares the memory of {names(program)[owner]}"


# Tensor identity: which values of a program are the same tensor on one side and different tensors on the other.
#
# A fused kernel may return one tensor for two results, and an operator may return its argument on one side and a copy
# on the other. Such a tensor receives the gradients of all values that it stands for. Its gradient is therefore
# compared only if both sides have the same tensors; gradients of leaves are always compared.


def of_one_side(candidate: Trace, reference: Trace) -> frozenset[int]:
    """Return the steps that share their tensor with another step on one side only, judged by their gradient edges."""
    ours, theirs = _groups(candidate), _groups(reference)
    alone: frozenset[int] = frozenset()
    every = [index for groups in (ours, theirs) for index, group in groups.items() if len(group) > 1]
    return frozenset(index for index in every if ours.get(index, alone) != theirs.get(index, alone))


def _groups(trace: Trace) -> dict[int, frozenset[int]]:
    """Return, for each step with a gradient edge, all steps with the same edge."""
    found: dict[Any, list[int]] = {}
    for index, edge in enumerate(trace.edges):
        if edge is not None:
            # Two objects of Python may be one tensor to autograd, which this pair names.
            found.setdefault((edge.node, edge.output_nr), []).append(index)
    return {index: frozenset(group) for group in found.values() for index in group}


def as_moved(
    sides: tuple[Observation, Observation], index: int, steps: Sequence[Step], traces: tuple[Trace, Trace]
) -> tuple[Observation, Observation]:
    """Return both sides with the reference's ``is_leaf`` if the candidate copied what the reference returned itself.

    ``x.to("cpu")`` returns a leaf itself on the host and a copy, which is no leaf, on a device: neither is wrong.

    Args:
        sides: The candidate's and the reference's observation of the step.
        index: Of the step.
        steps: Of the program.
        traces: The candidate's and the reference's.
    """
    left, right = sides
    if left.metadata is None or right.metadata is None or left.metadata.is_leaf is right.metadata.is_leaf:
        return sides
    if not _is_copy(index, steps, traces):
        return sides
    return left._replace(metadata=left.metadata._replace(is_leaf=right.metadata.is_leaf)), right


def written_copy(steps: Sequence[Step], traces: tuple[Trace, Trace], written: Collection[int]) -> str:
    """Return the name of a step whose value is a copy on the candidate alone and is written to, ``""`` if none.

    A write then reaches one tensor on the reference and only the copy on the candidate, so nothing can be compared.

    Args:
        steps: Of the program.
        traces: The candidate's and the reference's.
        written: Indices of the reference's values that a later step wrote to.
    """
    seen = len(traces[0].values)
    # A run that ended early has fewer values.
    copies = (index for index in sorted(written) if index < seen and _is_copy(index, steps, traces))
    return next((steps[index].name for index in copies), "")


def _is_copy(index: int, steps: Sequence[Step], traces: tuple[Trace, Trace]) -> bool:
    """Whether a step returned a copy on another device on the candidate, and its argument itself on the reference."""
    refs = step_refs(steps[index])
    if not refs:
        return False
    ours, theirs = traces[0].values, traces[1].values
    sides = (ours[refs[0].index], ours[index])
    if not all(isinstance(side, torch.Tensor) for side in sides):
        return False
    # By identity: the reference must have returned its very argument.
    return sides[0].device != sides[1].device and theirs[index] is theirs[refs[0].index]
