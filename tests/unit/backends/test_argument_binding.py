"""Binding: whichever way a test spells a call, its arguments have torch's documented names."""

from __future__ import annotations

import pytest

from ci_autotest.backends.operators.argument_binding import Binder, arguments, is_same
from ci_autotest.backends.operators.identity import step_operator
from ci_autotest.errors import UnsupportedError
from ci_autotest.program.ir import CALL_FUNCTION, CALL_METHOD, Device, DType, FrameworkConstant, List, Ref, Step

F = "torch.nn.functional."
X, Y, Z = Ref(0), Ref(1), Ref(2)
WEIGHTS = List((X, Y))


def call(target, *args, **kwargs):
    return Step(CALL_FUNCTION, target, args, tuple(kwargs.items()))


def method(name, *args, **kwargs):
    return Step(CALL_METHOD, name, args, tuple(kwargs.items()))


def bound(step):
    return Binder().bound(step, step_operator(step))


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        pytest.param(call("torch.softmax", X, 1), {"input": X, "dim": 1}, id="a function with a schema"),
        pytest.param(call(F + "softmax", X, dim=1), {"input": X, "dim": 1}, id="a function in Python"),
        pytest.param(method("softmax", X, 1), {"input": X, "dim": 1}, id="a method"),
        pytest.param(call("torch.special.softmax", X, 1), {"input": X, "dim": 1}, id="an alias in torch.special"),
        pytest.param(call("torch.sum", X, axis=1, keepdims=True), {"input": X, "dim": 1, "keepdim": True}, id="numpy's names"),
        pytest.param(call("torch.add", X, Y, alpha=2), {"input": X, "other": Y, "alpha": 2}, id="a keyword"),
        pytest.param(call("torch.add", X, other=2), {"input": X, "other": 2}, id="a number for a tensor"),
        pytest.param(method("add_", X, Y), {"input": X, "other": Y}, id="in place"),
        pytest.param(method("relu_", X), {"input": X}, id="in place, of one"),
        pytest.param(call("operator.add", X, Y), {"input": X, "other": Y}, id="an operator"),
        pytest.param(call("operator.sub", 2, X), {"input": 2, "other": X}, id="a number on the left"),
        pytest.param(call("operator.pow", 2, X), {"input": 2, "exponent": X}, id="a number to the power of a tensor"),
        pytest.param(call("operator.pow", X, 2), {"input": X, "exponent": 2}, id="a tensor to the power of a number"),
        pytest.param(call("operator.iadd", X, Y), {"input": X, "other": Y}, id="an operator in place"),
        pytest.param(call("operator.neg", X), {"input": X}, id="an operator of one"),
        pytest.param(call("operator.matmul", X, Y), {"input": X, "other": Y}, id="a product"),
        pytest.param(call("operator.and_", X, Y), {"input": X, "other": Y}, id="and"),
        pytest.param(call("operator.getitem", X, (0, 1)), {"input": X, "index": (0, 1)}, id="an index"),
        pytest.param(call("torch.rsub", X, 2), {"input": 2, "other": X}, id="reflected"),
        pytest.param(method("__rsub__", X, 2), {"input": 2, "other": X}, id="reflected, a special method"),
        pytest.param(method("__rpow__", X, 2), {"input": 2, "exponent": X}, id="reflected power"),
        pytest.param(method("__iadd__", X, Y), {"input": X, "other": Y}, id="a special method in place"),
        pytest.param(method("view", X, 2, 3), {"input": X, "size": (2, 3)}, id="sizes in a row"),
        pytest.param(method("view", X, (2, 3)), {"input": X, "size": (2, 3)}, id="sizes in a tuple"),
        pytest.param(method("view", X, -1), {"input": X, "size": (-1,)}, id="one size"),
        pytest.param(method("view", X, DType("int32")), {"input": X, "dtype": DType("int32")}, id="another overload"),
        pytest.param(method("permute", X, 0, 1), {"input": X, "dims": (0, 1)}, id="dims in a row"),
        pytest.param(call("torch.reshape", X, (2, 3)), {"input": X, "shape": (2, 3)}, id="a shape"),
        pytest.param(method("reshape", X, 2, 3), {"input": X, "shape": (2, 3)}, id="a shape in a row"),
        pytest.param(method("expand", X, 2, -1), {"input": X, "size": (2, -1)}, id="expand"),
        pytest.param(method("repeat", X, 2, 1), {"input": X, "repeats": (2, 1)}, id="repeat"),
        pytest.param(call("torch.zeros", 2, 3), {"size": (2, 3)}, id="creation"),
        pytest.param(call("torch.full", (2,), 1.5), {"size": (2,), "fill_value": 1.5}, id="full"),
        pytest.param(call("torch.zeros", 2, requires_grad=True), {"size": (2,), "requires_grad": True}, id="of Python alone"),
        pytest.param(call("torch.arange", 5), {"end": 5}, id="arange to an end"),
        pytest.param(call("torch.arange", 1, 5, 2), {"start": 1, "end": 5, "step": 2}, id="arange with all three"),
        pytest.param(call("torch.max", X), {"input": X}, id="the greatest of all"),
        pytest.param(call("torch.max", X, 1), {"input": X, "dim": 1}, id="the greatest along a dim"),
        pytest.param(call("torch.max", X, Y), {"input": X, "other": Y}, id="the greater of two"),
        pytest.param(method("std", X, 0, keepdim=True), {"input": X, "dim": 0, "keepdim": True}, id="std over a dim"),
        pytest.param(call("torch.std", X, False), {"input": X, "unbiased": False}, id="std, a flag"),
        pytest.param(call("torch.std", X, correction=0), {"input": X, "correction": 0}, id="std, a correction"),
        pytest.param(call("torch.where", X, Y, 0.0), {"condition": X, "input": Y, "other": 0.0}, id="where"),
        pytest.param(method("where", Y, X, Z), {"condition": X, "input": Y, "other": Z}, id="where, the receiver second"),
        pytest.param(call("torch.cat", WEIGHTS, 1), {"tensors": WEIGHTS, "dim": 1}, id="a list of tensors"),
        pytest.param(call("torch.cat", (X, Y), axis=1), {"tensors": (X, Y), "dim": 1}, id="a tuple of tensors"),
        pytest.param(call("torch.broadcast_tensors", X, Y), {"tensors": (X, Y)}, id="tensors in a row"),
        pytest.param(call("torch.einsum", "ij,jk", X, Y), {"equation": "ij,jk", "operands": (X, Y)}, id="einsum"),
        pytest.param(call("torch.einsum", "ij,jk", WEIGHTS), {"equation": "ij,jk", "operands": WEIGHTS}, id="einsum of a list"),
        pytest.param(call("torch.meshgrid", X, Y, indexing="ij"), {"tensors": (X, Y), "indexing": "ij"}, id="meshgrid"),
        pytest.param(call("torch.split", X, 2, 1), {"input": X, "split_size_or_sections": 2, "dim": 1}, id="split"),
        pytest.param(method("split", X, 2, 1), {"input": X, "split_size_or_sections": 2, "dim": 1}, id="split, a method"),
        pytest.param(call("torch.swapaxes", X, 0, 1), {"input": X, "dim0": 0, "dim1": 1}, id="an alias with other names"),
        pytest.param(
            call(F + "conv2d", X, Y, None, 2, padding=1), {"input": X, "weight": Y, "stride": 2, "padding": 1}, id="conv2d"
        ),
        pytest.param(call(F + "conv2d", X, Y, padding="same"), {"input": X, "weight": Y, "padding": "same"}, id="padding by name"),
        pytest.param(call(F + "max_pool2d", X, 2), {"input": X, "kernel_size": 2}, id="two functions behind one name"),
        pytest.param(call(F + "layer_norm", X, (3,), Y, None, 1e-3),
                     {"input": X, "normalized_shape": (3,), "weight": Y, "eps": 1e-3}, id="layer_norm"),
        pytest.param(method("to", X, DType("float64")), {"input": X, "dtype": DType("float64")}, id="to a dtype"),
        pytest.param(method("to", X, Device("cpu")), {"input": X, "device": Device("cpu")}, id="to a device"),
        pytest.param(method("contiguous", X, memory_format=FrameworkConstant("torch.channels_last")),
                     {"input": X, "memory_format": FrameworkConstant("torch.channels_last")}, id="a constant"),
        pytest.param(call(F + "logsigmoid", X), {"input": X}, id="built in under another name"),
        pytest.param(method("size", X, 0), {"input": X, "dim": 0}, id="a method that gives no tensor"),
        pytest.param(method("float", X), {"input": X}, id="a method that torch says nothing of"),
        pytest.param(call("builtins.getattr", X, "T"), {"input": X}, id="an attribute"),
        pytest.param(call("torch.linalg.norm", X, 2, 0), {"input": X, "ord": 2, "dim": 0}, id="linalg"),
        pytest.param(call("torch.fft.fft", X, n=3), {"input": X, "n": 3}, id="fft"),
        pytest.param(
            call("torch.lstm", X, (Y, Z), WEIGHTS, True, 1, 0.0, False, False, False),
            {"input": X, "hx": (Y, Z), "params": WEIGHTS, "has_biases": True, "num_layers": 1, "dropout": 0.0, "train": False,
             "bidirectional": False, "batch_first": False}, id="lstm"
        ),
    ],
)  # fmt: skip
def test_bound__each_spelling__has_the_documented_names(step, expected):
    assert bound(step) == expected


