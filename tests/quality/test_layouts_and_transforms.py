"""Sparse results are compared, and blamed by float64; nested tensors and torch.func are refused in one sentence."""

from __future__ import annotations

import pytest

from ci_autotest import random_tensor, torch
from ci_autotest.errors import AuthorError
from tests.engine import run_test, substitute


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


REFUSED = {
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


@pytest.mark.parametrize(("body", "said"), REFUSED.values(), ids=REFUSED)
def test_run_test__transform_or_nested_tensor__is_refused_in_one_sentence(body, said):
    with pytest.raises(AuthorError) as caught:
        run_test(body, substitute(relu=lambda x: x), 1)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)
