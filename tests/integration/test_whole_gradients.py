"""Gradients of a body that is run as a whole: leaves and parameters only, and those are compared."""

from __future__ import annotations

import pytest
import torch as real

from ci_autotest import random_tensor, torch
from ci_autotest.backends.compilers.torch_compile import CompileBackend
from ci_autotest.program.ir import PLACEHOLDER
from tests.engine import judged, record

EAGER = {"backend": "aot_eager"}


def one_output_feeds_another():
    c = random_tensor(ndim=1, dim0=3) * 2
    return c, torch.tanh(c)


@pytest.mark.heavy
def test_backward__output_made_into_another__is_no_false_alarm():
    attempt = record(one_output_feeds_another)
    assert judged(attempt, CompileBackend(EAGER)).verdict.outcome == "aligned"


def test_backward__of_a_whole__holds_leaves_alone():
    attempt = record(one_output_feeds_another)
    backend = CompileBackend(EAGER)
    trace = backend.run(attempt.program, attempt.sources)
    backend.backward(attempt.program, trace, attempt.cotangents)
    assert [attempt.program.steps[key].op for key in trace.gradients] == [PLACEHOLDER]


def test_backward__leaf_whose_gradient_is_wrong__is_found():
    class Wrong(CompileBackend):
        def backward(self, program, trace, cotangents):
            super().backward(program, trace, cotangents)
            trace.gradients = {key: value * real.tensor(1.01) for key, value in trace.gradients.items()}

    verdict = judged(record(one_output_feeds_another), Wrong(EAGER)).verdict
    assert (verdict.outcome, verdict.kind) == ("misaligned", "gradient")