@pytest.mark.parametrize(
    "step",
    [
        call("torch.add", X, other=X, alpha=1),
        call(F + "conv2d", X, stride=1, padding=(0, 0), dilation=List((1, 1)), groups=1, weight=Y),
        call(F + "softmax", X, _stacklevel=5, dtype=None),
        call(F + "relu", X, inplace=False),
        call("torch.sum", X, dtype=None),
        call("torch.zeros", (2,), requires_grad=False, pin_memory=True),
    ],
)
def test_bound__torchs_own_defaults__are_left_out(step):
    assert bound(step).keys() <= {"input", "other", "weight", "size"}


def test_bound__a_form_that_torch_has_not__is_unsupported_and_shown():
    with pytest.raises(
        UnsupportedError, match=r"torch\.sum that names the arguments of the call \(Ref, str, str, nonsense=\)"
    ):
        bound(call("torch.sum", X, "a", "b", nonsense=1))


def test_bound__one_form_with_two_kinds_of_arguments__is_bound_by_each():
    binder = Binder()
    assert binder.bound(call("torch.max", X, 1), "torch.max") == {"input": X, "dim": 1}
    assert binder.bound(call("torch.max", X, Y), "torch.max") == {"input": X, "other": Y}


@pytest.mark.parametrize(
    ("value", "other", "expected"),
    [
        (1, 1.0, True),
        (True, 1, False),
        (0, False, False),
        ((1, 1), 1, True),
        (1, (1, 1), True),
        ((1, 2), 1, False),
        ((), 1, False),
        (List((1, 2)), (1, 2), True),
        ((1, 2), [1, 2], True),
        ((1, 2), (1, 2, 2), False),
        (None, None, True),
        ("mean", "mean", True),
        (X, None, False),
    ],
)
def test_is_same__numbers_and_lists__mean_the_same_or_not(value, other, expected):
    assert is_same(value, other) is expected


@pytest.mark.parametrize(
    ("operator", "some"),
    [
        (F + "softmax", {"input", "dim", "dtype"}),
        ("torch.std", {"input", "dim", "unbiased", "correction", "keepdim"}),
        ("torch.transpose", {"input", "dim0", "dim1"}),
        ("torch.unique", {"input", "sorted", "return_inverse", "return_counts", "dim"}),
        ("torch.Tensor.view", {"input", "size", "dtype"}),
        (F + "logsigmoid", {"input"}),
    ],
)
def test_arguments__of_an_operator__are_those_of_all_its_spellings(operator, some):
    assert some <= arguments(operator)
    assert "self" not in arguments(operator)
