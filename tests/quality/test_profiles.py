"""Profiles: each finds a fault that no other profile and no ordinary case finds, and a test may ask for some of them."""

from __future__ import annotations

from typing import Any

import pytest
import torch as real

from ci_autotest import random_tensor, torch
from ci_autotest.alignment.recordings import to_live, to_recording
from ci_autotest.alignment.verdict import live_of
from ci_autotest.backends.eager.backend import TorchBackend
from ci_autotest.program.serialize import decode, encode_program, encode_tensors
from ci_autotest.record.draw.profiles import PROFILES
from tests.engine import judged, record, substitute

CASES = 64
#: Where each fault strikes.
ONLY = {
    "zero_dim": lambda x: x.dim() == 0,
    "zero_size": lambda x: x.numel() == 0,
    "size_one": lambda x: x.dim() > 2 and x.numel() == 1,
    "boundary": lambda x: max(x.shape, default=0) > 30,
    "non_contiguous": lambda x: not x.is_contiguous(),
    "zeros_and_ties": lambda x: x.numel() > 1 and bool((x == 0).any() and x.isfinite().all()),
    "large": lambda x: bool((x.abs() > 1000).any() and x.isfinite().all()),
    "special": lambda x: bool(x.isnan().any()),
}


def body():
    return torch.neg(random_tensor())


def found_by(fault: str, profiles: tuple[str, ...]) -> bool:
    """Say whether any of a test's cases shows that ``neg`` is wrong where ``fault`` strikes."""
    strikes = ONLY[fault]
    candidate = substitute(neg=lambda x: (x.sum() if x.numel() == 0 else x + 1) if strikes(x) else real.neg(x))
    attempts = (record(body, case, test="neg", profiles=profiles) for case in range(CASES))
    return any(judged(attempt, candidate).verdict.outcome == "misaligned" for attempt in attempts)


def test_profiles__each_has_a_fault():
    assert set(ONLY) == set(PROFILES)


@pytest.mark.parametrize("profile", PROFILES)
def test_profile__fault_of_its_own__is_found_by_it_and_by_no_other(profile):
    others = tuple(name for name in PROFILES if name != profile)
    assert (found_by(profile, (profile,)), found_by(profile, others)) == (True, False)


def test_profiles__none_asked_for__finds_what_is_wrong_everywhere_and_nothing_else():
    assert not any(found_by(profile, ()) for profile in PROFILES)


class LiesInOrder(real.autograd.Function):
    """Exp whose backward reads the gradient as if it lay in order, as a kernel that is handed its address does."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        result = real.Tensor.exp(x)
        ctx.save_for_backward(result)
        return result

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        (result,) = ctx.saved_tensors
        lying = real.empty_strided(gradient.shape, gradient.stride())
        in_order = gradient.as_strided((gradient.numel(),), (1,)) if lying.numel() else gradient
        return result * in_order.reshape(gradient.shape)


def rectangle() -> Any:
    return torch.exp(random_tensor(2, 3, 4))


def test_non_contiguous__gradient_that_is_put_in__is_so_too_and_finds_who_reads_it_in_order():
    attempt = record(rectangle, profile="non_contiguous")
    assert (attempt.profile, attempt.cotangents[0].stride()) == ("non_contiguous", (1, 3))
    verdict = judged(attempt, substitute(exp=LiesInOrder.apply)).verdict
    assert (verdict.outcome, verdict.kind, verdict.operator, verdict.accumulated) == (
        "misaligned", "gradient", "torch.exp", False,
    )  # fmt: skip
    for profile in ("ordinary", "special"):
        right = record(rectangle, profile=profile)
        assert judged(right, substitute(exp=LiesInOrder.apply)).verdict.outcome == "aligned"


@pytest.mark.parametrize(
    ("number", "strides"),
    [
        pytest.param(0, (1, 3), id="transposed"),
        pytest.param(1, (8, 2), id="sliced"),
        pytest.param(2, (1, 0), id="expanded"),
    ],
)
def test_non_contiguous__gradient_that_is_put_in__keeps_its_layout_in_a_file_and_in_a_run(number, strides):
    attempt = record(rectangle, number=number, profile="non_contiguous")
    recording = to_recording(live_of(attempt))
    again = to_live(decode(encode_program(recording), encode_tensors(recording)))
    assert (attempt.cotangents[0].stride(), again.cotangents[0].stride()) == (strides, strides)
    assert real.equal(again.cotangents[0], attempt.cotangents[0])
    backend = TorchBackend()
    trace = backend.run(attempt.program, attempt.sources)
    backend.backward(attempt.program, trace, attempt.cotangents)
    assert trace.cotangents[0].stride() == strides
    ordinary = record(rectangle, number=number, profile="ordinary").cotangents[0]
    expected = ordinary[..., :1].expand(ordinary.shape) if 0 in strides else ordinary
    assert real.equal(expected, attempt.cotangents[0])
