"""The bugs of record: a table without doubles, and kernels that are found or right beside their bug."""

from collections import Counter
from pathlib import Path
from typing import get_args

import pytest
import torch

from benchmarks.record.bugs import Part, bugs
from benchmarks.record.kernels import arguments, gradients, holdout, layouts, special_values
from benchmarks.record.reasons import REASONS, reason_of
from ci_autotest.alignment.cases import Contender, accept, differentiate, try_case
from ci_autotest.alignment.tolerance_rules import rules_for
from ci_autotest.backends.eager.backend import TorchBackend
from ci_autotest.backends.substitute.backend import SubstituteBackend
from ci_autotest.record.declaration import declaration_of
from ci_autotest.suite import comparison
from ci_autotest.values.case import test_key as key_of
from tests.engine import attempts

README = Path(__file__).parents[2] / "benchmarks" / "README.md"


def test_bugs__a_table__has_no_doubles():
    table = bugs()
    assert len(table) >= 60
    assert len({(bug.tracker, bug.number) for bug in table}) == len({bug.name for bug in table}) == len(table)
    assert all(bug.number > 0 and bug.tracker.count("/") == 1 and bug.description.endswith(".") for bug in table)


def test_readme__table_of_bugs__is_this_one():
    rows = [
        line.split(" | ") for line in README.read_text("utf-8").splitlines() if "/issues/" in line and line[:3] == "| `"
    ]
    shown = [(row[0].strip("| `"), row[1].partition("(")[2].rstrip(")"), row[3], row[4]) for row in rows]

    assert [row[:3] for row in shown] == [(bug.name, bug.link, bug.description) for bug in bugs()]
    missed = {name: result for name, _, _, result in shown if "missed" in result}
    assert missed == {name: f"missed: {reason} |" for name, reason in REASONS.items()}


def test_readme__counts_of_bugs__are_those_of_the_table():
    text = " ".join(README.read_text("utf-8").split())
    parts = {part: [bug.name for bug in bugs() if bug.part == part] for part in get_args(Part)}
    counts = []
    for names in parts.values():
        found = len([name for name in names if name not in REASONS])
        counts.append(f"{100 * found / len(names):.1f} % ({found})")
    seen, held_out, sample, fresh = map(len, parts.values())

    assert f"has {len(bugs())} historical bugs of {len({bug.tracker for bug in bugs()})} public trackers" in text
    assert (
        f"| | the first {seen} | {held_out} held out | {sample} of a fresh sample | {fresh} of a fourth set |" in text
    )
    assert f"**{fresh} of a fourth set** (`fresh`)" in text
    assert f"chosen with the misses of the first three sets in view | {' | '.join(counts)} |" in text


@pytest.mark.parametrize("part", ["sample", "fresh"])
def test_sample__has_60_bugs_of_other_trackers_and_numbers(part):
    sample = [bug for bug in bugs() if bug.part == part]
    others = {(bug.tracker, bug.number) for bug in bugs() if bug.part != part}

    assert len(sample) >= 60
    assert not {(bug.tracker, bug.number) for bug in sample} & others
    assert max(Counter(bug.operator for bug in sample).values()) == 2


def test_reasons__are_of_bugs_in_the_table():
    assert set(REASONS) <= {bug.name for bug in bugs()}
    assert reason_of("another") == "unexplained"


def test_bug__a_case_of_the_suite__finds_it():
    bug = next(bug for bug in bugs() if bug.name == "signbit_of_zero")
    declaration = declaration_of(comparison.signbit)
    key, drawer = key_of(0, "builtin:suite/comparison::signbit"), attempts()
    outcomes = set()
    for case in range(20):
        attempt = accept(
            case,
            lambda case, number: drawer.attempt(declaration, declaration.body, (key, "signbit", case, number)),
            {},
            lambda *_: None,
        ).attempt
        differentiate(attempt, TorchBackend())
        contender = Contender(SubstituteBackend({bug.operator: bug.path}), rules_for((), "tolerance", "c", declaration))
        verdict = try_case(attempt, contender, TorchBackend()).verdict
        outcomes.add((verdict.outcome, verdict.operator if verdict.outcome == "misaligned" else ""))
    assert outcomes == {("aligned", ""), ("misaligned", bug.operator)}


@pytest.mark.parametrize(
    ("kernel", "operator", "wrong", "right"),
    [
        (layouts.median_not_contiguous, torch.median, torch.arange(25.0).reshape(5, 5).diagonal(), torch.arange(5.0)),
        (
            special_values.nanmedian_of_negative_nan,
            torch.nanmedian,
            torch.tensor([1.0, -torch.nan, 2, 3]).neg().neg(),
            torch.arange(5.0),
        ),
        (arguments.flip_several, lambda x: torch.flip(x, (0, 1)), torch.ones(2, 3), torch.ones(3, 3)),
    ],
)
def test_kernel__is_right_beside_its_bug(kernel, operator, wrong, right):
    def called(x):
        return kernel(x, (0, 1)) if kernel is arguments.flip_several else kernel(x)

    assert torch.equal(called(right), operator(right))
    assert not torch.equal(called(wrong), operator(wrong))


def test_flip_of_oblong__example_of_its_issue__gives_what_the_issue_shows():
    example = torch.tensor([[1.0, 1, 1], [1, 0, 2]])

    assert torch.equal(holdout.flip_of_oblong(example, 1), torch.tensor([[1.0, 1], [0, 1]]))
    assert torch.equal(holdout.flip_of_oblong(example.mT, 1), example.mT.flip(1))


def test_i0_at_zero__example_of_its_issue__gives_what_the_issue_shows():
    x = torch.tensor([0.0, 1.0], requires_grad=True)
    (gradient,) = torch.autograd.grad(gradients.i0_at_zero(x).sum(), x)

    assert torch.equal(gradient, torch.tensor([1.0, float(torch.special.i1(torch.tensor(1.0)))]))
