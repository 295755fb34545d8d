"""Arrays of numpy: a value that leaves the recording is compared, an array that enters it is an input."""

from __future__ import annotations

import numpy as np
import pytest
import torch as real

from ci_autotest import nothing, oneof, random_device, random_tensor, torch
from ci_autotest.alignment.cases import refusal_of
from ci_autotest.alignment.recordings import to_recording
from ci_autotest.alignment.verdict import live_of
from ci_autotest.backends.eager.backend import TorchBackend
from ci_autotest.backends.fx.backend import FxBackend
from ci_autotest.program.codegen import body_lines
from ci_autotest.program.serialize import decode, encode_program, encode_tensors
from tests.engine import Rules, judged, record, substitute

BITWISE = Rules(strictness="bitwise")


def x(**how):
    return random_tensor(2, 2, 3, **how)


def there_and_back():
    value = x()
    summed = np.cumsum(value.detach().numpy(), 1)
    return value * torch.from_numpy(summed)


def read_by_numpy():
    value = x(requires_grad=False)
    assert np.asarray(value).shape == (2, 3)
    assert np.asarray(value, dtype=np.float64).dtype == np.float64
    return value + float(np.max(value.numpy()))


def forced():
    return x() * float(x().numpy(force=True).sum())


def written_later():
    value = x(requires_grad=False).clone()
    array = value.numpy()
    before = array.copy()
    value.mul_(2)
    return value + torch.from_numpy(array - before)


BODIES = [there_and_back, read_by_numpy, forced, written_later]


@pytest.mark.parametrize("body", BODIES)
def test_numpy__replayed__is_aligned_bit_by_bit_and_saved(body):
    attempt = record(body)
    recording = to_recording(live_of(attempt))
    assert decode(encode_program(recording), encode_tensors(recording)) == recording
    assert judged(attempt, TorchBackend(), BITWISE).verdict.outcome == "aligned"


def test_numpy__as_one_graph__is_aligned():
    assert judged(record(there_and_back), FxBackend("")).verdict.outcome == "aligned"


def test_numpy__recorded__is_a_step_and_its_array_an_input():
    attempt = record(there_and_back)
    assert body_lines(attempt.program) == ["detach = x.detach()", "array = detach.numpy()", "mul = x * captured"]
    assert real.equal(attempt.sources["t1"], attempt.sources["t0"].cumsum(1))


def test_numpy__later_write_to_the_tensor__is_seen_through_the_array():
    attempt = record(written_later)
    assert real.equal(attempt.sources["t1"], attempt.sources["t0"])


@pytest.mark.parametrize(
    ("wrong", "kind"),
    [
        (lambda array: array * np.float32(1.01), "value"),
        (lambda array: array.astype(np.float64), "dtype"),
        (lambda array: array[:1], "shape"),
        (real.from_numpy, "metadata"),
    ],
    ids=["elements", "dtype", "shape", "no array"],
)
def test_numpy__wrong_on_a_candidate__is_found(wrong, kind):
    candidate = substitute(numpy=lambda tensor: wrong(real.Tensor.numpy(tensor)))
    judgement = judged(record(there_and_back), candidate)
    verdict, recording = judgement.verdict, to_recording(judgement.live)
    assert decode(encode_program(recording), encode_tensors(recording)) == recording
    assert (verdict.outcome, verdict.operator, verdict.kind) == ("misaligned", "torch.Tensor.numpy", kind)


def test_numpy__of_what_requires_grad__is_refused_by_the_reference():
    attempt = record(lambda: x() * float(x().numpy()[0, 0]))
    assert attempt.refused is not None
    assert "detach().numpy()" in refusal_of(attempt)


@pytest.mark.parametrize(
    ("make", "requires_grad"),
    [
        (torch.from_numpy, False),
        (torch.tensor, False),
        (torch.as_tensor, False),
        (torch.asarray, False),
        (lambda array: torch.tensor(array, requires_grad=True), True),
        (lambda array: torch.tensor(array, dtype=torch.float32), False),
    ],
    ids=["from_numpy", "tensor", "as_tensor", "asarray", "that requires grad", "with a dtype"],
)
def test_array__made_a_tensor__is_an_input(make, requires_grad):
    array = np.arange(3, dtype=np.float32)
    attempt = record(lambda: x() * make(array))
    assert attempt.sources["t1"].tolist() == [0, 1, 2]
    assert attempt.trace.values[1].requires_grad is requires_grad
    assert judged(attempt, TorchBackend(), BITWISE).verdict.outcome == "aligned"


def test_from_numpy__outside_a_test__is_torchs_own():
    array = np.ones(3)
    tensor = torch.from_numpy(array)
    array[0] = 5
    assert tensor.tolist() == [5, 1, 1]


def add_slightly_off(left, right):
    return real.Tensor.add(left, right) * (1 + 2e-7)


def asked(how):
    def body():
        value = torch.add(x(), 1.0)
        return value * how(value.detach().sum())

    return body


@pytest.mark.parametrize("how", [float, lambda v: v.item(), lambda v: v.tolist()], ids=["float", "item", "tolist"])
def test_number__of_a_tensor_within_tolerance__is_within_tolerance_itself(how):
    assert judged(record(asked(how)), substitute(add=add_slightly_off)).verdict.outcome == "aligned"


def listed():
    value = x(requires_grad=False)
    found = (value * 2).tolist()
    assert isinstance(found, list)
    assert isinstance(found[0], list)
    return value + found[1][2]


def test_tolist__is_a_list_whose_numbers_are_compared():
    assert judged(record(listed), TorchBackend(), BITWISE).verdict.outcome == "aligned"
    wrong = substitute(tolist=lambda tensor: [[1.01 * item for item in row] for row in real.Tensor.tolist(tensor)])
    verdict = judged(record(listed), wrong).verdict
    assert (verdict.outcome, verdict.operator, verdict.kind) == ("misaligned", "torch.Tensor.tolist", "value")


def test_number__wrong_on_a_candidate__is_found():
    verdict = judged(record(asked(lambda v: v.item())), substitute(item=lambda v: real.Tensor.item(v) * 1.01)).verdict
    assert (verdict.outcome, verdict.operator, verdict.kind) == ("misaligned", "torch.Tensor.item", "value")


def test_tensor__of_an_array_with_drawn_arguments__draws_them_and_moves_the_input():
    def body():
        given = {"dtype": oneof(real.float64), "device": random_device(), "requires_grad": nothing()}
        return torch.tensor(np.ones((2, 3), np.float32), **given) * 2

    attempt = record(body)
    assert body_lines(attempt.program) in (
        ['to = captured.to("cpu")', "mul = to * 2"],
        ["to = captured.to(device)", "mul = to * 2"],
    )
    assert attempt.trace.values[-2].dtype == real.float64
