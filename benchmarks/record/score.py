"""The score: which bugs of record the shipped suite finds, in the cases that a run of it has."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, NamedTuple

from ci_autotest.alignment.cases import Contender, accept, differentiate, try_case
from ci_autotest.alignment.tolerance_rules import rules_for
from ci_autotest.backends.eager.backend import TorchBackend
from ci_autotest.backends.operators.identity import operator_of
from ci_autotest.backends.substitute.backend import Replacing, SubstituteBackend
from ci_autotest.discovery import SUITE, families
from ci_autotest.record.declaration import declaration_of
from ci_autotest.values.case import test_key
from ci_autotest.values.finding import TOLERATED_BLAMES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.record.bugs import Bug
    from ci_autotest.record.attempt import Attempts
    from ci_autotest.record.declaration import Declaration


class Found(NamedTuple):
    """What the suite says of one bug.

    Attributes:
        bug: The bug.
        called: Number of cases that call its operator.
        case: The first case that accuses the kernel, as ``family::test[case]``; "" if none does.
        kind: Kind of that finding.
        profile: Profile of that case.
        operator: Operator that it names.
    """

    bug: Bug
    called: int
    case: str = ""
    kind: str = ""
    profile: str = ""
    operator: str = ""

    @property
    def is_right(self) -> bool:
        """Whether the finding names the operator that is wrong; a finding always blames the kernel's side."""
        return self.operator == operator_of(self.bug.operator)


class _Drawn(NamedTuple):
    """A case of the suite, with the operators that it calls."""

    name: str
    attempt: Any
    rules: Any
    operators: frozenset[str]


def score(bugs: list[Bug], cases: int, seed: int, attempts: Attempts) -> list[Found]:
    """Run every kernel on the cases that call its operator, until one is misaligned."""
    wanted = {operator_of(bug.operator) for bug in bugs}
    drawn = [item for item in _drawn(cases, seed, attempts) if item.operators & wanted]
    return [
        _first_finding(bug, [item for item in drawn if operator_of(bug.operator) in item.operators]) for bug in bugs
    ]


def _first_finding(bug: Bug, calls: list[_Drawn]) -> Found:
    """Return the first finding of a kernel; the reference is torch."""
    candidate, reference = SubstituteBackend({bug.operator: bug.path}), TorchBackend()
    for item in calls:
        verdict = try_case(item.attempt, Contender(candidate, item.rules), reference).verdict
        if verdict.outcome == "misaligned" and verdict.blame not in TOLERATED_BLAMES:
            kind = str(verdict.kind)
            return Found(bug, len(calls), item.name, kind, item.attempt.profile, verdict.operator)
    return Found(bug, len(calls))


def _drawn(cases: int, seed: int, attempts: Attempts) -> Iterator[_Drawn]:
    for family in families():
        module = importlib.import_module(f"ci_autotest.suite.{family}")
        for name, value in vars(module).items():
            declaration = declaration_of(value)
            if declaration is not None and not declaration.raises:
                yield from _cases_of(declaration, (family, name), (cases, seed), attempts)


def _cases_of(
    declaration: Declaration, name: tuple[str, str], drawn: tuple[int, int], attempts: Attempts
) -> Iterator[_Drawn]:
    test = f"{SUITE}/{name[0]}::{name[1]}"
    rules = rules_for((), "tolerance", "record", declaration)
    cases, seed = drawn
    key = test_key(seed, test)

    def draw(case: int, number: int) -> Any:
        return attempts.attempt(declaration, declaration.body, (key, test, case, number))

    for case in range(cases):
        attempt = accept(case, draw, {}, lambda _case, _name, _number: None).attempt
        if attempt is not None:
            mode = Replacing({})
            TorchBackend().run(attempt.program, attempt.sources, around=mode)
            differentiate(attempt, TorchBackend())
            yield _Drawn(f"{name[0]}::{name[1]}[{case}]", attempt, rules, frozenset(mode.seen))
