"""Reads and writes out of bounds are found, in the right operator and in words; kernels within bounds are not accused."""

from __future__ import annotations

import pytest

from ci_autotest.alignment.cases import Contender
from ci_autotest.alignment.memory_guard import BAND
from ci_autotest.alignment.verdict import judge_program, live_of
from ci_autotest.backends.eager.backend import TorchBackend
from ci_autotest.backends.operators.identity import operator_of
from ci_autotest.backends.substitute.backend import SubstituteBackend
from ci_autotest.values.kernel_scope import KernelScope
from ci_autotest.values.schedule import RowName, asks
from tests.engine import RULES, record
from tests.quality.out_of_bounds import READS, RESULTS, RIGHT, WRITES
from tests.quality.right_kernels import TUNED


def judged(kernel, body=None, **how):
    """Return the verdict on one case with the guard on; a kernel by ctypes knows nothing of autograd."""
    backend = SubstituteBackend({}, scope=KernelScope(forward_only=(f"torch.{kernel.operator}",)))
    backend.functions = {operator_of(f"torch.{kernel.operator}"): kernel.function}
    attempt = record(body or kernel.body, **how)
    return judge_program(live_of(attempt), Contender(backend, RULES, has_guard=True).beside(TorchBackend())).verdict


def named(kernels):
    return pytest.mark.parametrize("kernel", kernels, ids=[kernel.name for kernel in kernels])


@named(RESULTS)
def test_judge_program__out_of_bounds_of_what_it_allocates__is_found_in_its_operator(kernel):
    verdict = judged(kernel)
    assert verdict.misalignment is not None
    assert (verdict.operator, verdict.kind) == (operator_of(f"torch.{kernel.operator}"), kernel.kind)
    assert kernel.words in f"{verdict.misalignment.candidate}; {verdict.misalignment.detail}"


@named(READS + WRITES)
def test_judge_program__out_of_bounds__is_found_in_its_operator(kernel):
    verdict = judged(kernel)
    assert verdict.misalignment is not None
    assert (verdict.operator, verdict.kind) == (operator_of(f"torch.{kernel.operator}"), kernel.kind)
    assert kernel.words in verdict.misalignment.detail


@named(RIGHT)
@pytest.mark.parametrize("case", range(6))
def test_judge_program__within_bounds__is_aligned(kernel, case):
    assert judged(kernel, case=case).outcome == "aligned"


@named(TUNED)
def test_judge_program__right_kernel_with_gradients__is_accused_of_nothing(kernel):
    backend = SubstituteBackend({})
    backend.functions = {operator_of(f"torch.{kernel.operator}"): kernel.kernel}
    for case in (2, 10):
        attempt = record(kernel.body, case)
        if attempt.refused is None:
            sides = Contender(backend, RULES, has_guard=True).beside(TorchBackend())
            assert judge_program(live_of(attempt), sides).verdict.outcome == "aligned"


def test_judge_program__kernel_that_is_wrong_within_bounds__is_not_said_to_read_beside_its_inputs():
    verdict = judged(RIGHT[0]._replace(function=lambda x: RIGHT[0].function(x) + 1))
    assert verdict.misalignment is not None
    assert (verdict.kind, verdict.misalignment.detail) == ("value", "")


def test_planted__out_of_bounds__are_twenty():
    assert len(READS) + len(WRITES) == 20


def test_asks__default_run__has_a_few_guarded_cases():
    assert [case for case in range(20) if asks(RowName.GUARD, case)] == [2, 10, 18]
    assert BAND % 64 == 0
