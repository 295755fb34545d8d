"""The trial of a test: its cases on the reference once, then every mutant on them until a case notices it.

A mutant gets the reference's own inputs, call by call, and the engine's ``compare`` decides by the test's rules. Where
more than the elements decides, for example the sign of an eigenvector, the whole case is judged as in a run. So it is
where only gradients differ: a call gets a gradient of its own, and a run starts from the outputs of the test.
"""

from __future__ import annotations

import random
from dataclasses import replace
from functools import cache, partial
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from ci_autotest.alignment.cases import Contender, try_case
from ci_autotest.alignment.fast_path import is_surely_aligned
from ci_autotest.alignment.probe import is_telling, probe_obstacle, probe_of
from ci_autotest.alignment.properties.table import row_of
from ci_autotest.alignment.stateful import suspicion
from ci_autotest.backends.operators.identity import step_operator
from ci_autotest.backends.trace import Attempt
from ci_autotest.power.mutants import BOOKKEEPING, Mutant, mutants_of
from ci_autotest.power.mutated_torch import MutatedTorch, Mutating, Noting
from ci_autotest.power.outcome import CallComparison, CallDifference, reference
from ci_autotest.power.survival import Survivors, unknown
from ci_autotest.values.power import (
    EXPLAINING,
    HOLLOW,
    MutantKind,
    MutantResult,
    SizeLimit,
    TestPower,
    UnscoredReason,
    power_of_test,
)
from ci_autotest.values.schedule import is_late, window_of
from ci_autotest.values.size_classes import joined_sizes, sizes_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

    from ci_autotest.alignment.properties.table import PropertyRow
    from ci_autotest.alignment.tolerance_rules import Rules
    from ci_autotest.backends.eager.backend import TorchBackend
    from ci_autotest.power.mutated_torch import Noted
    from ci_autotest.power.outcome import Outcome
    from ci_autotest.values.probes import NoProbe
    from ci_autotest.values.size_classes import FreeDimension
    from ci_autotest.values.verdict import Kind


#: Cases of an operator whose result is not unique that are judged for one mutant.
_JUDGED: Final = 2


class Terms(NamedTuple):
    """What a trial is held under.

    Attributes:
        rules: How the test compares.
        operators: The operators that may be mutated; empty: all.
        seed: Decides which mutants are chosen.
        mutants: Number of mutants at most.
        sources: Number of mutants of torch's Python decompositions at most, besides.
        are_random: Whether the test's backward pass starts from random gradients.
    """

    rules: Rules
    operators: frozenset[str]
    seed: str
    mutants: int
    sources: int = 0
    are_random: bool = True


