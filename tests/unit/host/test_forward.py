"""What a host keeps of a run: values, facts, copies, gradients; what raised, and what the framework has not."""

from __future__ import annotations

import sys
import types
from contextlib import nullcontext

import numpy as np
import pytest
import torch

from ci_autotest.errors import UnsupportedReason
from ci_autotest.host.backward import backward
from ci_autotest.host.binding import adapter, elements, has, leaf, storage_of
from ci_autotest.host.forward import forward, needs_attribute
from ci_autotest.host.frameworks.protocol import LackingError
from ci_autotest.host.frameworks.torch_like import TorchLike
from ci_autotest.program.ir import (
    CALL_FUNCTION,
    CALL_METHOD,
    CALL_MODULE,
    GET_ATTR,
    OUTPUT,
    PLACEHOLDER,
    Device,
    FrameworkConstant,
    Program,
    Ref,
    Step,
    TensorSpec,
)

SPEC = TensorSpec("float32", (3,), (1,), 0, 3, requires_grad=True)
DATA = np.array([1.0, -2.0, 3.0], np.float32)


@pytest.fixture(scope="module")
def framework():
    return TorchLike("torch", "cpu")


def program(*steps, setup=(), spec=SPEC):
    body = (Step(PLACEHOLDER, "t0", (spec,), (), "x"), *steps)
    return Program(setup, (*body, Step(OUTPUT, "output", (Ref(len(setup) + len(body) - 1),))))


def call(target, *args, **kwargs):
    return Step(CALL_FUNCTION, target, args, tuple(kwargs.items()))


def ran(made, framework, data=DATA, *, snapshots=False):
    return forward(made, {"t0": data}, framework, lambda _: None, snapshots=snapshots)


def test_forward__steps_run__values_and_facts_are_kept(framework):
    run = ran(program(call("torch.mul", Ref(0), 2), Step(CALL_METHOD, "sum", (Ref(1),))), framework)
    assert [value.tolist() for value in run.values[:-1]] == [[1, -2, 3], [2, -4, 6], 4]
    assert run.facts == [
        ("float32", (3,), True, True),
        ("float32", (3,), True, False),
        ("float32", (), True, False),
        None,
    ]
    assert (run.failure, run.lacking, run.copies) == (None, None, [])


def test_forward__data_are_the_workers__a_step_that_writes_does_not_change_them(framework):
    data = DATA.copy()
    spec = TensorSpec("float32", (3,), (1,), 0, 3)
    ran(program(Step(CALL_METHOD, "zero_", (Ref(0),)), spec=spec), framework, data)
    assert data.tolist() == DATA.tolist()


def test_forward__snapshots__hold_each_value_as_it_was_at_its_step(framework):
    spec = TensorSpec("float32", (3,), (1,), 0, 3)
    run = ran(program(Step(CALL_METHOD, "zero_", (Ref(0),)), spec=spec), framework, snapshots=True)
    assert [copy.array.tolist() for copy in run.copies[:2]] == [[1, -2, 3], [0, 0, 0]]
    assert run.values[0].tolist() == [0, 0, 0]
    assert len(run.copies) == len(run.values) == 3


def test_forward__snapshots__of_a_module_hold_nothing(framework):
    module = Step(CALL_FUNCTION, "torch.nn.ReLU", (), (), "module", in_setup=True)
    made = program(Step(CALL_METHOD, "eval", (Ref(0),)), Step(CALL_MODULE, "", (Ref(0), Ref(1))), setup=(module,))
    module_made, _, made_eval, called, _ = ran(made, framework, snapshots=True).copies
    assert (module_made.array, made_eval.array) == (None, None)
    assert called.array.tolist() == [1, 0, 3]


def test_forward__step_raises__is_the_end_and_is_told(framework):
    run = ran(program(call("torch.reshape", Ref(0), (2, 2)), call("torch.abs", Ref(1))), framework)
    assert run.failure is not None
    assert run.failure[:2] == (1, "RuntimeError")
    assert "invalid for input of size 3" in run.failure[2]
    assert (len(run.values), run.lacking) == (1, None)


