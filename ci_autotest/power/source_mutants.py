"""Mutants of torch's Python decompositions: one change in the source of what answers an overload of an operator.

The unchanged decomposition is their reference. It may differ from torch's kernel, which is no mistake of a mutant, so
a call counts only where the two agree.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ci_autotest.power.decompositions import OverloadAnswering, Target, definition_of, function_of, overload_of, targets
from ci_autotest.power.mutants import Mutant
from ci_autotest.power.outcome import outcome, reference
from ci_autotest.power.source_mutations import mutations_of
from ci_autotest.values.power import MutantKind

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterator, Sequence

    from ci_autotest.power.call import OperatorCall
    from ci_autotest.power.mutated_torch import Noted
    from ci_autotest.power.source_mutations import Mutation

#: Calls of an operator that show which overloads it calls.
_LOOKED_INTO: Final = 3
_TEXT: Final = 60


class SourceMutant(NamedTuple):
    """A mutant with what answers its overload without the change."""

    mutant: Mutant
    unchanged: OverloadAnswering


def source_mutants(operator: str, calls: Sequence[Noted], rng: random.Random, count: int) -> list[SourceMutant]:
    """Return some mutants of the decompositions that an operator's calls reach, forward or backward.

    Args:
        operator: The operator.
        calls: Its calls in a test.
        rng: Chooses the mutants.
        count: Number of mutants at most.
    """
    found = [(target, change) for target in _targets_of(calls) for change in _mutations(target)]
    chosen = rng.sample(found, min(count, len(found)))
    return [each for target, change in chosen for each in _made(operator, target, change)]


def _targets_of(calls: Sequence[Noted]) -> Iterator[Target]:
    noting = OverloadAnswering()
    for noted in calls[:: max(1, len(calls) // _LOOKED_INTO)][:_LOOKED_INTO]:
        outcome(reference, noted, around=noting)
    for target in _all_targets():
        if target.overload in noting.called:
            yield target


def _made(operator: str, target: Target, change: Mutation) -> Iterator[SourceMutant]:
    overload = overload_of(target.overload)
    try:
        unchanged = function_of(target._replace(changed=target.entry))
        changed = function_of(target, (change.slot, change.alternative))
    except Exception:  # noqa: BLE001 - what cannot be made into a function again is no mutant
        return
    before, after = (" ".join(text.split())[:_TEXT] for text in (change.before, change.after))
    detail = f"{target.changed[1]}, line {change.line}: {before} -> {after}"
    mutant = Mutant(operator, MutantKind.SOURCE, detail, _as_called, OverloadAnswering(overload, changed))
    yield SourceMutant(mutant, OverloadAnswering(overload, unchanged))


def _as_called() -> Callable[[OperatorCall], Any]:
    return reference


@lru_cache(maxsize=1)
def _all_targets() -> tuple[Target, ...]:
    return tuple(targets())


@lru_cache(maxsize=1024)
def _mutations(target: Target) -> tuple[Mutation, ...]:
    return tuple(mutations_of(definition_of(target)))
