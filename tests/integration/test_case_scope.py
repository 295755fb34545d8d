"""The scope of a candidate, asked of each case, and what runs without gradients: it is compared as surely as before."""

from __future__ import annotations

import pytest
import torch as real

from ci_autotest import random_tensor, torch
from ci_autotest.alignment.cases import Contender, differentiate, judge_refusal
from ci_autotest.alignment.fast_path import is_surely_aligned
from ci_autotest.backends.case_scope import CaseScope
from ci_autotest.backends.compilers.torch_compile import CompileBackend
from ci_autotest.backends.eager.backend import TorchBackend
from ci_autotest.backends.protocol import run_backward, run_forward
from tests.engine import RULES, record, substitute

FORWARD_ONLY = CaseScope(run_mode="forward_only")


def x(**how):
    return random_tensor(2, dim0=3, dim1=3, **how)


def chain():
    return torch.nn.Linear(3, 2)(torch.exp(x()).t() * 2)


def untrained(backend):
    backend.case_scope = FORWARD_ONLY
    return backend


@pytest.mark.parametrize(
    "backend",
    [TorchBackend(is_candidate=True), CompileBackend({"backend": "aot_eager"}, how="forward_only")],
    ids=["torch", "compiled"],
)
def test_surely_aligned__without_gradients__is_as_sure_as_with_them(backend):
    attempt = record(chain)
    differentiate(attempt, TorchBackend())
    own = untrained(backend).adapted(attempt)

    trace = run_forward(backend, own)
    run_backward(backend, own, trace)

    assert (trace.has_flags, trace.has_backward, trace.gradients) == (False, False, {})
    assert is_surely_aligned(attempt.program, trace, attempt.trace, RULES)


def test_surely_aligned__wrong_value_without_gradients__is_not_sure():
    attempt = record(chain)
    backend = untrained(substitute(exp=lambda value: real.exp(value) * 1.01))

    trace = run_forward(backend, backend.adapted(attempt))

    assert not is_surely_aligned(attempt.program, trace, attempt.trace, RULES)


def written_leaf():
    return x().add_(1)


def shapes_that_do_not_fit():
    return torch.mm(x(), random_tensor(2, dim0=2, dim1=3))


@pytest.mark.parametrize(("body", "outcome"), [(written_leaf, None), (shapes_that_do_not_fit, "aligned")])
def test_refusal__only_because_of_gradients__is_not_asked_of_a_candidate_without_them(body, outcome):
    attempt = record(body)

    judged = judge_refusal(attempt, Contender(untrained(TorchBackend(is_candidate=True)), RULES))

    assert (judged and judged.verdict.outcome) == outcome


def flags():
    y = x() * 2
    return y.sin(), y.requires_grad


def backward():
    x().sum().backward()


def factorized():
    return torch.linalg.qr(x())


def transposed():
    return torch.exp(x().t())


def halved():
    return x().to(torch.float16) * 2


CONTIGUOUS, SINGLE = CaseScope(layouts=frozenset({"contiguous"})), CaseScope(dtypes=frozenset({"float32"}))
OUTSIDE = {
    "a flag is read": (flags, FORWARD_ONLY, "the body asks for a gradient"),
    "a backward pass": (backward, FORWARD_ONLY, "the body asks for a gradient"),
    "a call gets another layout": (transposed, CONTIGUOUS, "a call gets a tensor that is not contiguous"),
    "a value in between": (halved, SINGLE, "dtype float16; the candidate's row has dtypes: float32"),
    "a result has another layout": (factorized, CONTIGUOUS, ""),
    "whole numbers beside": (lambda: torch.sort(x()), SINGLE, ""),
    "only whole numbers": (lambda: x(dtype=real.int64, low=0, high=3) + 1, SINGLE, "dtype int64"),
}


@pytest.mark.parametrize(("body", "scope", "outside"), OUTSIDE.values(), ids=OUTSIDE)
def test_refusal__of_a_case__names_what_is_outside(body, scope, outside):
    found = scope.refusal(record(body, profile="ordinary"))

    assert (found is not None) is bool(outside)
    assert found is None or found.detail.startswith(outside)


@pytest.mark.parametrize(
    ("body", "scope", "is_outside"),
    [(backward, FORWARD_ONLY, True), (chain, FORWARD_ONLY, False), (lambda: x(dtype=real.float64) * 2, SINGLE, True),
     (lambda: x(dtype=real.int64, low=0, high=3) + 1, SINGLE, False)],
    ids=["a gradient", "values", "another dtype", "whole numbers, as a part of a body"],
)  # fmt: skip
def test_refusal__of_a_saved_program__is_by_its_inputs(body, scope, is_outside):
    assert (scope.refusal_of_program(record(body, profile="ordinary").program) is not None) is is_outside
