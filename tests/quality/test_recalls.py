"""Repeats: the calls of a case once more, on the same inputs; a repeat whose backward pass raises is a difference."""

from __future__ import annotations

from typing import Any

import pytest
import torch as real  # noqa: TC002 - as in the bodies

from ci_autotest import random_tensor, torch
from ci_autotest.alignment.cases import Contender, differentiate
from ci_autotest.alignment.recalls import repeated
from ci_autotest.backends.eager.backend import TorchBackend
from tests.engine import RULES, record, substitute


def several() -> Any:
    values, _ = torch.max(random_tensor(ndim=2, dim0=3, dim1=4), dim=0)
    return values.exp()


def one() -> Any:
    return torch.sigmoid(random_tensor(ndim=2, dim0=3, dim1=4))


def with_late_input() -> Any:
    y = torch.sigmoid(random_tensor(ndim=2, dim0=3, dim1=4))
    return y * random_tensor(ndim=2, dim0=3, dim1=4)  # the repeat begins behind this input


def with_kept_graph() -> Any:
    kept: dict[int, real.Tensor] = {}

    def sigmoid(x: real.Tensor) -> real.Tensor:
        return kept.setdefault(id(x), x.sigmoid())

    return sigmoid


def repeat(body: Any, backend: Any) -> Any:
    attempt = record(body)
    differentiate(attempt, TorchBackend())
    trace = backend.run(attempt.program, attempt.sources)
    backend.backward(attempt.program, trace, attempt.cotangents)
    return repeated(attempt, trace, Contender(backend, RULES))


@pytest.mark.parametrize("body", [several, one, with_late_input])
def test_repeated__right_kernel__is_the_same(body: Any):
    assert repeat(body, TorchBackend()) is None


def test_repeated__backward_pass_goes_through_a_graph_that_is_freed__is_a_difference():
    verdict = repeat(one, substitute(sigmoid=with_kept_graph()))
    assert (verdict.outcome, verdict.kind) == ("misaligned", "stateful")
    assert "a second time" in verdict.misalignment.detail
