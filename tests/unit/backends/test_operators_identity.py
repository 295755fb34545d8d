"""Operators: every spelling of one is one; a module's operator is what its forward really calls."""

from __future__ import annotations

import pytest
import torch
from torch.overrides import TorchFunctionMode

from ci_autotest.backends.operators.identity import (
    matches,
    operator_of,
    public_name,
    public_operator,
    spellings,
    step_operator,
)
from ci_autotest.backends.substitute.backend import called_operator
from ci_autotest.backends.torch_steps import resolve
from ci_autotest.errors import ProgramError
from ci_autotest.program.ir import CALL_FUNCTION, CALL_METHOD, CALL_MODULE, GET_ATTR, Ref, Step
from ci_autotest.program.random_calls import is_random

F = "torch.nn.functional."

SAME = [
    (F + "softmax", ["torch.softmax", "torch.Tensor.softmax", F + "softmax", "torch.special.softmax"]),
    (F + "relu", ["torch.relu", "torch.relu_", "torch.Tensor.relu_", F + "relu", F + "relu_"]),
    ("torch.add", ["torch.add", "torch.Tensor.add", "torch.Tensor.add_", "operator.add", "operator.iadd",
                   "torch.Tensor.__add__", "torch.Tensor.__radd__", "torch.Tensor.__iadd__"]),
    ("torch.sub", ["torch.sub", "torch.subtract", "operator.sub", "operator.isub", "torch.Tensor.__rsub__", "torch.rsub"]),
    ("torch.mul", ["torch.mul", "torch.multiply", "torch.Tensor.mul_", "operator.mul", "torch.Tensor.__rmul__"]),
    ("torch.div", ["torch.div", "torch.divide", "torch.true_divide", "operator.truediv", "torch.Tensor.__rtruediv__"]),
    ("torch.floor_divide", ["torch.floor_divide", "operator.floordiv", "torch.Tensor.__floordiv__", "torch.Tensor.__rfloordiv__"]),
    ("torch.remainder", ["torch.remainder", "operator.mod", "torch.Tensor.__mod__", "torch.Tensor.__rmod__"]),
    ("torch.pow", ["torch.pow", "operator.pow", "torch.Tensor.__rpow__", "torch.Tensor.pow_"]),
    ("torch.matmul", ["torch.matmul", "operator.matmul", "torch.Tensor.__matmul__", "torch.Tensor.__rmatmul__"]),
    ("torch.neg", ["torch.neg", "torch.negative", "operator.neg", "torch.Tensor.__neg__"]),
    ("torch.abs", ["torch.abs", "torch.absolute", "operator.abs", "torch.Tensor.__abs__", "torch.Tensor.abs_"]),
    ("torch.bitwise_and", ["torch.bitwise_and", "operator.and_", "operator.iand", "torch.Tensor.__and__", "torch.Tensor.__rand__"]),
    ("torch.bitwise_left_shift", ["torch.bitwise_left_shift", "operator.lshift", "operator.ilshift", "torch.Tensor.__lshift__"]),
    ("torch.lt", ["torch.lt", "torch.less", "operator.lt", "torch.Tensor.__lt__"]),
    ("torch.eq", ["torch.eq", "operator.eq", "torch.Tensor.__eq__", "torch.Tensor.eq_"]),
    ("torch.sigmoid", ["torch.sigmoid", F + "sigmoid", "torch.special.expit", "torch.Tensor.sigmoid_"]),
    ("torch.tanh", ["torch.tanh", F + "tanh", "torch.Tensor.tanh_"]),
    ("torch.clamp", ["torch.clamp", "torch.clip", "torch.Tensor.clamp_", "torch.Tensor.clip_"]),
    ("torch.cat", ["torch.cat", "torch.concat", "torch.concatenate"]),
    ("torch.transpose", ["torch.transpose", "torch.swapaxes", "torch.swapdims", "torch.Tensor.transpose_"]),
    ("torch.einsum", ["torch.einsum", "torch.functional.einsum"]),
    (F + "gelu", [F + "gelu", "torch._C._nn.gelu"]),
    (F + "layer_norm", [F + "layer_norm", "torch.layer_norm"]),
    (F + "dropout", [F + "dropout", "torch.dropout", "torch.dropout_"]),
    ("torch.Tensor.masked_fill", ["torch.Tensor.masked_fill_"]),
    ("torch.Tensor.__getitem__", ["operator.getitem", "torch.Tensor.__getitem__"]),
    ("torch.Tensor.__setitem__", ["operator.setitem", "torch.Tensor.__setitem__"]),
    ("torch.Tensor.view", ["torch.Tensor.view"]),
    ("torch.linalg.norm", ["torch.linalg.norm"]),
]  # fmt: skip


