"""What a kernel's error says decides nothing: our own phrases, torch's and frameworks' end alike with any other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch as real

from ci_autotest import random_tensor, torch
from ci_autotest.alignment.differences import Examination
from ci_autotest.alignment.verdict import live_of
from ci_autotest.backends.eager.backend import TorchBackend
from ci_autotest.backends.trace import Raised
from ci_autotest.errors import UnsupportedReason
from tests.engine import RULES, record, substitute, tried
from tests.verdict_samples import PLACES

if TYPE_CHECKING:
    from ci_autotest.values.verdict import Verdict

#: Autograd's refusals, word by word. Source: the messages of PyTorch 2.13.
MISUSES = (
    "one of the variables needed for gradient computation has been modified by an inplace operation",
    "a leaf Variable that requires grad is being used in an in-place operation.",
    "a view of a leaf Variable that requires grad is being used in an in-place operation.",
    "leaf variable has been moved into the graph interior",
    "Trying to backward through the graph a second time",
    "element 0 of tensors does not require grad and does not have a grad_fn",
)
WORDS = (
    "an ordinary error", "", "\n", "x: y: z", *MISUSES, *dict.fromkeys(text for *_, text in PLACES),
    *(reason.value for reason in UnsupportedReason),
    "Could not run 'aten::exp' with arguments from the 'CPU' backend.", "\"exp\" not implemented for 'Half'",
    "exp is not written yet", "device 'cpu' has no kernel of aten::exp",
    "no call was replaced: torch.exp did not occur; operators called: none", "float64 was not asked", "made no progress for 60 s",
    "Inference tensors", "NotImplementedError: no", "is not supported", "the reference rejects this input",
)  # fmt: skip


def body() -> Any:
    return torch.exp(random_tensor(2))


def in_forward(words: str) -> Any:
    def exp(x: Any) -> Any:
        raise RuntimeError(words)

    return exp


def in_backward(words: str) -> Any:
    class Exp(real.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return real.Tensor.exp(x)

        @staticmethod
        def backward(ctx: Any, gradient: Any) -> Any:
            raise RuntimeError(words)

    return Exp.apply


def decided(verdict: Verdict) -> tuple[object, ...]:
    """Return all of a verdict that anything is decided by."""
    found = verdict.misalignment
    assert found is not None
    return (
        verdict.outcome, verdict.kind, verdict.operator, verdict.blame, verdict.reason, verdict.step,
        verdict.accumulated, found.at, found.candidate, found.reference,
    )  # fmt: skip


@pytest.mark.parametrize("raising", [in_forward, in_backward])
def test_verdict__kernel_raises_in_any_words__is_the_same(raising: Any):
    said = {words: decided(tried(body, substitute(exp=raising(words)))) for words in WORDS}
    expected = said["an ordinary error"]
    assert expected[:4] == ("misaligned", "error", "torch.exp", "candidate")
    assert {words: found for words, found in said.items() if found != expected} == {}


def overwritten() -> Any:
    y = torch.exp(random_tensor(2))
    z = y.sum()
    y.mul_(2)
    return z + y.sum()


def kinds_where_the_reference_says(body: Any, words: str) -> list[str]:
    """Return what is told of a candidate that goes back where the reference refuses in some words."""
    live = live_of(record(body))
    examination = Examination(live.program, live.sources, live.cotangents, RULES)
    reference, candidate = examination.run(TorchBackend()), examination.run(TorchBackend())
    reference.backward_failure = Raised("RuntimeError", words)
    candidate.backward_failure, candidate.gradients = None, {0: real.ones(1)}
    return [item.kind for item in examination.differences(candidate, reference)]


@pytest.mark.parametrize("words", WORDS)
def test_misuse__reference_refuses_in_any_words__is_leniency_where_a_needed_value_was_overwritten(words: str):
    assert kinds_where_the_reference_says(body, words) == []
    assert kinds_where_the_reference_says(overwritten, words) == ["leniency"]
