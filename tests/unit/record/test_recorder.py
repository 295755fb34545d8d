"""What a body does is written down as it was done: functions, methods, operators, indexing, modules, plain torch."""

from __future__ import annotations

import numpy as np
import pytest
import torch as real

from ci_autotest import autotest, cpu_device, gpu_device, random_tensor, torch
from ci_autotest.backends.eager.backend import TorchBackend
from ci_autotest.errors import AuthorError, UnsupportedReason
from ci_autotest.program.codegen import body_lines
from tests.engine import Rules, record, substitute, tried

BITWISE = Rules(strictness="bitwise")


def x(**how):
    return random_tensor(ndim=2, dim0=2, dim1=3, **how)


def ints():
    return x(dtype=int)


def no_grad(call):
    def body():
        value = x()
        with torch.no_grad():
            value = call(value)
        return value + 1

    return body


def changed(call):
    def body():
        value = x(requires_grad=False)
        call(value)
        return value

    return body


def bump(value, by):
    value += by


def drop(value, by):
    value -= by


def scale(value, by):
    value *= by


def shrink(value, by):
    value /= by


def put(value, index, other):
    value[index] = other


def users_helper(value):
    return real.relu(value) + real.exp(value)


SEED = "torch.manual_seed(1123842534)"
TABLE = [
    # functions
    ("function", lambda: torch.relu(x()), ["relu = torch.relu(x)"]),
    (
        "functional with keywords",
        lambda: torch.nn.functional.softmax(x(), dim=-1),
        ["softmax = torch.nn.functional.softmax(x, dim=(-1))"],
    ),
    ("linalg", lambda: torch.linalg.vector_norm(x(), 2), ["vector_norm = torch.linalg.vector_norm(x, 2)"]),
    ("special", lambda: torch.special.expit(x()), ["expit = torch.special.expit(x)"]),
    ("fft", lambda: torch.fft.fft(x()), ["fft = torch.fft.fft(x)"]),
    ("dtype argument", lambda: torch.sum(x(), dtype=torch.float64), ["sum = torch.sum(x, dtype=torch.float64)"]),
    ("factory", lambda: torch.zeros(2, 3) + x(), ["zeros = torch.zeros(2, 3)", "add = zeros + x"]),
    ("lists", lambda: torch.cat([(y := x()), y]), ["cat = torch.cat([x, x])"]),
    ("tuples", lambda: torch.stack(((y := x()), y), dim=0), ["stack = torch.stack((x, x), dim=0)"]),
    ("einsum", lambda: torch.einsum("ij->ji", x()), ["einsum = torch.einsum('ij->ji', x)"]),
    ("random", lambda: torch.rand_like(x()), [SEED, "rand_like = torch.rand_like(x)"]),
    # methods and properties
    ("method", lambda: x().sum(dim=1, keepdim=True), ["sum = x.sum(dim=1, keepdim=True)"]),
    ("method in place", lambda: x().clone().add_(1), ["clone = x.clone()", "add = clone.add_(1)"]),
    ("property", lambda: x().T, ["T = x.T"]),
    ("attributes", lambda: (y := x()) * (y.shape[1] if y.dtype.is_floating_point and not y.is_nested else 1), ["mul = x * 3"]),
    ("attribute that is a tensor", lambda: x().T, ["T = x.T"]),
    ("returned attributes", lambda: ((y := x()) * 2, y.shape[1], y.dtype, y.is_leaf, y.layout),
     ["mul = x * 2", "shape = x.shape", "dtype = x.dtype", "is_leaf = x.is_leaf", "layout = x.layout"]),
    ("returned attributes of one side", lambda: ((y := x()) * 2, y.device, y.is_cuda, y.output_nr), ["mul = x * 2"]),
    ("to dtype", lambda: x().to(torch.float64), ["to = x.to(torch.float64)"]),
    ("to own device", lambda: x().to(gpu_device()), ["to = x.to(device)"]),
    ("to the host", lambda: x().to(cpu_device()), ["to = x.to('cpu')"]),
    ("memory format", lambda: x().contiguous(memory_format=torch.contiguous_format),
     ["contiguous = x.contiguous(memory_format=torch.contiguous_format)"]),
    # Python's operators
    ("add", lambda: x() + 1, ["add = x + 1"]),
    ("reflected", lambda: 2 - x(), ["sub = 2 - x"]),
    ("power", lambda: 2.0 ** x(), ["pow = 2.0 ** x"]),
    ("matmul", lambda: (y := x()) @ y.T, ["T = x.T", "matmul = x @ T"]),
    ("floor division", lambda: x() // 2, ["floordiv = x // 2"]),
    ("reflected remainder", lambda: 3 % x(), ["mod = 3 % x"]),
    ("negation", lambda: -x(), ["neg = -x"]),
    ("absolute", lambda: abs(x()), ["abs_0 = abs(x)"]),
    ("comparison", lambda: x() < 0.5, ["lt = x < 0.5"]),
    ("equality", lambda: (y := x()) == y, ["eq = x == x"]),
    ("bits", lambda: ~(ints() & 1), ["value = x & 1", "invert = ~value"]),
    ("reflected bits", lambda: 1 | ints(), ["value = 1 | x"]),
    ("shift", lambda: ints() << 1, ["lshift = x << 1"]),
    ("reflected shift", lambda: 1 << (ints() * 0 + 2), ["mul = x * 0", "add = mul + 2", "lshift = 1 << add"]),
    ("numpy scalar", lambda: x() * np.float32(2), ["mul = x * 2.0"]),
    ("numpy scalar, reflected", lambda: np.float32(2) * x(), ["mul = 2.0 * x"]),
    ("+=", changed(lambda v: bump(v, 1)), ["iadd = x", "iadd += 1"]),
    ("-=", changed(lambda v: drop(v, 1)), ["isub = x", "isub -= 1"]),
    ("*=", changed(lambda v: scale(v, 2)), ["imul = x", "imul *= 2"]),
    ("/=", changed(lambda v: shrink(v, 2)), ["itruediv = x", "itruediv /= 2"]),
    # indexing
    ("index", lambda: x()[0, 1], ["getitem = x[0, 1]"]),
    ("slice", lambda: x()[:, ::2], ["getitem = x[:, ::2]"]),
    ("ellipsis and None", lambda: x()[..., None], ["getitem = x[..., None]"]),
    ("list index", lambda: x()[:, [0, 2]], ["getitem = x[:, [0, 2]]"]),
    ("mask", lambda: (y := x())[y > 0], ["gt = x > 0", "getitem = x[gt]"]),
    ("set item", changed(lambda v: put(v, 0, 3)), ["x[0] = 3"]),
    ("set slice", changed(lambda v: put(v, (slice(None), 1), v[:, 0])), ["getitem = x[:, 0]", "x[:, 1] = getitem"]),
    # what a body may branch on
    ("bool", lambda: (y := x()) * (2 if (y.sum() > 1e9) else 3),
     ["sum = x.sum()", "gt = sum > 1000000000.0", "bool_0 = bool(gt)", "mul = x * 3"]),
    ("float", lambda: (y := x(requires_grad=False)) * float(y.numel()), ["numel = x.numel()", "mul = x * 6.0"]),
    ("int", lambda: x(requires_grad=False) * int(torch.ones(())), ["ones = torch.ones(())", "int_0 = int(ones)", "mul = x * 1"]),
    ("len", lambda: (y := x()) * len(y), ["len_0 = len(x)", "mul = x * 2"]),
    ("iteration", lambda: [row * 2 for row in x()],
     ["len_0 = len(x)", "getitem = x[0]", "getitem_1 = x[1]", "mul = getitem * 2", "mul_1 = getitem_1 * 2"]),
    ("size", lambda: (y := x()) * y.size(0), ["size = x.size(0)", "mul = x * 2"]),
    # tuples
    ("tuple", lambda: x().split(1), ["split = x.split(1)", "split_1 = split[0]", "split_2 = split[1]"]),
    ("structseq", lambda: torch.max(x(), dim=1), ["max = torch.max(x, dim=1)", "max_1 = max[0]", "max_2 = max[1]"]),
    ("structseq by name", lambda: torch.sort(x()).values, ["sort = torch.sort(x)", "sort_1 = sort[0]", "sort_2 = sort[1]"]),
    # plain torch, through __torch_function__
    ("plain function", lambda: real.relu(x()), ["relu = torch.relu(x)"]),
    ("a user's helper", lambda: users_helper(x()), ["relu = torch.relu(x)", "exp = torch.exp(x)", "add = relu + exp"]),
    ("plain einsum", lambda: real.einsum("ij->ji", x()), ["einsum = torch.einsum('ij->ji', x)"]),
    ("plain tensor and recorded", lambda: x() + real.ones(3), ["add = x + captured"]),
    ("recorded on the right", lambda: real.ones(3) + x(), None),
    # modes
    ("no_grad", no_grad(lambda v: v * 2), ["with torch.no_grad():", "    mul = x * 2", "add = mul + 1"]),
    ("no_grad method", no_grad(lambda v: v.exp()), ["with torch.no_grad():", "    exp = x.exp()", "add = exp + 1"]),
]  # fmt: skip


@pytest.mark.parametrize(("body", "lines"), [row[1:] for row in TABLE], ids=[row[0] for row in TABLE])
def test_record__body__is_written_down_and_replays_bit_by_bit(body, lines):
    attempt = record(body)
    assert attempt.refused is None, attempt.trace.failure
    assert lines is None or body_lines(attempt.program) == lines
    assert tried(body, TorchBackend(), BITWISE).outcome == "aligned"


def labelled():
    value = x()
    value.label, value._count = "mine", 2
    return value * value._count if value.label == "mine" else value


@pytest.mark.parametrize(
    ("body", "targets"),
    [
        (lambda: real.relu(x()) if isinstance(x(), real.Tensor) else real.tanh(x()), ["t0", "t1", "torch.relu"]),
        (lambda: real.relu(x()) if real.is_tensor(x()) else real.tanh(x()), ["t0", "t1", "torch.relu"]),
        (lambda: real.utils.data.default_collate([x(), x()]), ["t0", "t1", "torch.stack"]),
        (lambda: real.as_tensor(x()) * 2, ["t0", "operator.mul"]),
        (lambda: real.ones(2, 3)[x() > 0], ["t0", "operator.gt", "t1", "torch.Tensor.__getitem__"]),
        (lambda: x()[real.tensor([True, False])], ["t0", "t1", "operator.getitem"]),
        (lambda: x().__getitem__(0), ["t0", "operator.getitem"]),
        (lambda: 3.0 in x() or x() * 2, ["t0", "operator.eq", "any", "builtins.bool", "t1", "operator.mul"]),
        (lambda: reversed(x()), ["t0", "flip"]),
        (lambda: complex(x().sum()) and x() * 2, ["t0", "sum", "item", "t1", "operator.mul"]),
        (labelled, ["t0", "operator.mul"]),
        (
            lambda: real.tensor([x().sum(), 1.0]) * x()[0, 0],
            ["t0", "sum", "builtins.float", "t1", "operator.getitem", "t2", "operator.mul"],
        ),
    ],
    ids=[
        "isinstance", "is_tensor", "default_collate", "as_tensor", "a mask of a plain tensor",
        "a plain mask", "a method of Python's",
        "in", "reversed", "complex", "attributes of the author's", "numbers of a plain tensor",
    ],
)  # fmt: skip
def test_record__tensor_of_the_body__is_one_for_torch_and_for_isinstance(body, targets):
    assert [step.target for step in record(body).program.steps[:-1]] == targets


def test_record__nothing_returned__every_unused_value_is_output():
    def body():
        value = x()
        value * 2
        value.sum()

    attempt = record(body)
    assert [attempt.program.steps[ref.index].name for ref in attempt.program.body[-1].args] == ["mul", "sum"]
    assert set(attempt.cotangents) == {0, 1}


def test_record__nested_outputs__are_flattened():
    attempt = record(lambda: [(y := x()), (y * 2, [y * 3])])
    assert [attempt.program.steps[ref.index].name for ref in attempt.program.body[-1].args] == ["x", "mul", "mul"]


@pytest.mark.parametrize(
    ("body", "positions"),
    [
        pytest.param(lambda: (x() * 2, x() > 0), {0}, id="not for booleans"),
        pytest.param(lambda: x(requires_grad=False) * 2, set(), id="not without grad"),
        pytest.param(lambda: x().detach(), set(), id="not for what is detached"),
        pytest.param(lambda: x(dtype=complex) * 2, {0}, id="complex"),
    ],
)
def test_record__cotangents__are_for_outputs_that_require_grad(body, positions):
    attempt = record(body)
    assert set(attempt.cotangents) == positions
    assert all(weight.dtype is attempt.trace.values[attempt.program.body[-1].args[i].index].dtype for i, weight in attempt.cotangents.items())  # fmt: skip


def test_record__auto_backward_off__has_no_cotangents():
    assert record(lambda: x() * 2, auto_backward=False).cotangents == {}


def test_record__value_used_after_its_test__says_so():
    kept = []
    record(lambda: kept.append(x() * 2))
    with pytest.raises(AuthorError, match="used after its test had ended"):
        real.relu(kept[0])


def test_function__outside_a_test__is_torchs_own():
    assert torch.relu(real.tensor([-1.0, 2.0])).tolist() == [0, 2]
    assert isinstance(torch.nn.Linear(2, 3), real.nn.Linear)
    assert torch.float32 is real.float32


def test_autotest__called_inside_another__records_in_the_outer():
    @autotest()
    def helper(value):
        return value * 2

    assert body_lines(record(lambda: helper(x()) + 1).program) == ["mul = x * 2", "add = mul + 1"]


@pytest.mark.parametrize(
    ("declare", "said"),
    [
        (lambda: autotest(lambda: None), "Write @autotest() with parentheses."),
        (lambda: autotest(profiles=("zero_dims",)), "has no profile 'zero_dims'. Use zero_dim"),
    ],
    ids=["no parentheses", "no such profile"],
)
def test_autotest__wrong_declaration__says_what_to_write(declare, said):
    with pytest.raises(AuthorError) as caught:
        declare()
    assert said in str(caught.value)


def test_record__input_written_by_the_body__source_stays():
    attempt = record(changed(lambda v: bump(v, 100)))
    assert float(attempt.sources["t0"].max()) < 2
    assert float(attempt.trace.values[0].max()) > 90


def test_record__plain_tensor_that_the_body_changes_later__is_kept_as_it_was():
    def body():
        mine = real.ones(3)
        value = x() + mine
        mine.fill_(7)
        return value

    assert record(body).sources["t1"].tolist() == [1, 1, 1]
    assert tried(body, TorchBackend(), BITWISE).outcome == "aligned"


def test_record__user_module_in_plain_torch__records_its_inner_calls():
    class Twice(real.nn.Module):
        def forward(self, value):
            return real.relu(value) * 2

    assert body_lines(record(lambda: Twice()(x())).program) == ["relu = torch.relu(x)", "mul = relu * 2"]


def test_record__seed_of_a_random_step__is_set_on_the_reference_too():
    body = lambda: (torch.rand_like(x()), torch.nn.functional.dropout(x(), 0.5))  # noqa: E731 - a body
    assert [tried(body, TorchBackend(), Rules(0.0, 0.0), case=case).outcome for case in (0, 2, 4)] == ["aligned"] * 3


def test_record__both_sides_of_a_value__are_the_value():
    def body():
        value = x()
        value.oneflow = value.pytorch.detach() * 2
        return value + 1

    assert body_lines(record(body).program) == ["detach = x.detach()", "mul = detach * 2", "add = mul + 1"]


@pytest.mark.parametrize(
    "body",
    [
        lambda: len(torch.unique(random_tensor(1, 6, low=0, high=3, dtype=int))),
        lambda: torch.unique(random_tensor(1, 6, low=0, high=3, dtype=int)).size(0),
        lambda: (torch.unique(random_tensor(1, 6, low=0, high=3, dtype=int)).shape, None),
    ],
    ids=["a length", "a size", "a shape beside nothing"],
)
def test_record__returned_number__is_compared(body):
    assert tried(body, substitute(unique=real.unique)).outcome == "aligned"
    wrong = tried(body, substitute(unique=lambda given: real.unique(given)[1:]))
    assert wrong.outcome == "misaligned"


def test_record__tensor_on_several_ranks__is_unsupported_by_name():
    for body in (lambda: x().to_global(), lambda: x().placement, lambda: torch.nn.Linear(3, 2).to_global()(x())):
        attempt = record(body)
        assert attempt.unsupported.reason is UnsupportedReason.RANKS
        assert not attempt.is_complete