class MutantTrial:
    """The cases of a test and its mutants.

    Args:
        test: Its id.
        attempts: The accepted attempts by case, with the reference's gradients.
        reference: The reference.
        terms: What the trial is held under.

    Attributes:
        mutants: The mutants that are tried.
    """

    def __init__(self, test: str, attempts: Mapping[int, Attempt], reference: TorchBackend, terms: Terms) -> None:
        self.test, self._reference = test, reference
        # A compiled graph would be compiled for each mutant.
        self._terms = terms._replace(rules=replace(terms.rules, check_graph=False))
        self._attempts = {number: attempt for number, attempt in attempts.items() if not attempt.untested}
        self._calls: dict[str, list[Noted]] = {}
        self._large: set[str] = set()
        for number, attempt in self._attempts.items():
            self._note(number, attempt)
        self._syntax = _of_syntax(self._attempts.values())
        self._comparisons = {
            operator: CallComparison(operator, calls, self._terms.rules, are_random=terms.are_random)
            for operator, calls in self._calls.items()
        }
        self._probes: dict[int, Attempt | NoProbe] = {}
        self._unchanged: dict[int, CallComparison] = {}
        self.mutants = self._chosen()
        if terms.sources:
            self._add_source_mutants(terms.sources)

    def _note(self, number: int, attempt: Attempt) -> None:
        noting = Noting(number, asks_gradient=bool(attempt.cotangents))
        MutatedTorch(noting, str(self._reference.device)).run(attempt.program, attempt.sources)
        self._large |= noting.unkept
        for operator, calls in noting.calls.items():
            self._calls.setdefault(operator, []).extend(calls)

    def _chosen(self) -> list[Mutant]:
        """Return the mutants: the hollow ones of each operator, and of the others as many as there is room for."""
        tolerance = partial(self._terms.rules.tolerance, ())
        found = [
            mutant
            for operator, calls in self._mutable()
            for mutant in mutants_of(
                operator, [noted.call for noted in calls], tolerance, is_syntax=operator in self._syntax
            )
        ]
        first = [mutant for mutant in found if mutant.kind in HOLLOW][: self._terms.mutants]
        others = [mutant for mutant in found if mutant.kind not in HOLLOW]
        left = self._terms.mutants - len(first)
        kept = sorted(self._random().sample(range(len(others)), min(left, len(others))))
        return [*first, *(others[i] for i in kept)]

    def _mutable(self) -> Iterator[tuple[str, list[Noted]]]:
        allowed = self._terms.operators
        for operator, calls in self._calls.items():
            if operator not in BOOKKEEPING and (not allowed or operator in allowed):
                yield operator, calls

    def _random(self) -> random.Random:
        return random.Random(self._terms.seed)  # noqa: S311 - the same mutants for the same seed

    def _add_source_mutants(self, count: int) -> None:
        """Add mutants of torch's Python decompositions, each with the unchanged one as its reference."""
        # It takes a second to import, which only this needs.
        from ci_autotest.power.source_mutants import source_mutants  # noqa: PLC0415

        rng, rules, are_random = self._random(), self._terms.rules, self._terms.are_random
        found = [
            (operator, each)
            for operator, calls in self._mutable()
            if operator not in self._large and row_of(operator) is None
            for each in source_mutants(operator, calls, rng, count)
        ]
        for operator, each in rng.sample(found, min(count, len(found))):
            self._unchanged[len(self.mutants)] = CallComparison(
                operator, self._calls[operator], rules, are_random=are_random, around=each.unchanged
            )
            self.mutants.append(each.mutant)

    def power(
        self, enter: Callable[[int, int, int], None], lost: Mapping[int, Kind], unexplained: Collection[int] = ()
    ) -> TestPower:
        """Return the power of the test.

        Args:
            enter: Called with the case and the number of the mutant before the mutant runs, and with ``EXPLAINING``
                before other calls than the test's are made.
            lost: Mutants that have ended their worker, by number.
            unexplained: Survivors whose reason cannot be looked for, because that has ended the worker.
        """
        if not self._attempts:
            return TestPower(test=self.test, unscored=UnscoredReason.NOTHING_COMPARED)
        if not self.mutants:
            reason = UnscoredReason.NOT_REPLACED if self._terms.operators else UnscoredReason.NO_OPERATOR
            called = ", ".join(sorted(self._calls)) or "none"
            return TestPower(test=self.test, cases=len(self._attempts), unscored=reason, why=called)
        asks_gradient = any(attempt.cotangents for attempt in self._attempts.values())
        survivors = {
            operator: Survivors(comparison, asks_gradient=asks_gradient)
            for operator, comparison in self._comparisons.items()
        }
        results = []
        for number, mutant in enumerate(self.mutants):
            entered = partial(_entered, enter, number)
            if number in lost:
                results.append(_killed(mutant, None, lost[number]))
                continue
            if number in unexplained:
                results.append(unknown(mutant))
                continue
            unchanged = self._unchanged.get(number)
            outcomes: list[Outcome | None] = []
            noticed = (
                self._noticed(mutant, outcomes, entered)
                if unchanged is None
                else self._noticed_in_source(mutant, unchanged, outcomes, entered)
            )
            if noticed is not None:
                results.append(_killed(mutant, *noticed))
                continue
            enter(next(iter(self._attempts)), number, EXPLAINING)
            own = survivors[mutant.operator] if unchanged is None else Survivors(unchanged, asks_gradient=asks_gradient)
            results.append(own.explained(mutant, outcomes))
        found = power_of_test(self.test, len(self._attempts), results)
        return msgspec.structs.replace(found, limits=_limits(self._attempts.values()))

    def _noticed(
        self, mutant: Mutant, outcomes: list[Outcome | None], enter: Callable[[int], None]
    ) -> tuple[int, Kind] | None:
        """Return the first case that notices a mutant, and the kind of the difference."""
        is_stale, row = mutant.kind is MutantKind.STALE, row_of(mutant.operator)
        # One that remembers must see the cases in order, whatever is judged.
        if mutant.operator in self._large or (is_stale and row is not None):
            noticed = self._noticed_in_cases(mutant, enter)
        else:
            noticed = self._noticed_in_calls(mutant, outcomes, enter)
        return self._noticed_in_probe(mutant, enter) if noticed is None and is_stale else noticed

    def _noticed_in_source(
        self, mutant: Mutant, unchanged: CallComparison, outcomes: list[Outcome | None], enter: Callable[[int], None]
    ) -> tuple[int, Kind] | None:
        """Return the first case that notices a change in a decomposition; a change that only raises does not count."""
        right = self._comparisons[mutant.operator]
        backend = MutatedTorch(mutant.around, str(self._reference.device), in_backward=True)
        judged = cache(partial(self._judged, backend))
        for number, noted in enumerate(unchanged.calls):
            enter(noted.case)
            outcomes.append(unchanged.wrong(number, reference, mutant.around))
            found = None if outcomes[-1] is None else unchanged.difference(number, outcomes[-1])
            if found is None or right.difference(number, unchanged.right(number)) is not None:
                continue
            if found.kind != "gradient" or judged(noted.case) is not None:
                return noted.case, found.kind
        return None

    def _noticed_in_calls(
        self, mutant: Mutant, outcomes: list[Outcome | None], enter: Callable[[int], None]
    ) -> tuple[int, Kind] | None:
        """Return the first case that notices a mutant and the kind of the difference; append what each call gives."""
        comparison, change = self._comparisons[mutant.operator], mutant.start()
        row, looked_at = row_of(mutant.operator), 0
        judged = cache(partial(self._judged, self._backend(mutant)))
        for number, noted in enumerate(comparison.calls):
            enter(noted.case)
            outcomes.append(comparison.wrong(number, change, mutant.around))
            found = comparison.difference(number, outcomes[-1])
            if found is None:
                continue
            kind: Kind | None = found.kind
            if row is not None and _is_open(row, found):
                looked_at += 1  # Only the engine knows what else is right, which takes it long.
                kind = judged(noted.case) if looked_at <= _JUDGED else None
            elif kind == "gradient":
                kind = judged(noted.case)
            if kind is not None:
                return noted.case, kind
        return None

    def _noticed_in_cases(self, mutant: Mutant, enter: Callable[[int], None]) -> tuple[int, Kind] | None:
        backend = self._backend(mutant)
        for case in dict.fromkeys(noted.case for noted in self._calls[mutant.operator]):
            enter(case)
            kind = self._judged(backend, case)
            if kind is not None:
                return case, kind
        return None

    def _judged(self, backend: MutatedTorch, case: int) -> Kind | None:
        """Return the kind of the difference in a whole case, as a run finds it; float64 is not asked."""
        contender = Contender(backend, self._terms.rules, None)
        verdict = try_case(self._attempts[case], contender, self._reference).verdict
        return verdict.kind if verdict.outcome == "misaligned" and verdict.kind != "leniency" else None

    def _noticed_in_probe(self, mutant: Mutant, enter: Callable[[int], None]) -> tuple[int, Kind] | None:
        """Return the case whose probe, which calls the body again with other values, notices a mutant."""
        called = {noted.case for noted in self._calls[mutant.operator]}
        for case, probe in self._probes_of_windows():
            if case in called:
                enter(case)
                trace = self._backend(mutant).run(probe.program, probe.sources)
                is_sure = is_surely_aligned(probe.program, trace, probe.trace, self._terms.rules)
                if not is_sure and suspicion(probe, trace, self._terms.rules) is not None:
                    return case, "stateful"
        return None

    def _probes_of_windows(self) -> Iterator[tuple[int, Attempt]]:
        """Yield the probe of the first case of each window that has one, as a run makes them; each is made once."""
        windows = set[int]()
        for case, attempt in self._attempts.items():
            if case and window_of(case) not in windows:
                if case not in self._probes:
                    self._probes[case] = self._probe(case, attempt)
                probe = self._probes[case]
                if isinstance(probe, Attempt):
                    windows.add(window_of(case))
                    yield case, probe

    def _probe(self, case: int, attempt: Attempt) -> Attempt | NoProbe:
        if probe_obstacle(attempt) is None and (is_late(case) or is_telling(attempt)):
            return probe_of(attempt, self._reference, _nowhere)
        return "same_values"

    def _backend(self, mutant: Mutant) -> MutatedTorch:
        return MutatedTorch(Mutating(mutant.operator, mutant.start()), str(self._reference.device))


