"""Operators of libraries that do not do what they declare to torch are found; right ones are not accused."""

from __future__ import annotations

import pytest
import torch as real

from ci_autotest import random_tensor, torch
from ci_autotest.alignment.cases import Contender
from ci_autotest.alignment.verdict import judge_program, live_of
from ci_autotest.backends.eager.backend import TorchBackend
from ci_autotest.backends.operators.identity import operator_of
from ci_autotest.backends.substitute.backend import SubstituteBackend
from ci_autotest.backends.substitute.operator_checks import OperatorCheckError, checked
from ci_autotest.values.kernel_scope import KernelScope
from ci_autotest.values.schedule import RowName, asks
from tests.engine import RULES, record
from tests.quality.library_operators import RIGHT, WRONG


def judged(operator, *, case=0, scope=None):
    backend = SubstituteBackend({}, scope=scope or KernelScope())
    backend.functions = {operator_of("torch.exp"): operator}
    attempt = record(lambda: torch.exp(random_tensor(2)) + 1, case)
    sides = Contender(backend, RULES, checks_operators=True).beside(TorchBackend())
    return judge_program(live_of(attempt), sides)


@pytest.mark.parametrize(("operator", "words"), WRONG.values(), ids=WRONG)
def test_judge_program__operator_that_does_not_do_what_it_declares__is_found(operator, words):
    verdict = judged(operator).verdict
    found = verdict.misalignment
    assert (verdict.outcome, verdict.operator, verdict.blame) == ("misaligned", "torch.exp", "candidate")
    # Where an input changes, the comparison itself finds it; it is not hidden.
    expected = ("mutation", "") if "schema" in words else ("metadata", words)
    assert (verdict.kind, found.candidate.partition(":")[0] if verdict.kind == "metadata" else "") == expected


def test_checked__undeclared_mutation__is_an_error_of_the_call():
    operator, words = WRONG["mutation that its schema does not declare"]
    with pytest.raises(OperatorCheckError, match=f"{words}: Argument x is not defined as mutable but was mutated"):
        checked(operator, "test_schema")(real.ones(2))


@pytest.mark.parametrize("case", [0, 1, 4])
@pytest.mark.parametrize("operator", RIGHT.values(), ids=RIGHT)
def test_judge_program__right_operator__is_aligned(operator, case):
    assert judged(operator, case=case).verdict.outcome == "aligned"


def test_judge_program__forward_only_operator__is_asked_for_no_gradient():
    operator, _ = WRONG["no gradient"]
    found = judged(operator, scope=KernelScope(forward_only=("torch.exp",)))
    assert found.verdict.outcome == "aligned"


def test_asks__default_run__checks_operators_in_ordinary_ones_without_bands():
    cases = [case for case in range(1000) if asks(RowName.OPERATORS, case)]
    assert (cases, [case for case in cases if asks(RowName.GUARD, case)]) == ([0, 6, 12], [])
