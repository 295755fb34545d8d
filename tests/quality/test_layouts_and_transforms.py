"""Sparse and float8 results are compared, and blamed by float64; nested tensors and torch.func are refused in one sentence."""

from __future__ import annotations

import pytest
import torch as real

from ci_autotest import random_tensor, torch
from ci_autotest.backends.framework.mapping.table import MappingTable
from ci_autotest.backends.framework.mapping.translation import translated
from ci_autotest.errors import AuthorError, UnsupportedError
from tests.engine import judged, record, run_test, substitute


def coo():
    return random_tensor(2, dim0=3, dim1=4).to_sparse()


def csr():
    return random_tensor(2, dim0=3, dim1=4, requires_grad=False).to_sparse_csr()


SPARSE = {
    "coo": (coo, "Tensor.to_sparse", lambda x: x.to_sparse()),
    "csr": (csr, "Tensor.to_sparse_csr", lambda x: x.to_sparse_csr()),
}


@pytest.mark.filterwarnings("ignore:Sparse")
@pytest.mark.parametrize(("body", "operator", "function"), SPARSE.values(), ids=SPARSE)
@pytest.mark.parametrize(("factor", "outcome"), [(1.0, "aligned"), (1.5, "misaligned")], ids=["right", "wrong"])
def test_run_test__sparse_result__is_compared(body, operator, function, factor, outcome):
    verdicts = run_test(body, substitute(**{operator: lambda x: function(x * factor)}), 4)
    assert outcome in {item.outcome for item in verdicts}
    assert {(item.operator, item.kind, item.blame) for item in verdicts if item.kind} == (
        set() if outcome == "aligned" else {(f"torch.{operator}", "value", "candidate")}
    )


FLOAT8 = (real.float8_e4m3fn, real.float8_e5m2)


def to_float32():
    return random_tensor(2, 3, 4).float()


def to_float8():
    return (random_tensor(2, 3, 4) * 4).to(real.float8_e4m3fn)


@pytest.mark.parametrize("dtype", FLOAT8, ids=str)
@pytest.mark.parametrize(("factor", "outcomes"), [(1.0, {"aligned"}), (1.5, {"misaligned"})])
def test_run_test__float8__is_drawn_in_each_profile_and_compared(dtype, factor, outcomes):
    attempts = [record(to_float32, case, dtypes=(str(dtype).removeprefix("torch."),)) for case in range(20)]
    verdicts = [
        judged(attempt, substitute(float=lambda x: x.to(real.float32) * factor)).verdict for attempt in attempts
    ]
    assert {attempt.trace.values[0].dtype for attempt in attempts} == {dtype}
    assert {attempt.profile for attempt in attempts} >= {"ordinary", "non_contiguous", "special", "large"}
    assert {verdict.outcome for verdict in verdicts} == outcomes


@pytest.mark.parametrize(("factor", "outcome"), [(1.0, "aligned"), (1 + 1e-7, "aligned"), (1.3, "misaligned")])
def test_run_test__float8_result__may_be_off_by_one_in_its_last_place(factor, outcome):
    backend = substitute(**{"Tensor.to": lambda x, dtype: (x * factor).to(dtype)})
    verdicts = run_test(to_float8, backend, 4)
    assert outcome in {verdict.outcome for verdict in verdicts}
    assert outcome == "misaligned" or {verdict.outcome for verdict in verdicts} == {"aligned"}


def test_translated__float8_for_another_framework__is_refused_in_one_sentence():
    table = MappingTable("paddle", "Paddle", "Paddle", like_torch=False, rows={})
    with pytest.raises(UnsupportedError, match="tensors of float8_e5m2 are not passed to"):
        translated(record(to_float32, dtypes=("float8_e5m2",)).program, table)


REFUSED = {
    "nested, plain": (lambda: real.nested.nested_tensor([random_tensor(1, dim0=3)]), "torch.nested is not recorded"),
    "nested, captured": (
        lambda: random_tensor(1, dim0=3) + real.nested.nested_tensor([real.ones(3)]),
        "is not recorded: pad the parts",
    ),
    "vmap, plain": (lambda: real.func.vmap(real.sin)(random_tensor(2)), "torch.func is not recorded: write the loop"),
    "grad, plain": (lambda: real.func.grad(lambda x: x.sum())(random_tensor(1)), "torch.func is not recorded"),
    "nested": (
        lambda: torch.nested.nested_tensor([random_tensor(1, dim0=3)]),
        "torch.nested.nested_tensor is not recorded",
    ),
    "vmap": (lambda: torch.func.vmap(lambda x: x * 2)(random_tensor(2)), "write the loop"),
    "grad": (lambda: torch.func.grad(lambda x: (x * x).sum())(random_tensor(1)), "torch.func.grad is not recorded"),
    "functional_call": (
        lambda: torch.func.functional_call(torch.nn.Linear(4, 3), {}, (random_tensor(2, dim1=4),)),
        "construct the module in the body and call it",
    ),
}


def test_functional_call__of_plain_torch__is_the_module_with_recorded_parameters():
    program = record(
        lambda: real.func.functional_call(
            real.nn.Linear(4, 3), {"weight": random_tensor(2, 3, 4)}, (random_tensor(2, dim1=4),)
        )
    ).program
    assert [step.target for step in program.body[:-1]] == ["t0", "t1", "t2", "torch.nn.functional.linear"]


@pytest.mark.parametrize(("body", "said"), REFUSED.values(), ids=REFUSED)
def test_run_test__transform_or_nested_tensor__is_refused_in_one_sentence(body, said):
    with pytest.raises(AuthorError) as caught:
        run_test(body, substitute(relu=lambda x: x), 1)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)
