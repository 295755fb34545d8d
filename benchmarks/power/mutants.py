"""The set of mutants: drawn with a seed, told apart from torch by brute force, half of them kept aside."""

from __future__ import annotations

import json
import random
import re
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from benchmarks.power.children import in_child
from benchmarks.power.samples import Sample, differs, outcome, samples_by_overload, told_apart
from ci_autotest.power.source_mutants import (
    Mutation,
    OverloadAnswering,
    Target,
    definition_of,
    function_of,
    mutations_of,
    overload_of,
    targets,
)

if TYPE_CHECKING:
    from collections.abc import Callable

PATH: Final = Path(__file__).with_name("mutants.json")
#: Mutations that are tried of an overload, and the mutants that are kept of it.
_TRIED: Final = 14
_KEPT: Final = 5
#: Seconds without a result after which a child is given up.
_SECONDS: Final = 60.0


#: Overloads whose elements are undefined: whatever tells a mutant of them from torch is chance.
_UNDEFINED: Final = re.compile("empty")


class Mutant(NamedTuple):
    """A mutant: a target, a mutation, and how it was told from torch.

    Attributes:
        overload: What it answers, such as ``aten.gelu.default``.
        module: Module of its source.
        entry: Line and name of the function that the dispatcher is given.
        changed: Line and name of the function that is mutated.
        change: ``(slot, alternative)`` of ``mutations.mutated``.
        line: Line of the change.
        before: What is there.
        after: What is there instead.
        operator: Public operator with a call that shows the change.
        half: ``seen`` or ``aside``.
    """

    overload: str
    module: str
    entry: tuple[int, str]
    changed: tuple[int, str]
    change: tuple[int, int]
    line: int
    before: str
    after: str
    operator: str
    half: str

    @property
    def target(self) -> Target:
        """What it is made of."""
        return Target(self.overload, self.module, self.entry, self.changed)


class Made(NamedTuple):
    """Mutants, and how many changes were not told from torch."""

    mutants: list[Mutant]
    tried: int
    equivalent: int


def generate(seed: int) -> Made:
    """Draw mutants of every overload that a public operator reaches, and keep those that a sample tells from torch."""
    rng = random.Random(seed)  # noqa: S311 - the same mutants for the same seed
    samples = samples_by_overload(seed)
    by_overload: dict[str, list[Target]] = {}
    for target in targets():
        by_overload.setdefault(target.overload, []).append(target)
    found: list[Mutant] = []
    tried = 0
    for overload, group in by_overload.items():
        changes = [(target, item) for target in group for item in mutations_of(definition_of(target))]
        chosen = rng.sample(changes, min(_TRIED, len(changes))) if overload in samples else []
        told, _ = in_child(partial(_try_all, chosen, samples.get(overload, [])), _SECONDS)
        tried += len(told)
        kept = [(chosen[number], operator) for number, operator in told if operator][:_KEPT]
        for (target, item), operator in kept:
            half = rng.choice(("seen", "aside"))
            change = (item.slot, item.alternative)
            found.append(Mutant(*target, change, item.line, item.before[:90], item.after[:90], operator, half))
    defined = [mutant for mutant in found if not _UNDEFINED.search(mutant.overload)]
    return Made(defined, tried, tried - len(found))


def _try_all(chosen: list[tuple[Target, Mutation]], samples: list[Sample], tell: Callable[[Any], None]) -> None:
    """Tell of each change its number and the operator that shows it, until enough are found."""
    right = _right(chosen[0][0], samples) if chosen else []
    found = 0
    for number, (target, item) in enumerate(chosen if right else ()):
        operator = _told(target, (item.slot, item.alternative), right)
        tell((number, operator))
        found += bool(operator)
        if found == _KEPT:
            return


def _right(target: Target, samples: list[Sample]) -> list[Sample]:
    """Return the samples on which the decomposition without a change gives what torch gives."""
    try:
        function = function_of(target)
    except Exception:  # noqa: BLE001 - a source that cannot be made into a function again has no mutants
        return []
    return [sample for sample in samples if _is_right(target.overload, function, sample)]


def _is_right(overload: str, function: Any, sample: Sample) -> bool:
    found = outcome(sample.function, sample.args, sample.kwargs, OverloadAnswering(overload_of(overload), function))
    return found is not None and not differs(found, sample.expected)


def _told(target: Target, change: tuple[int, int], samples: list[Sample]) -> str:
    try:
        function = function_of(target, change)
    except Exception:  # noqa: BLE001 - a change that does not compile is no mutant
        return ""
    return told_apart(samples, target.overload, function)


def save(made: Made, seed: int) -> None:
    rows = ",\n".join(json.dumps(mutant) for mutant in made.mutants)
    PATH.write_text(
        f'{{"seed": {seed}, "tried": {made.tried}, "equivalent": {made.equivalent}, "mutants": [\n{rows}\n]}}\n',
        encoding="utf-8",
    )


def load() -> list[Mutant]:
    rows = json.loads(PATH.read_text(encoding="utf-8"))["mutants"]
    return [Mutant(row[0], row[1], tuple(row[2]), tuple(row[3]), tuple(row[4]), *row[5:]) for row in rows]