@pytest.mark.parametrize(("operator", "names"), SAME, ids=[row[0] for row in SAME])
def test_operator_of__spellings__are_one(operator, names):
    found = {operator_of(name) for name in names}
    assert len(found) == 1
    if operator != "torch.Tensor.masked_fill":
        assert found == {operator}


@pytest.mark.parametrize(("operator", "names"), SAME, ids=[row[0] for row in SAME])
def test_operator_of__canonical_name__is_its_own(operator, names):
    found = operator_of(names[0])
    assert operator_of(found) == found


@pytest.mark.parametrize("name", [name for name in torch.functional.__all__ if callable(getattr(torch, name, None))])
def test_named__functions_of_torch_functional__are_torchs(name):
    assert called_operator(getattr(torch.functional, name))[0] == operator_of(f"torch.{name}")


@pytest.mark.parametrize(
    ("method", "function"),
    [("softmax", "torch.softmax"), ("add_", "torch.add"), ("exp", "torch.exp"), ("__rsub__", "torch.sub"),
     ("sum", "torch.sum"), ("relu_", "torch.relu"), ("clip", "torch.clamp"), ("masked_fill", "torch.masked_fill")],
)  # fmt: skip
def test_operator_of__method__is_the_functions(method, function):
    assert operator_of(method, CALL_METHOD) == operator_of(function)


@pytest.mark.parametrize(
    ("left", "right"),
    [("torch.max", "torch.maximum"), ("torch.sum", "torch.nansum"), (F + "conv1d", F + "conv2d"),
     ("torch.linalg.norm", "torch.norm"), ("torch.fft.fft", "torch.fft.ifft"), ("torch.mm", "torch.matmul"),
     ("operator.and_", "torch.logical_and")],
)  # fmt: skip
def test_operator_of__different_operators__are_told_apart(left, right):
    assert operator_of(left) != operator_of(right)


@pytest.mark.parametrize(
    ("target", "op"), [("unfold", CALL_METHOD), ("torch.Tensor.unfold", CALL_FUNCTION)], ids=["method", "function"]
)
def test_operator_of__method_that_does_another_thing__is_its_own(target, op):
    found = operator_of(target, op)
    assert found == "torch.Tensor.unfold" != operator_of(F + "unfold")
    assert spellings(found) == (found,)
    assert found not in spellings(F + "unfold")
    assert matches("torch.Tensor.unfold", found)
    assert not matches("unfold", found) or not matches("torch.Tensor.unfold", F + "unfold")


def image(*sizes: int) -> torch.Tensor:
    return torch.randn(*sizes)


