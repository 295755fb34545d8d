"""The bugs of record: a table without doubles, and kernels that are found or right beside their bug."""

import pytest
import torch

from benchmarks.record.bugs import bugs
from benchmarks.record.kernels import arguments, layouts, special_values
from benchmarks.record.reasons import REASONS, reason_of
from ci_autotest.alignment.cases import Contender, accept, differentiate, try_case
from ci_autotest.alignment.tolerance_rules import rules_for
from ci_autotest.backends.substitute import SubstituteBackend
from ci_autotest.backends.torch_eager import TorchBackend
from ci_autotest.record.declaration import declaration_of
from ci_autotest.suite import comparison
from ci_autotest.values.case import test_key as key_of
from tests.engine import attempts


def test_bugs__a_table__has_no_doubles():
    table = bugs()
    assert len(table) >= 60
    assert len({(bug.tracker, bug.number) for bug in table}) == len({bug.name for bug in table}) == len(table)
    assert all(bug.number > 0 and bug.tracker.count("/") == 1 and bug.description.endswith(".") for bug in table)


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
