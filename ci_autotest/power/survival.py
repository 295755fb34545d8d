"""Why a mutant survived: a call that tells it from the reference, or that there is none of the calls that are tried."""

from __future__ import annotations

import re
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import torch

from ci_autotest.alignment.properties.table import UNINITIALIZED, row_of
from ci_autotest.backends.torch_constants import DTYPE_NAMES
from ci_autotest.power.argument_mutants import other_values
from ci_autotest.power.outcome import Departure, Outcome, departure, hidden, outcome, reference
from ci_autotest.power.result_mutants import has_gradient
from ci_autotest.values.power import HOLLOW, MutantKind, MutantResult, SurvivalReason

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ci_autotest.power.call import OperatorCall
    from ci_autotest.power.mutants import Mutant
    from ci_autotest.power.mutated_torch import Noted
    from ci_autotest.power.outcome import CallComparison, CallDifference


#: Calls of a test that are varied.
_VARIED: Final = 3
_OPEN: Final = "its operator leaves the result open"
#: Kinds whose detail is the name of an argument.
_OF_ARGUMENTS: Final = frozenset({MutantKind.AXIS, MutantKind.CONSTANT, MutantKind.IGNORED, MutantKind.STUCK})


class _Varied(NamedTuple):
    """A variation of a call, and its name among those of the operator."""

    key: tuple[int, str, int]
    variation: _Variation
    noted: Noted


