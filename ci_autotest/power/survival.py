"""Why a mutant survived: a call that tells it from the reference, or that there is none."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ci_autotest.alignment.properties.table import UNINITIALIZED, row_of
from ci_autotest.power.outcome import Departure, Outcome, departure, hidden, outcome, reference
from ci_autotest.power.variations import Variation, variations
from ci_autotest.values.power import HOLLOW, MutantKind, MutantResult, SurvivalReason

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ci_autotest.power.call import OperatorCall
    from ci_autotest.power.call_comparison import CallComparison, CallDifference
    from ci_autotest.power.mutants import Mutant
    from ci_autotest.power.mutated_torch import Noted

#: Calls of a test that are varied.
_VARIED: Final = 3
_OPEN: Final = "its operator leaves the result open"
#: Kinds whose detail is the name of an argument.
_OF_ARGUMENTS: Final = frozenset({MutantKind.AXIS, MutantKind.CONSTANT, MutantKind.IGNORED, MutantKind.STUCK})


class _Varied(NamedTuple):
    """A variation of a call, and its name among those of the operator."""

    key: tuple[int, str, int]
    variation: Variation
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
            return _result(mutant, SurvivalReason.DTYPE_UNCHECKED, _name(own.wrong.dtype))
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
            for position, each in enumerate(variations(mutant.operator, noted.call, argument)):
                varied = self._made((number, argument, position), each, noted)
                if varied is not None:
                    yield varied, change

    def _made(self, key: tuple[int, str, int], variation: Variation, noted: Noted) -> _Varied | None:
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

    def _of_variation(self, mutant: Mutant, variation: Variation, found: Departure) -> MutantResult:
        if mutant.kind is MutantKind.STALE:  # A run calls bodies again with other values, within the same tolerance.
            return self._hidden(mutant, found) or _result(mutant, SurvivalReason.REPEAT)
        # Every variation has gradients; where only these differ, the draws are not what is missing.
        if found.part == "gradient" and not self._asks_gradient:
            return _result(mutant, SurvivalReason.NO_GRADIENT)
        return _result(mutant, variation.reason, variation.words)


def unknown(mutant: Mutant) -> MutantResult:
    """Return a survivor of which no reason is known."""
    return _result(mutant, SurvivalReason.UNKNOWN)


def _name(dtype: object) -> str:
    return str(dtype).removeprefix("torch.")


def _size(found: Departure) -> float:
    if found.wrong.shape != found.right.shape or found.part == "dtype":
        return float("inf")
    return hidden(found.wrong, found.right, 0.0, 0.0).error


def _result(mutant: Mutant, reason: SurvivalReason | None = None, evidence: str = "", **fields: Any) -> MutantResult:
    return MutantResult(
        operator=mutant.operator, kind=mutant.kind, detail=mutant.detail, reason=reason, evidence=evidence,
        **{"outcome": "survived", **fields},
    )  # fmt: skip