@pytest.mark.parametrize(
    ("step", "said"),
    [
        (call("torch.no_such_function", Ref(0)), "it has no torch.no_such_function"),
        (call("other.abs", Ref(0)), "it has no other.abs"),
        (call("adapters.none", Ref(0)), "it has no adapters.none"),
        (Step(CALL_METHOD, "no_such_method", (Ref(0),)), "it has no Tensor.no_such_method"),
        (Step(GET_ATTR, "no_such_attribute", (Ref(0),)), "it has no Tensor.no_such_attribute"),
        (call("torch.abs", Ref(0), FrameworkConstant("torch.no_such_format")), "it has no no_such_format"),
        (call("torch.nn.functional.softmax", Ref(0), axes=1), "softmax() got an unexpected keyword argument 'axes'"),
    ],
    ids=["function", "namespace", "adapter", "method", "attribute", "constant", "argument"],
)
def test_forward__framework_has_it_not__is_lacking_and_no_failure(framework, step, said):
    run = ran(program(step), framework)
    assert (run.lacking, run.failure) == ((UnsupportedReason.NO_COUNTERPART, said), None)


@pytest.mark.parametrize(("path", "said"), [("0.weight", ""), ("0.scale", "0.scale"), ("0.__dict__", "0.__dict__")])  # fmt: skip
def test_needs_attribute__path_in_a_module_without_the_method__is_lacking_if_nothing_public_is_there(
    framework, path, said
):
    module = types.SimpleNamespace(state_dict=dict, **{"0": types.SimpleNamespace(weight=1)})
    step = Step(CALL_METHOD, "get_parameter", (Ref(0), path))
    with pytest.raises(LackingError, match=f"^{said} in its ") if said else nullcontext():
        needs_attribute(step, [module], framework)


def test_forward__kernel_of_a_dtype_is_not_there__is_lacking(framework):
    spec = TensorSpec("int64", (3,), (1,), 0, 3)
    run = ran(program(call("torch.nn.functional.softplus", Ref(0)), spec=spec), framework, np.arange(3))
    assert run.failure is None
    assert "not implemented for 'Long'" in run.lacking.detail


def test_forward__framework_ends_the_process_by_an_exception__is_its_failure(framework):
    class Leaves(TorchLike):
        def function(self, target):
            raise SystemExit(3)

    run = ran(program(call("torch.abs", Ref(0))), Leaves("torch", "cpu"))
    assert run.failure == (1, "SystemExit", "3")


def test_backward__cotangent_is_put_in__gradients_of_leaves_and_intermediates(framework):
    made = program(call("torch.mul", Ref(0), 2), call("torch.mul", Ref(1), Ref(1)))
    run = ran(made, framework)
    backward(made, run, {0: np.ones(3, np.float32)}, framework)
    assert [(key, gradient.tolist()) for key, gradient in run.gradients] == [(0, [8, -16, 24]), (1, [4, -8, 12])]


def test_backward__body_overwrites__leaves_alone(framework):
    made = program(call("torch.mul", Ref(0), 2), Step(CALL_METHOD, "add_", (Ref(1), 1)))
    run = ran(made, framework)
    backward(made, run, {0: np.ones(3, np.float32)}, framework)
    assert [key for key, _ in run.gradients] == [0]


def test_backward__module__gradients_of_its_parameters(framework):
    setup = (Step(CALL_FUNCTION, "torch.nn.Linear", (3, 1), (("bias", False),), in_setup=True),)
    spec = TensorSpec("float32", (1, 3), (3, 1), 0, 3)
    made = program(Step(CALL_MODULE, "torch.nn.Linear", (Ref(0), Ref(1))), setup=setup, spec=spec)
    run = ran(made, framework)
    backward(made, run, {0: np.ones((1, 1), np.float32)}, framework)
    assert [(key, gradient.tolist()) for key, gradient in run.gradients] == [((0, "weight"), [[1, -2, 3]])]


def test_backward__candidate_detached__asks_for_nothing(framework):
    made = program(Step(CALL_METHOD, "detach", (Ref(0),)))
    run = ran(made, framework)
    backward(made, run, {0: np.ones(3, np.float32)}, framework)
    assert (run.gradients, run.backward_failure) == ([], None)