X = (4, 6)
MODULES = [
    ("Linear", (6, 2), {}, [X]), ("Bilinear", (6, 6, 2), {}, [X, X]), ("Conv1d", (2, 3, 2), {}, [(1, 2, 5)]),
    ("Conv2d", (2, 3, 2), {}, [(1, 2, 5, 5)]), ("Conv3d", (2, 3, 2), {}, [(1, 2, 3, 3, 3)]),
    ("ConvTranspose1d", (2, 3, 2), {}, [(1, 2, 5)]), ("ConvTranspose2d", (2, 3, 2), {}, [(1, 2, 5, 5)]),
    ("ConvTranspose3d", (2, 3, 2), {}, [(1, 2, 3, 3, 3)]), ("BatchNorm1d", (6,), {}, [X]),
    ("BatchNorm2d", (2,), {}, [(2, 2, 3, 3)]), ("BatchNorm3d", (2,), {}, [(2, 2, 3, 3, 3)]),
    ("InstanceNorm1d", (2,), {}, [(2, 2, 3)]), ("InstanceNorm2d", (2,), {}, [(2, 2, 3, 3)]),
    ("InstanceNorm3d", (2,), {}, [(2, 2, 3, 3, 3)]), ("GroupNorm", (2, 4), {}, [(2, 4, 3)]), ("LayerNorm", (6,), {}, [X]),
    ("RMSNorm", (6,), {}, [X]), ("LocalResponseNorm", (2,), {}, [(2, 4, 3)]), ("ReLU", (), {}, [X]), ("ReLU6", (), {}, [X]),
    ("GELU", (), {}, [X]), ("ELU", (), {}, [X]), ("SELU", (), {}, [X]), ("CELU", (), {}, [X]), ("GLU", (), {}, [X]),
    ("SiLU", (), {}, [X]), ("Mish", (), {}, [X]), ("PReLU", (), {}, [X]), ("RReLU", (), {}, [X]), ("LeakyReLU", (), {}, [X]),
    ("Sigmoid", (), {}, [X]), ("Tanh", (), {}, [X]), ("LogSigmoid", (), {}, [X]), ("Softplus", (), {}, [X]),
    ("Softsign", (), {}, [X]), ("Softshrink", (), {}, [X]), ("Hardshrink", (), {}, [X]), ("Tanhshrink", (), {}, [X]),
    ("Hardtanh", (), {}, [X]), ("Hardswish", (), {}, [X]), ("Hardsigmoid", (), {}, [X]), ("Threshold", (0.1, 0.2), {}, [X]),
    ("Softmax", (), {"dim": 1}, [X]), ("LogSoftmax", (), {"dim": 1}, [X]), ("Softmin", (), {"dim": 1}, [X]),
    ("Softmax2d", (), {}, [(1, 2, 3, 3)]), ("Dropout", (), {}, [X]), ("Dropout1d", (), {}, [(2, 3, 4)]),
    ("Dropout2d", (), {}, [(2, 3, 4, 4)]), ("Dropout3d", (), {}, [(1, 2, 3, 3, 3)]), ("AlphaDropout", (), {}, [X]),
    ("FeatureAlphaDropout", (), {}, [X]), ("MaxPool1d", (2,), {}, [(1, 2, 6)]), ("MaxPool2d", (2,), {}, [(1, 2, 6, 6)]),
    ("MaxPool3d", (2,), {}, [(1, 2, 4, 4, 4)]), ("AvgPool1d", (2,), {}, [(1, 2, 6)]), ("AvgPool2d", (2,), {}, [(1, 2, 6, 6)]),
    ("AvgPool3d", (2,), {}, [(1, 2, 4, 4, 4)]), ("LPPool1d", (2, 2), {}, [(1, 2, 6)]), ("LPPool2d", (2, 2), {}, [(1, 2, 6, 6)]),
    ("AdaptiveAvgPool1d", (2,), {}, [(1, 2, 6)]), ("AdaptiveAvgPool2d", (2,), {}, [(1, 2, 6, 6)]),
    ("AdaptiveAvgPool3d", (2,), {}, [(1, 2, 4, 4, 4)]), ("AdaptiveMaxPool1d", (2,), {}, [(1, 2, 6)]),
    ("AdaptiveMaxPool2d", (2,), {}, [(1, 2, 6, 6)]), ("AdaptiveMaxPool3d", (2,), {}, [(1, 2, 4, 4, 4)]),
    ("FractionalMaxPool2d", (2,), {"output_size": 2}, [(1, 2, 6, 6)]), ("PixelShuffle", (2,), {}, [(1, 4, 3, 3)]),
    ("PixelUnshuffle", (2,), {}, [(1, 1, 4, 4)]), ("ChannelShuffle", (2,), {}, [(1, 4, 3, 3)]),
    ("Upsample", (), {"scale_factor": 2}, [(1, 2, 3, 3)]), ("Flatten", (), {}, [X]), ("Unflatten", (1, (2, 3)), {}, [X]),
    ("Fold", ((4, 4), (2, 2)), {}, [(1, 4, 9)]), ("Unfold", ((2, 2),), {}, [(1, 1, 4, 4)]),
    ("CosineSimilarity", (), {}, [X, X]), ("PairwiseDistance", (), {}, [X, X]), ("MSELoss", (), {}, [X, X]),
    ("L1Loss", (), {}, [X, X]), ("SmoothL1Loss", (), {}, [X, X]), ("HuberLoss", (), {}, [X, X]),
    ("CrossEntropyLoss", (), {}, [X, X]), ("KLDivLoss", (), {"reduction": "batchmean"}, [X, X]),
    ("BCEWithLogitsLoss", (), {}, [X, X]), ("SoftMarginLoss", (), {}, [X, X]), ("PoissonNLLLoss", (), {}, [X, X]),
    ("GaussianNLLLoss", (), {}, [X, X, (4, 1)]), ("MarginRankingLoss", (), {}, [X, X, X]),
    ("HingeEmbeddingLoss", (), {}, [X, X]), ("CosineEmbeddingLoss", (), {}, [X, X, (4,)]),
    ("TripletMarginLoss", (), {}, [X, X, X]), ("MultiLabelSoftMarginLoss", (), {}, [X, X]),
    ("ZeroPad2d", (1,), {}, [(1, 2, 3, 3)]), ("ReflectionPad1d", (1,), {}, [(1, 2, 3)]),
    ("ReplicationPad2d", (1,), {}, [(1, 2, 3, 3)]), ("ConstantPad1d", (1, 2.0), {}, [(1, 2, 3)]),
    ("LSTM", (6, 2), {}, [(3, 4, 6)]), ("GRU", (6, 2), {}, [(3, 4, 6)]), ("RNN", (6, 2), {}, [(3, 4, 6)]),
    ("LSTMCell", (6, 2), {}, [X]), ("GRUCell", (6, 2), {}, [X]), ("MultiheadAttention", (6, 2), {}, [(3, 4, 6)] * 3),
]  # fmt: skip


