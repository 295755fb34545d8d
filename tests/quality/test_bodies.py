"""Sixty bodies: each is recorded, replayed on a second backend, printed as code of the same bits, and saved as JSON."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from ci_autotest.alignment.cases import differentiate, refusal_of
from ci_autotest.alignment.recordings import to_live, to_recording
from ci_autotest.alignment.verdict import live_of
from ci_autotest.backends.eager.backend import TorchBackend
from ci_autotest.backends.fx.backend import FxBackend
from ci_autotest.program.codegen import function_text, inputs, names, setup_lines
from ci_autotest.program.ir import PLACEHOLDER, output_refs
from ci_autotest.program.note import Note
from ci_autotest.program.serialize import decode, encode_program, encode_tensors
from ci_autotest.values.case import ATTEMPTS_PER_CASE
from tests.engine import judged, record, substitute
from tests.quality.bodies import BODIES

BACKEND = TorchBackend()
#: Bodies that a graph of torch.fx cannot hold.
NOT_IN_FX = {"hook_on_a_gradient": ("unsupported", "NotImplementedError: torch.fx has no hooks")}
ALL = list(BODIES)


def recorded(name: str) -> Any:
    """Return the first attempt at case 0 that the reference accepts."""
    for number in range(ATTEMPTS_PER_CASE):
        attempt = record(BODIES[name], number=number, test=name)
        if attempt.refused is None:
            return attempt
    pytest.fail(f"{name}: the reference rejects every attempt: {refusal_of(attempt)}")


def same(left: Any, right: Any) -> bool:
    if isinstance(right, torch.Tensor):
        return left.dtype is right.dtype and left.shape == right.shape and torch.equal(
            torch.view_as_real(left).nan_to_num() if left.is_complex() else left.nan_to_num(),
            torch.view_as_real(right).nan_to_num() if right.is_complex() else right.nan_to_num(),
        )  # fmt: skip
    return bool(left == right)


def test_bodies__are__sixty_or_more():
    assert len(BODIES) >= 60


def test_bodies__gradients__are_defined_on_the_reference():
    undefined = {}
    for name in BODIES:
        attempt = recorded(name)
        differentiate(attempt, BACKEND)
        if attempt.trace.backward_failure is not None:
            undefined[name] = attempt.trace.backward_failure
    assert undefined == {}


@pytest.mark.parametrize("name", ALL)
def test_body__replayed_by_torch__is_aligned(name: str):
    assert judged(recorded(name), BACKEND).verdict.outcome == "aligned"


@pytest.mark.parametrize("name", ALL)
def test_body__replayed_as_a_graph_of_torch_fx__is_aligned(name: str):
    verdict = judged(recorded(name), FxBackend("")).verdict
    assert (verdict.outcome, verdict.oracle) == NOT_IN_FX.get(name, ("aligned", "")), verdict


def test_body__with_a_hook__is_aligned_on_kernels():
    kernels = substitute(mul=lambda left, right: torch.Tensor.mul(left, right))
    assert judged(recorded("hook_on_a_gradient"), kernels).verdict.outcome == "aligned"


@pytest.mark.parametrize("name", ALL)
def test_body__printed__is_code_that_gives_the_same_bits(name: str):
    attempt = recorded(name)
    program = attempt.program
    named = names(program)
    first = BACKEND.run(program, attempt.sources)
    scope: dict[str, Any] = {"torch": torch, "device": torch.device("cpu")}
    binding = BACKEND.steps.binding(attempt.sources)
    scope |= {named[i]: binding.placeholder(step) for i, step in enumerate(program.steps) if step.op == PLACEHOLDER}
    exec("\n".join([*setup_lines(program), function_text(program)]), scope)  # noqa: S102 - the printed text, which must run
    outputs = scope["program"](*[scope[name] for name, _ in inputs(program)])
    expected = [first.values[ref.index] for ref in output_refs(program)]
    assert len(outputs) == len(expected) > 0
    assert all(same(left, right) for left, right in zip(outputs, expected, strict=True)), function_text(program)


@pytest.mark.parametrize("name", ALL)
def test_body__saved_and_read__is_the_same_program(name: str):
    recording = to_recording(live_of(recorded(name)), Note(test=name))
    again = decode(encode_program(recording), encode_tensors(recording))
    assert again == recording
    assert to_live(again).program == recording.program
