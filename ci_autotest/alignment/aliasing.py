"""Aliasing: which values of a program share memory, on one side and on the other.

A view that became a copy loses every later write; a result that shares its input's memory is changed by the next write
to it. Both go unseen by values alone until somebody writes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import torch

from ci_autotest.backends.operators import step_operator
from ci_autotest.program.ir import OUTPUT, PLACEHOLDER, is_unpacking, step_refs
from ci_autotest.result import Misalignment

if TYPE_CHECKING:
    from ci_autotest.backends.trace import Trace
    from ci_autotest.program.ir import Program, Step

#: Operators that promise a view of their input.
#: Source: https://docs.pytorch.org/docs/2.13/tensor_view.html, the list of view operators; without ``detach``,
#: whose result is no view to autograd, so that the quick look would not see it.
VIEWS: Final = frozenset({
    "__getitem__", "adjoint", "as_strided", "diagonal", "expand", "expand_as", "movedim", "narrow", "permute",
    "select", "squeeze", "swapaxes", "swapdims", "transpose", "t", "T", "H", "mT", "mH", "real", "imag", "view_as_real",
    "unflatten", "unfold", "unsqueeze", "view", "view_as", "unbind", "split", "hsplit", "vsplit", "dsplit",
    "tensor_split", "split_with_sizes", "chunk",
})  # fmt: skip
#: Operators that promise neither.
#: Source: the same page, "reshape(), reshape_as() and flatten() can return either a view or new tensor", and
#: ``contiguous``, ``to`` and ``dropout`` outside training, which return their input where nothing is to be done.
EITHER: Final = frozenset({
    "reshape", "reshape_as", "flatten", "ravel", "contiguous", "to", "type", "type_as", "float", "double", "half",
    "int", "long", "bool", "cpu", "cuda", "resolve_conj", "resolve_neg", "positive", "dropout", "dropout1d",
    "dropout2d", "dropout3d", "alpha_dropout", "feature_alpha_dropout", "atleast_1d", "atleast_2d", "atleast_3d",
    "broadcast_tensors", "broadcast_to", "meshgrid", "conj", "Identity", "sum_to_size", "einsum",
})  # fmt: skip


def lost_aliases(program: Program, candidate: Trace, reference: Trace) -> list[Misalignment]:
    """Return the steps whose value shares memory with an earlier one on one side only, in program order.

    Where the reference shares it must be an operator that promises a view; where the candidate shares it must be one
    that does not leave it open.
    """
    if candidate.failure is not None or reference.failure is not None:
        return []
    found = []
    ours, theirs = _owners(program, candidate), _owners(program, reference)
    for index, step in enumerate(program.steps):
        left, right = ours.get(index), theirs.get(index)
        if left is None or right is None or left == right:
            continue
        name = _name(program, step)
        is_lost = left == index
        if name in EITHER or (is_lost and name not in VIEWS):
            continue
        found.append(
            Misalignment(
                kind="aliasing", step=index, what=f"memory of {step.name}",
                candidate=_told(program, index, left), reference=_told(program, index, right),
            )
        )  # fmt: skip
    return found


def _owners(program: Program, trace: Trace) -> dict[int, int]:
    """Return, for each tensor, the first step whose value shares its memory; all are alive, so no memory is reused."""
    first: dict[int, int] = {}
    found: dict[int, int] = {}
    for index, step in enumerate(program.steps):
        value = trace.values[index]
        shown = trace.shown is None or index in trace.shown
        if not shown or step.op == OUTPUT or not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
            continue
        if value.numel():
            found[index] = first.setdefault(value.untyped_storage().data_ptr(), index)
    return found


def _name(program: Program, step: Step) -> str:
    if is_unpacking(step):
        step = program.steps[step_refs(step)[0].index]
    return "" if step.op == PLACEHOLDER else step_operator(step, program.steps).rpartition(".")[2]


def _told(program: Program, index: int, owner: int) -> str:
    return "has memory of its own" if owner == index else f"shares the memory of {program.steps[owner].name}"