class Survivors:
    """Explain the surviving mutants of one operator in a test.

    Args:
        comparison: The operator's calls in the test's cases, and what the reference gives there.
        asks_gradient: Whether a case of the test has a backward pass.
    """

    def __init__(self, comparison: CallComparison, *, asks_gradient: bool) -> None:
        self._comparison, self._asks_gradient = comparison, asks_gradient
        self._varied: dict[tuple[int, str, int], _Varied | None] = {}
        self._right: dict[tuple[int, str, int], Outcome | None] = {}

    def explained(self, mutant: Mutant, outcomes: Sequence[Outcome | None] = ()) -> MutantResult:
        """Return why a mutant survived, or that it is equivalent to the reference.

        Args:
            mutant: The mutant.
            outcomes: What it gives in the test's calls, if that is known.
        """
        own = self._own_departure(mutant, outcomes)
        if own is not None:
            return self._of_own_calls(mutant, *own)
        for varied, change in self._variations(mutant):
            right = self._reference(varied)
            wrong = outcome(change, varied.noted, around=mutant.around) if right is not None else None
            found = departure(wrong, right) if wrong is not None and right is not None else None
            if found is not None:
                return self._of_variation(mutant, varied.variation, found)
        return _result(mutant, outcome="equivalent")

    def _own_departure(
        self, mutant: Mutant, outcomes: Sequence[Outcome | None]
    ) -> tuple[Departure, CallDifference | None] | None:
        """Return the departure in the test's own calls that is the largest, and what the test's rules say of it."""
        comparison, change, found = self._comparison, mutant.start(), None
        for number in range(len(comparison.calls)):
            right = comparison.right(number)
            wrong = outcomes[number] if outcomes else comparison.wrong(number, change, mutant.around)
            departed = departure(wrong, right) if wrong is not None and right is not None else None
            if departed is not None and (found is None or _size(departed) > _size(found[0])):
                found = departed, comparison.difference(number, wrong)
        return found

    def _of_own_calls(self, mutant: Mutant, own: Departure, difference: CallDifference | None) -> MutantResult:
        if own.part == "dtype":
            return _result(mutant, SurvivalReason.DTYPE_UNCHECKED, DTYPE_NAMES[own.wrong.dtype])
        if not self._comparison.rules.check_allclose:
            return _result(mutant, SurvivalReason.VALUES_UNCHECKED)
        row = row_of(mutant.operator)
        if row is not None:
            # Nobody draws zeros: what is checked of such a result is too little to tell.
            if mutant.kind in HOLLOW and row is not UNINITIALIZED:
                return _result(mutant, SurvivalReason.OPEN)
            return _result(mutant, evidence=_OPEN, outcome="equivalent")
        if difference is not None and difference.kind == "gradient":
            return _result(mutant, SurvivalReason.COTANGENT)
        if self._comparison.rules.strictness == "measured":
            return _result(mutant, SurvivalReason.MEASURED)
        return self._hidden(mutant, own) or _result(mutant, SurvivalReason.TOLERANCE)

    def _hidden(self, mutant: Mutant, found: Departure) -> MutantResult | None:
        """Return a mutant as one that the tolerance hides; ``None`` if it does not."""
        if found.wrong.shape != found.right.shape or not found.right.numel():
            return None
        tolerance = self._comparison.tolerance(found.right.dtype)
        each = hidden(found.wrong, found.right, tolerance.rtol, tolerance.atol)
        if tolerance.is_of_elements and each.error > each.allowed:
            return None
        words = f"rtol {tolerance.rtol:g}, atol {tolerance.atol:g}" if tolerance.is_of_elements else tolerance.metric
        return _result(mutant, SurvivalReason.TOLERANCE, words, **each._asdict())

    def _variations(self, mutant: Mutant) -> Iterator[tuple[_Varied, Callable[[OperatorCall], Any]]]:
        argument = mutant.detail if mutant.kind in _OF_ARGUMENTS else ""
        calls = self._comparison.calls
        for number, noted in enumerate(calls[:: max(1, len(calls) // _VARIED)][:_VARIED]):
            change = mutant.start()
            if mutant.kind is MutantKind.STALE:
                outcome(change, noted)
            for position, each in enumerate(_all_variations(mutant.operator, noted.call, argument)):
                varied = self._made((number, argument, position), each, noted)
                if varied is not None:
                    yield varied, change

    def _made(self, key: tuple[int, str, int], variation: _Variation, noted: Noted) -> _Varied | None:
        if key not in self._varied:
            self._varied[key] = None
            with suppress(Exception):  # Not every tensor can be varied like this.
                call = variation.make()
                self._varied[key] = _Varied(
                    key, variation, noted._replace(call=call, is_grad_enabled=True, asks_gradient=True)
                )
        return self._varied[key]

    def _reference(self, varied: _Varied) -> Outcome | None:
        if varied.key not in self._right:
            self._right[varied.key] = outcome(reference, varied.noted, around=self._comparison.around)
        return self._right[varied.key]

    def _of_variation(self, mutant: Mutant, variation: _Variation, found: Departure) -> MutantResult:
        if mutant.kind is MutantKind.STALE:  # A run calls bodies again with other values, within the same tolerance.
            return self._hidden(mutant, found) or _result(mutant, SurvivalReason.REPEAT)
        # Every variation has gradients; where only these differ, the draws are not what is missing.
        if found.part == "gradient" and not self._asks_gradient:
            return _result(mutant, SurvivalReason.NO_GRADIENT)
        return _result(mutant, variation.reason, variation.words)


def unknown(mutant: Mutant) -> MutantResult:
    """Return a survivor of which no reason is known."""
    return _result(mutant, SurvivalReason.UNKNOWN)


def _size(found: Departure) -> float:
    if found.wrong.shape != found.right.shape or found.part == "dtype":
        return float("inf")
    return hidden(found.wrong, found.right, 0.0, 0.0).error


def _result(mutant: Mutant, reason: SurvivalReason | None = None, evidence: str = "", **fields: Any) -> MutantResult:
    return MutantResult(
        operator=mutant.operator, kind=mutant.kind, detail=mutant.detail, reason=reason, evidence=evidence,
        **{"outcome": "survived", **fields},
    )  # fmt: skip


# Variations of a test's calls: other arguments, shapes, values and dtypes than its cases draw.
#
# They are the brute force that tells a surviving mutant from the reference. The variation that does so is the reason
# why it survived. A mutant that none of them distinguishes from the reference is equivalent.


#: Draws of values for each call.
_DRAWS: Final = 2
#: Operators whose kernels in torch 2.13 read outside of their tensors where values are not finite.
_UNSAFE: Final = re.compile("pool|grid_sample|embedding|ctc|linalg|interpolate|upsample")
_FLOATS: Final = (torch.float32, torch.float64, torch.bfloat16, torch.float16)


class _Variation(NamedTuple):
    """A call that a test does not make.

    Attributes:
        reason: Why the test misses a mutant that the call shows.
        words: What is varied: ``keepdim=True``, ``float16``.
        make: Returns the call; raises where it cannot be varied like this.
    """

    reason: SurvivalReason
    words: str
    make: Callable[[], OperatorCall]


def _all_variations(operator: str, call: OperatorCall, argument: str = "") -> Iterator[_Variation]:
    """Yield variations of a call, those of ``argument`` first."""
    if argument:
        yield from _of_argument(call, argument)
    yield _Variation(SurvivalReason.NO_GRADIENT, "", partial(call.mapped, _with_gradient))
    yield from _of_shapes(call)
    yield from _of_values(operator, call)
    for dtype in _FLOATS:
        name = DTYPE_NAMES[dtype]
        yield _Variation(SurvivalReason.DTYPE, name, partial(call.mapped, partial(_in_dtype, dtype)))


def _with_gradient(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().clone().requires_grad_(has_gradient(tensor))


def _in_dtype(dtype: torch.dtype, tensor: torch.Tensor) -> torch.Tensor:
    return _with_gradient(tensor.to(dtype) if tensor.is_floating_point() else tensor)


def _of_argument(call: OperatorCall, name: str) -> Iterator[_Variation]:
    argument = call.arguments().get(name)
    if argument is None:
        return
    for value in other_values(argument):
        words = f"{name}={value if isinstance(value, torch.dtype) else repr(value)}"
        yield _Variation(SurvivalReason.ARGUMENT, words, partial(call.changed(argument, value).mapped, _with_gradient))


def _of_shapes(call: OperatorCall) -> Iterator[_Variation]:
    for words, change in (("a first dimension of twice the size", _doubled), ("one dimension more", _stacked)):
        yield _Variation(SurvivalReason.SHAPE, words, partial(call.mapped, partial(_changed, change)))
    several = call.tensors()[:2] if len(call.tensors()) > 1 else []
    for place, tensor in several:
        if tensor.ndim and tensor.shape[0] > 1:
            smaller = call.given(place, tensor[:1])
            yield _Variation(
                SurvivalReason.SHAPE, f"an input {place} that is broadcast", partial(smaller.mapped, _with_gradient)
            )


def _changed(change: Callable[[torch.Tensor], torch.Tensor], tensor: torch.Tensor) -> torch.Tensor:
    return _with_gradient(change(tensor.detach()))


def _doubled(tensor: torch.Tensor) -> torch.Tensor:
    return torch.cat([tensor, tensor]) if tensor.ndim else tensor


def _stacked(tensor: torch.Tensor) -> torch.Tensor:
    return torch.stack([tensor, tensor.flip(0) if tensor.ndim else tensor])


def _of_values(operator: str, call: OperatorCall) -> Iterator[_Variation]:
    fills: list[tuple[str, Callable[[torch.Tensor], torch.Tensor]]] = [
        *(("other values", partial(_drawn, number)) for number in range(_DRAWS)),
        ("the elements in another order", lambda flat: flat.roll(1)),
        ("larger values", lambda flat: flat * 64),
        ("smaller values", lambda flat: flat / 256),
        ("whole numbers and ties", torch.round),
    ]
    if not _UNSAFE.search(operator):
        fills.append(("nan, inf and -0.0", _special))
    for words, fill in fills:
        yield _Variation(SurvivalReason.VALUES, words, partial(call.mapped, partial(_filled, fill)))


def _filled(fill: Callable[[torch.Tensor], torch.Tensor], tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor with other elements; integers may be indices, so that only their order changes."""
    if not has_gradient(tensor):
        return ~tensor if tensor.dtype is torch.bool else tensor.reshape(-1).roll(1).reshape(tensor.shape)
    flat = tensor.detach().reshape(-1)
    return fill(flat).to(tensor.dtype).reshape(tensor.shape).requires_grad_()


def _drawn(seed: int, flat: torch.Tensor) -> torch.Tensor:
    return torch.randn(flat.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def _special(flat: torch.Tensor) -> torch.Tensor:
    found = flat.clone()
    for at, item in enumerate((float("nan"), float("inf"), -float("inf"), -0.0)):
        if found.numel():
            found[(7 * at) % found.numel()] = item
    return found
