"""The score: how many mutants the shipped suite finds, and which it does not."""

from __future__ import annotations

import importlib
import sys
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from benchmarks.power.children import in_child
from ci_autotest.alignment.cases import Contender, accept, differentiate, try_case
from ci_autotest.alignment.tolerance_rules import rules_for
from ci_autotest.backends.eager.backend import TorchBackend
from ci_autotest.discovery import SUITE, families
from ci_autotest.power.mutated_torch import MutatedTorch
from ci_autotest.power.source_mutants import OverloadAnswering, function_of, overload_of
from ci_autotest.record.declaration import declaration_of
from ci_autotest.values.case import test_key
from ci_autotest.values.finding import TOLERATED_BLAMES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from benchmarks.power.mutants import Mutant
    from ci_autotest.power.source_mutants import Target
    from ci_autotest.record.attempt import Attempts
    from ci_autotest.record.declaration import Declaration


#: Seconds without a result after which a child is given up.
_SECONDS: Final = 60.0


def _mutated(overload: str, function: Callable[..., Any]) -> MutatedTorch:
    """Return torch in which a function answers one overload, forward and backward."""
    return MutatedTorch(OverloadAnswering(overload_of(overload), function), in_backward=True)


class Drawn(NamedTuple):
    """A case of the suite, with the overloads that it calls."""

    test: str
    case: int
    attempt: Any
    rules: Any
    overloads: frozenset[str]


class Result(NamedTuple):
    """A mutant and what the suite said of it.

    Attributes:
        mutant: The mutant.
        called: Number of cases that call its overload, on which the decomposition without the change is aligned.
        test: Test and case that found it; "" if none did.
    """

    mutant: Mutant
    called: int
    test: str


def score(mutants: list[Mutant], cases: int, attempts: Attempts) -> list[Result]:
    """Run every mutant on the cases that call its overload, until one is misaligned; each overload in a child."""
    drawn = list(_drawn(cases, attempts))
    groups: dict[str, list[Mutant]] = {}
    for mutant in mutants:
        groups.setdefault(mutant.overload, []).append(mutant)
    results = []
    for overload, group in groups.items():
        calls = [item for item in drawn if overload in item.overloads]
        found: dict[int, str] = {}
        first = 0
        while first < len(group):
            told, ended = in_child(partial(_try_all, group, first, calls), _SECONDS)
            found |= dict(told)
            first = len(group) if ended else max((number for number, _ in told), default=first - 1) + 2
            if not ended:
                found.setdefault(first - 1, "crashed")
        results += [Result(mutant, len(calls), found.get(number, "")) for number, mutant in enumerate(group)]
    return results


def _try_all(group: list[Mutant], first: int, calls: list[Drawn], tell: Callable[[Any], None]) -> None:
    """Tell the number of each mutant of one overload, from ``first`` on, and the case that found it."""
    wrong: dict[Target, set[int]] = {}
    for number in range(first, len(group)):
        mutant = group[number]
        unchanged = mutant.target._replace(changed=mutant.entry)
        base = _mutated(mutant.overload, function_of(unchanged))
        candidate = _mutated(mutant.overload, function_of(mutant.target, mutant.change))
        known = wrong.setdefault(unchanged, set())
        tell((number, _finder(calls, candidate, base, known)))


def _finder(calls: list[Drawn], candidate: MutatedTorch, base: MutatedTorch, known: set[int]) -> str:
    """Return the case that finds a candidate and does not accuse torch's own decomposition; "" if none does."""
    for i, item in enumerate(calls):
        if i in known or not _is_found(item, candidate):
            continue
        if not _is_found(item, base):
            return f"{item.test}[{item.case}]"
        known.add(i)
    return ""


def _is_found(drawn: Drawn, candidate: MutatedTorch) -> bool:
    verdict = try_case(drawn.attempt, Contender(candidate, drawn.rules), TorchBackend()).verdict
    return verdict.outcome == "misaligned" and verdict.blame not in TOLERATED_BLAMES


def _drawn(cases: int, attempts: Attempts) -> Iterator[Drawn]:
    for family in families():
        module = importlib.import_module(f"ci_autotest.suite.{family}")
        for name, value in vars(module).items():
            declaration = declaration_of(value)
            if declaration is not None and not declaration.raises:
                yield from _cases_of(declaration, f"{SUITE}/{family}::{name}", cases, attempts)


def _cases_of(declaration: Declaration, test: str, cases: int, attempts: Attempts) -> Iterator[Drawn]:
    rules = rules_for((), "tolerance", "mutant", declaration)
    key = test_key(0, test)

    def draw(case: int, number: int) -> Any:
        return attempts.attempt(declaration, declaration.body, (key, test, case, number))

    for case in range(cases):
        attempt = accept(case, draw, {}, lambda _case, _name, _number: None).attempt
        if attempt is None:
            continue
        mode = OverloadAnswering()
        logged = MutatedTorch(mode, in_backward=True)
        trace = logged.run(attempt.program, attempt.sources)
        if trace.failure is None and attempt.cotangents:
            logged.backward(attempt.program, trace, attempt.cotangents)
        differentiate(attempt, TorchBackend())
        yield Drawn(test, case, attempt, rules, frozenset(mode.called))


def report(results: list[Result]) -> None:
    survivors = [item for item in results if not item.test]
    for item in survivors:
        mutant = item.mutant
        sys.stdout.write(
            f"{mutant.operator}  {mutant.overload}  {mutant.changed[1]}:{mutant.line}  {mutant.before} -> "
            f"{mutant.after}  ({item.called} cases)\n"
        )
    killed = len(results) - len(survivors)
    uncalled = sum(not item.called for item in survivors)
    sys.stdout.write(
        f"{killed} of {len(results)} mutants found ({100 * killed / len(results):.1f} %), over "
        f"{len({item.mutant.operator for item in results})} operators; {uncalled} of the others answer an overload "
        "that no case calls\n"
    )