@pytest.mark.parametrize(
    "step",
    [Step(CALL_METHOD, "contiguous", (Ref(0),)), Step(CALL_METHOD, "to", (Ref(0), Device("cpu")))],
    ids=["contiguous", "to"],
)
@pytest.mark.parametrize("snapshots", [False, True])
def test_backward__output_is_the_leaf_itself__has_the_gradient_that_was_put_in(framework, step, snapshots):
    made = program(step)
    run = ran(made, framework, snapshots=snapshots)
    assert run.values[1] is run.values[0]
    backward(made, run, {0: DATA}, framework)
    assert [(key, gradient.tolist()) for key, gradient in run.gradients] == [(0, DATA.tolist())]


def test_backward__framework_raises__is_told(framework):
    class Refuses(TorchLike):
        def gradients(self, outputs, weights, inputs):
            message = "no way back"
            raise RuntimeError(message)

    made = program(call("torch.abs", Ref(0)))
    refusing = Refuses("torch", "cpu")
    run = ran(made, refusing)
    backward(made, run, {0: np.ones(3, np.float32)}, refusing)
    assert (run.backward_failure, run.lacking) == (("RuntimeError", "no way back"), None)


def test_backward__framework_without_autograd__is_lacking(monkeypatch):
    bare = types.ModuleType("bare")
    vars(bare).update({name: value for name, value in vars(torch).items() if not name.startswith("__")})
    del bare.autograd
    monkeypatch.setitem(sys.modules, "bare", bare)
    framework, made = TorchLike("bare", "cpu"), program(Step(CALL_METHOD, "exp", (Ref(0),)))
    run = ran(made, framework)
    backward(made, run, {0: DATA}, framework)
    assert (run.lacking is not None and run.lacking.detail, run.gradients) == ("it has no autograd.grad", [])


def test_elements__layout_of_its_own__are_in_order_and_own_memory():
    storage = np.arange(12, dtype=np.int64)
    found = elements(storage, TensorSpec("int64", (2, 3), (1, 4), 1, 12))
    assert found.tolist() == [[1, 5, 9], [2, 6, 10]]
    assert found.flags["C_CONTIGUOUS"]
    assert not np.shares_memory(found, storage)


@pytest.mark.parametrize("layout", [((2, 3), (1, 4), 1), ((2, 3), (3, 1), 0)], ids=["strided", "in order"])
def test_leaf__has_the_elements_and_layout_of_its_spec(framework, layout):
    shape, strides, offset = layout
    size = 12 if offset else 6
    spec = TensorSpec("float32", shape, strides, offset, size, requires_grad=True)
    storage = np.arange(size, dtype=np.float32)
    made = leaf(framework, storage, spec)
    assert made.tolist() == elements(storage, spec).tolist()
    assert (made.stride(), made.is_leaf, made.requires_grad) == (strides, True, True)


def test_storage_of__bfloat16__is_its_bits(framework):
    bits = storage_of(np.array([0x3F80, 0x7FC1], np.uint16).tobytes(), "bfloat16")
    made = framework.tensor(bits.copy(), TensorSpec("bfloat16", (2,), (1,), 0, 2))
    assert (str(made.dtype), made[0].item()) == ("torch.bfloat16", 1.0)
    assert framework.array(made).tolist() == [0x3F80, 0x7FC1], "the payload of NaN too"


def test_adapter__target_of_the_framework__is_none():
    assert adapter("torch", "torch.abs") is None


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("torch.abs", True), ("torch.nn.functional.softmax", True), ("torch.nn.LSTM", True), ("torch.Tensor.T", True),
        ("torch.no_such_function", False), ("torch.Tensor.no_such_member", False), ("other.abs", False),
        ("adapters.none", False), ("torch.float32", False),
    ],
)  # fmt: skip
def test_has__says_what_the_framework_has(framework, target, expected):
    assert has(framework, target) is expected


def test_function__module_on_a_device__is_made_there():
    # The device without memory: what is asked is where the parameters are.
    module = TorchLike("torch", "meta").function("torch.nn.Linear")(2, 3)
    assert {parameter.device.type for parameter in module.parameters()} == {"meta"}