class Calls(TorchFunctionMode):
    """Note the operators that are called."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.seen.append(called_operator(func)[0])
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize(("name", "args", "kwargs", "shapes"), MODULES, ids=[row[0] for row in MODULES])
def test_operator_of__module__is_what_its_forward_calls(name, args, kwargs, shapes):
    torch.manual_seed(0)
    module = getattr(torch.nn, name)(*args, **kwargs)
    inputs = [torch.rand(shape) for shape in shapes]
    calls = Calls()
    with calls:
        module(*inputs)
    assert operator_of(f"torch.nn.{name}", CALL_MODULE) in calls.seen


@pytest.mark.parametrize(
    ("name", "args", "make"),
    [
        ("Embedding", (5, 2), lambda: [torch.tensor([1, 2])]),
        ("EmbeddingBag", (5, 2), lambda: [torch.tensor([[1, 2]])]),
        ("NLLLoss", (), lambda: [torch.randn(2, 3), torch.tensor([0, 1])]),
        ("BCELoss", (), lambda: [torch.rand(2, 3), torch.rand(2, 3)]),
        ("CTCLoss", (), lambda: [torch.randn(5, 2, 4).log_softmax(2), torch.tensor([[1, 2], [1, 3]]),
                                 torch.tensor([5, 5]), torch.tensor([2, 2])]),
        ("MultiMarginLoss", (), lambda: [torch.randn(2, 3), torch.tensor([0, 1])]),
        ("MultiLabelMarginLoss", (), lambda: [torch.randn(2, 3), torch.tensor([[0, 1, -1], [1, -1, 0]])]),
        ("MaxUnpool2d", (2,), lambda: list(torch.nn.functional.max_pool2d(torch.rand(1, 1, 4, 4), 2, return_indices=True))),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_operator_of__module_of_other_inputs__is_what_its_forward_calls(name, args, make):
    calls = Calls()
    inputs = make()
    with calls:
        getattr(torch.nn, name)(*args)(*inputs)
    assert operator_of(f"torch.nn.{name}", CALL_MODULE) in calls.seen


@pytest.mark.parametrize(
    ("step", "operator"),
    [
        (Step(GET_ATTR, "weight", (Ref(0),)), "torch.Tensor.weight"),
        (Step(CALL_FUNCTION, "builtins.getattr", (Ref(0), "T")), "torch.Tensor.T"),
        (Step(CALL_FUNCTION, "builtins.len", (Ref(0),)), "builtins.len"),
        (Step(CALL_METHOD, "eval", (Ref(0),)), "torch.nn.Module.eval"),
    ],
    ids=["parameter", "property", "len", "method of a module"],
)
def test_step_operator__what_is_no_operator_of_torch__has_a_name(step, operator):
    steps = (Step(CALL_FUNCTION, "torch.nn.Linear", (1, 1), (), "module", in_setup=True), step)
    assert step_operator(step, steps) == operator


@pytest.mark.parametrize(
    ("pattern", "operator", "is_named"),
    [
        (F + "softmax", F + "softmax", True), ("torch.softmax", F + "softmax", True),
        ("torch.Tensor.softmax", F + "softmax", True), ("torch.nn.functional.conv*", F + "conv2d", True),
        ("torch.conv*", F + "conv2d", True), ("*", "torch.exp", True), ("torch.clip", "torch.clamp", True),
        ("torch.add_", "torch.add", True), ("operator.add", "torch.add", True), ("torch.exp", "torch.expm1", False),
        ("torch.nn.functional.conv*", "torch.exp", False), ("softmax", F + "softmax", False),
    ],
)  # fmt: skip
def test_matches__pattern__names_the_operator_in_any_spelling(pattern, operator, is_named):
    assert matches(pattern, operator) == is_named


@pytest.mark.parametrize(
    "target",
    ["torch.rand_like", "torch.Tensor.bernoulli_", F + "dropout", "torch.randn", "torch.Tensor.normal_",
     F + "fractional_max_pool2d_with_indices"],
)  # fmt: skip
def test_is_random__operator_that_draws__is(target):
    assert is_random(target)


@pytest.mark.parametrize(
    ("target", "is_drawn"),
    [("torch.ops.aten.bernoulli_.float", True), ("torch.ops.aten.native_dropout.out", True),
     ("torch.ops.aten.randint_like.low_dtype", True), ("torch.ops.aten.add.out", False),
     ("torch.ops.mine.bernoulli", True), ("torch.ops.aten._softmax.default", False)],
)  # fmt: skip
def test_is_random__overload_of_the_dispatcher__goes_by_its_operator(target, is_drawn):
    assert is_random(target) == is_drawn


@pytest.mark.parametrize(
    ("operator", "public"),
    [("torch.ops.aten._linalg_svd", "torch.linalg.svd"), ("torch.ops.aten.sort", "torch.sort"),
     ("torch.ops.aten.resize_", "torch.Tensor.resize"), ("torch.ops.aten.softmax", F + "softmax"),
     ("torch.ops.mine.sort", "torch.ops.mine.sort"), ("torch.sort", "torch.sort")],
)  # fmt: skip
def test_public_operator__entry_of_the_dispatcher__is_what_it_computes(operator, public):
    assert public_operator(operator) == public


@pytest.mark.parametrize("target", ["torch.exp", "torch.zeros", F + "softmax", "torch.arange", "torch.Tensor.sort"])
def test_is_random__operator_that_does_not__is_not(target):
    assert not is_random(target)


def test_spellings__of_an_operator__are_that_operator():
    assert {operator_of(name) for name in spellings(F + "softmax")} == {F + "softmax"}


@pytest.mark.parametrize(
    "target", ["torch.relu", F + "softmax", "torch.nn.Linear", "torch.linalg.norm", "torch.Tensor.sum"]
)
def test_resolve__operator__is_found(target):
    assert callable(resolve(target))


@pytest.mark.parametrize(
    "target",
    ["torch.load", "os.system", "torch.no_such", "torch.float32", "torch.Tensor", "torch.device", "torch.nn.Module",
     "torch.nn", "torch.Generator", "builtins.len", "torch.Size", "torch.__version__"],
)  # fmt: skip
def test_resolve__what_is_no_operator__is_refused(target):
    with pytest.raises(ProgramError):
        resolve(target)


def test_public_name__function_that_torch_has_under_two_names__is_the_one_that_people_write():
    assert public_name(torch.mm) == "torch.mm"
    assert public_name(torch.add) == "torch.add"