def _limits(attempts: Collection[Attempt]) -> tuple[SizeLimit, ...]:
    """Return the free dimensions of which no case is beyond 256."""
    named = [_named_dimensions(attempt) for attempt in attempts]
    standings = joined_sizes(map(sizes_of, named))
    most = {
        name: max(each.size for dimensions in named for each in dimensions if each.name == name) for name in standings
    }
    return tuple(
        SizeLimit(dimension=name, most=most[name], why=each["beyond_256"])
        for name, each in standings.items()
        if each["beyond_256"] != "reached"
    )


def _named_dimensions(attempt: Attempt) -> list[FreeDimension]:
    labels = {draw.site: draw.label for draw in attempt.draws}
    return [each._replace(name=labels.get(each.name, each.name)) for each in attempt.dimensions]


def _of_syntax(attempts: Iterable[Attempt]) -> set[str]:
    """Return the operators that a test calls by Python's syntax alone, as ``x + y`` does."""
    found: tuple[set[str], set[str]] = (set(), set())
    for attempt in attempts:
        for _, step in attempt.program.calls:
            found[step.target.startswith("operator.")].add(step_operator(step, attempt.program.steps))
    return found[1] - found[0]


def _nowhere(step: int) -> None:
    """Report no step."""


def _entered(enter: Callable[[int, int, int], None], number: int, case: int) -> None:
    enter(case, number, 0)


def _is_open(row: PropertyRow, found: CallDifference) -> bool:
    """Whether a difference is in a result that an operator leaves open, or follows from one."""
    return found.output is None or not row.outputs or found.output in row.outputs


def _killed(mutant: Mutant, case: int | None, kind: Kind) -> MutantResult:
    return MutantResult(
        operator=mutant.operator, kind=mutant.kind, detail=mutant.detail, outcome="killed",
        case=case, by=kind,
    )  # fmt: skip
