"""The torch backend: where it puts data, what it sees, where it stops."""

from __future__ import annotations

import pytest
import torch as real

from ci_autotest import random_tensor, torch
from ci_autotest.backends.eager.backend import TorchBackend
from ci_autotest.backends.input_copies import place
from ci_autotest.backends.snapshots import observed
from ci_autotest.backends.torch_steps import TorchSteps
from ci_autotest.program.ir import CALL_FUNCTION, OUTPUT, PLACEHOLDER, Program, Ref, Step, TensorSpec
from tests.engine import record, substitute

TORCH = TorchBackend()
CPU = real.device("cpu")


def x(**how):
    return random_tensor(ndim=2, dim0=3, dim1=4, **how)


@pytest.mark.parametrize(
    ("shape", "strides", "offset", "expected"),
    [
        ((2, 3), (3, 1), 0, [[0, 1, 2], [3, 4, 5]]),
        ((3, 2), (1, 3), 0, [[0, 3], [1, 4], [2, 5]]),
        ((2,), (2,), 1, [1, 3]),
        ((2, 2), (0, 1), 4, [[4, 5], [4, 5]]),
        ((), (), 5, 5),
        ((0, 2), (2, 1), 0, []),
    ],
    ids=["contiguous", "transposed", "sliced", "expanded", "0-dim", "empty"],
)
def test_place__layout__is_the_specs(shape, strides, offset, expected):
    source = real.arange(6.0)
    spec = TensorSpec("float32", shape, strides, offset, 6 if 0 not in shape else 0, requires_grad=True)
    source = source[: spec.storage_size].reshape(shape) if spec.is_contiguous else source
    placed = place(source, spec, CPU)
    assert placed.detach().tolist() == expected
    assert (placed.shape, placed.stride()) == (shape, strides)
    assert placed.is_leaf
    assert placed.requires_grad


def test_place__twice__is_two_copies_aligned_alike():
    source = real.arange(99.0)[1:]  # its data begin 4 bytes off
    spec = TensorSpec("float32", (98,), (1,), 0, 98)
    placed = [place(source, spec, CPU) for _ in range(20)]
    placed[0].fill_(7)
    assert source[0] == 1
    assert placed[1][0] == 1
    assert {tensor.data_ptr() % 64 for tensor in placed} == {0}


def test_observed__tensor__is_a_copy_with_its_metadata():
    value = real.ones(2, 3).t().requires_grad_()
    seen = observed(value)
    with real.no_grad():
        value.fill_(5)
    assert seen.data.tolist() == [[1, 1]] * 3
    assert seen.metadata[:6] == ("float32", (3, 2), (1, 3), "cpu", True, True)


def test_run__step_that_raises__ends_the_run_and_is_in_the_trace():
    body = (
        Step(PLACEHOLDER, "t0", (TensorSpec("float32", (2,), (1,), 0, 2),)),
        Step(CALL_FUNCTION, "torch.reshape", (Ref(0), (3,))),
        Step(CALL_FUNCTION, "torch.exp", (Ref(1),)),
        Step(OUTPUT, "output", (Ref(2),)),
    )
    trace = TORCH.run(Program((), body), {"t0": real.ones(2)})
    assert (trace.failure.step, trace.failure.kind) == (1, "RuntimeError")
    assert len(trace.values) == 1


def test_run__each_step__is_told_before_it_is_entered():
    backend = TorchBackend()
    told = []
    backend.on_step = told.append
    attempt = record(lambda: torch.exp(x()) * 2)
    trace = backend.run(attempt.program, attempt.sources)
    backend.backward(attempt.program, trace, attempt.cotangents)
    assert told == [0, 1, 2, -2]


def test_again__each_step__is_told_before_it_is_entered():
    backend = TorchBackend()
    told: list[int] = []
    attempt = record(lambda: torch.exp(x()) * 2)
    trace = backend.run(attempt.program, attempt.sources)
    backend.on_step = told.append
    assert [(index, len(told)) for index, _ in backend.again(attempt.program, trace, trace.values[:1], holds=True)]
    assert told == [1, 2]


def test_run__random_step__does_not_depend_on_the_generator():
    attempt = record(lambda: torch.rand_like(x()))
    found = []
    for seed in (1, 2):
        real.manual_seed(seed)
        found.append(TORCH.run(attempt.program, attempt.sources).values[1].tolist())
    assert found[0] == found[1] == attempt.trace.values[1].tolist()


