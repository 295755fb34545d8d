"""The mutants of an operator: every mistake that its calls can have, by what the calls of a test look like."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import torch

from ci_autotest.backends.nest import tensors_in
from ci_autotest.power.argument_mutants import (
    axis,
    broadcasts,
    constant,
    ignored,
    is_axis,
    is_constant,
    is_optional,
    is_switch,
    no_broadcast,
    other_values,
    stuck,
    swapped,
)
from ci_autotest.power.call import attempt_of
from ci_autotest.power.result_mutants import (
    ELEMENT_MUTANTS,
    WIDE,
    beyond_tolerance,
    bfloat16,
    copy_of_input,
    detached,
    dropped_term,
    gradient_tail,
    has_gradient,
    int32,
    of_result,
    stale,
    written_input,
)
from ci_autotest.values.power import MutantKind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ci_autotest.power.call import Argument, OperatorCall
    from ci_autotest.values.tolerance import Tolerance

#: Operators whose mutants say nothing: they compute nothing, or torch itself answers them.
BOOKKEEPING: Final = frozenset({
    "torch.Tensor.backward", "torch.Tensor.requires_grad", "torch.Tensor.register_hook", "torch.Tensor.retain_grad",
    "torch.Tensor.__setitem__", "torch.detach", "torch.clone", "torch.Tensor.item", "torch.Tensor.tolist",
    "torch.Tensor.numpy", "torch.Tensor.data", "torch.autograd.grad", "torch.autograd.backward",
})  # fmt: skip
#: Calls whose results are looked at.
_LOOKED_INTO: Final = 8
#: Inputs of which each has a mutant that drops its gradient.
_TERMS: Final = 3


class Mutant(NamedTuple):
    """A mistake in the calls of an operator.

    Attributes:
        operator: The operator.
        kind: The mistake.
        detail: The argument or the input that it concerns.
        start: Returns what runs a call with the mistake; called once for each series of calls, because a mistake may
            remember earlier ones.
        around: Context of each call and of its backward pass, which has the mistake if the call itself has none.
    """

    operator: str
    kind: MutantKind
    detail: str
    start: Callable[[], Callable[[OperatorCall], Any]]
    around: AbstractContextManager[object] = nullcontext()


def mutants_of(
    operator: str, calls: Sequence[OperatorCall], tolerance: Callable[[str], Tolerance], *, is_syntax: bool = False
) -> list[Mutant]:
    """Return every mutant of an operator that its calls can show.

    Args:
        operator: The operator.
        calls: Calls of it in the test's cases; at least one.
        tolerance: Returns the test's tolerance for a dtype's name.
        is_syntax: Whether all calls are Python's syntax, as ``x + y`` is, which has no place for ``alpha``: what a call
            cannot give is not missing.
    """
    results = [(call, attempt_of(call.mapped(_differentiable))) for call in calls[:_LOOKED_INTO]]
    every = [(call, tensors_in(result)) for call, result in results]
    found = [*_of_results(operator, every, tolerance), *_of_inputs(operator, results)]
    if any(each.requires_grad for _, own in every for each in own):
        found += _of_gradients(operator, calls)
    for name in dict.fromkeys(name for call in calls for name in call.arguments()):
        given = [each for call in calls if (each := call.arguments().get(name)) is not None]
        if not is_syntax or any(each.place is not None for each in given):
            found += _of_argument(operator, name, given)
    return found


def _of_results(
    operator: str, results: Sequence[tuple[OperatorCall, list[torch.Tensor]]], tolerance: Callable[[str], Tolerance]
) -> Iterator[Mutant]:
    name = operator.rpartition(".")[2]
    every = [each for _, own in results for each in own]
    for kind, (change, concerned) in ELEMENT_MUTANTS.items():
        if concerned is None or concerned.search(name):
            is_copy = kind is MutantKind.COPY_OF_INPUT
            if not is_copy or any(copy_of_input(each, call) is not None for call, own in results for each in own):
                yield _mutant(operator, kind, of_result(change))
    if any(each.numel() for call, _ in results for each in tensors_in([*call.args, *call.kwargs.values()])):
        yield _mutant(operator, MutantKind.WRITTEN_INPUT, written_input)
    yield Mutant(operator, MutantKind.STALE, "", stale)
    if any(map(has_gradient, every)):
        yield _mutant(operator, MutantKind.BEYOND_TOLERANCE, of_result(beyond_tolerance(tolerance)))
    if any(each.dtype in WIDE for call, _ in results for _, each in call.tensors()):
        yield _mutant(operator, MutantKind.BFLOAT16, bfloat16)
    if any(each.dtype is torch.int64 for each in every):
        yield _mutant(operator, MutantKind.INT32, int32)


def _of_gradients(operator: str, calls: Sequence[OperatorCall]) -> Iterator[Mutant]:
    most = max((call.tensors() for call in calls), key=len)
    places = [place for place, tensor in most if has_gradient(tensor)]
    if not places:
        return
    yield _mutant(operator, MutantKind.DETACHED, detached)
    yield _mutant(operator, MutantKind.GRADIENT_TAIL, gradient_tail)
    for place in places[:_TERMS] if len(places) > 1 else ():
        yield _mutant(operator, MutantKind.DROPPED_TERM, dropped_term(place), f"input {place}")


def _of_inputs(operator: str, results: Sequence[tuple[OperatorCall, Any]]) -> Iterator[Mutant]:
    if any(len(call.tensors()) > 1 for call, _ in results):
        yield _mutant(operator, MutantKind.SWAPPED, swapped)
    if any(broadcasts(call, result) for call, result in results):
        yield _mutant(operator, MutantKind.NO_BROADCAST, no_broadcast)


def _differentiable(tensor: torch.Tensor) -> torch.Tensor:
    """Return a copy that has a gradient if it can have one, and that may be written to."""
    return tensor.detach().clone().requires_grad_(has_gradient(tensor)).clone()


def _of_argument(operator: str, name: str, given: Sequence[Argument]) -> Iterator[Mutant]:
    if any(map(is_axis, given)):
        yield _mutant(operator, MutantKind.AXIS, axis(name), name)
    if any(map(is_switch, given)):
        yield _mutant(operator, MutantKind.STUCK, stuck(name), name)
    if any(map(is_constant, given)):
        yield _mutant(operator, MutantKind.CONSTANT, constant(name), name)
    # Of an argument that no case gives, other values must be known to tell the mutant from the reference.
    if all(map(is_optional, given)) and any(each.place is not None or other_values(each) for each in given):
        yield _mutant(operator, MutantKind.IGNORED, ignored(name), name)


def _mutant(operator: str, kind: MutantKind, change: Callable[[OperatorCall], Any], detail: str = "") -> Mutant:
    return Mutant(operator, kind, detail, partial(_itself, change))


def _itself(change: Callable[[OperatorCall], Any]) -> Callable[[OperatorCall], Any]:
    return change