def gradients(body, **how) -> dict:
    attempt = record(body, **how)
    trace = TORCH.run(attempt.program, attempt.sources, snapshots=True)
    TORCH.backward(attempt.program, trace, attempt.cotangents)
    assert trace.backward_failure is None
    return trace.gradients


@pytest.mark.parametrize(
    ("body", "keys"),
    [
        (lambda: torch.exp(torch.sin(x())), {0, 1}),
        (lambda: torch.exp(x(requires_grad=False)), set()),
        (lambda: torch.mul(x(), x(requires_grad=False)), {0}),
        (lambda: torch.exp(x()).detach(), set()),
        (lambda: (x() > 0, torch.exp(x())), {2, 3}),
        (lambda: ((y := torch.exp(x())), y), {0, 1}),
        (lambda: ((y := x()), torch.exp(y)), {0, 1}),
    ],
    ids=["chain", "no grad", "one of two", "detached", "a boolean beside", "twice", "a leaf returned"],
)
def test_backward__of_all_outputs__has_gradients_of_all_that_led_there(body, keys):
    # The gradient of the last step, where it is the only output, is the cotangent itself: it need not be asked for.
    outputs = record(body).program.body[-1].args
    found = {key for key, gradient in gradients(body).items() if gradient is not None}
    assert found - ({outputs[0].index} if len(outputs) == 1 else set()) == keys


@pytest.mark.parametrize("snapshots", [False, True])
def test_backward__output_is_the_leaf_itself__has_the_gradient_that_was_put_in(snapshots):
    attempt = record(lambda: x().to("cpu"))
    trace = TORCH.run(attempt.program, attempt.sources, snapshots=snapshots)
    assert trace.values[1] is trace.values[0]
    TORCH.backward(attempt.program, trace, attempt.cotangents)
    assert real.equal(trace.gradients[0], attempt.cotangents[0])


def test_backward__output_returned_twice__counts_once():
    attempt = record(lambda: ((y := torch.mul(x(), 1)), y))
    trace = TORCH.run(attempt.program, attempt.sources, snapshots=True)
    TORCH.backward(attempt.program, trace, attempt.cotangents)
    assert real.equal(trace.gradients[0], attempt.cotangents[0])


def test_backward__one_tensor_for_two_outputs_of_the_reference__is_given_both_gradients():
    def body():
        y = torch.mul(x(), 1)
        return y.clone(), y.clone()

    attempt = record(body)
    candidate = substitute(clone=lambda value: value)  # as a compiler may, which finds them to be one
    trace = candidate.run(attempt.program, attempt.sources)
    assert trace.values[-2] is trace.values[-3]
    candidate.backward(attempt.program, trace, attempt.cotangents)
    assert real.equal(trace.gradients[0], attempt.cotangents[0] + attempt.cotangents[1])


def test_backward__module__has_gradients_of_its_parameters():
    found = gradients(lambda: torch.nn.Linear(4, 2)(x()))
    assert {key[1] for key in found if isinstance(key, tuple)} == {"weight", "bias"}


def test_backward__each_run__gets_its_own_cotangent():
    attempt = record(lambda: torch.add(x(), x()))
    trace = TORCH.run(attempt.program, attempt.sources)
    TORCH.backward(attempt.program, trace, attempt.cotangents)
    # The gradient of add is the cotangent's own storage.
    trace.gradients[0].zero_()
    assert float(attempt.cotangents[0].abs().sum()) > 0


def test_backward__that_cannot_be_done__is_in_the_trace():
    def body():
        y = torch.exp(x())
        y.mul_(2)
        return y

    attempt = record(body)
    trace = TORCH.run(attempt.program, attempt.sources)
    TORCH.backward(attempt.program, trace, attempt.cotangents)
    assert str(trace.backward_failure).startswith("RuntimeError: one of the variables needed for gradient computation")
    assert trace.gradients == {}


def test_function__module_on_a_device__is_made_there():
    # The device without memory: what is asked is where the parameters are.
    module = TorchSteps("meta").function("torch.nn.Linear")(2, 3)
    assert {parameter.device.type for parameter in module.parameters()} == {"meta"}
