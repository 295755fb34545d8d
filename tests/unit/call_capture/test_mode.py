from __future__ import annotations

from enum import Enum, IntEnum

import numpy as np
import pytest
import torch

from ci_autotest.call_capture import mode as mode_module
from ci_autotest.call_capture.mode import CallMode
from ci_autotest.call_capture.observation import Omission


class Dimension(IntEnum):
    ROWS = 0
    COLUMNS = 1


class Mode(str, Enum):
    AREA = "area"
    LINEAR = "linear"


class Bits(int):
    """An integer that no test can write."""


def captured(program):
    mode = CallMode()
    with mode:
        program()
    return mode.capture()


def test_call_mode__one_operator_twenty_thousand_times__is_one_call_with_a_count():
    x = torch.ones(2)

    def program():
        for number in range(20_000):
            x.mul_(1.0 + number * 1e-9)

    mode = CallMode()
    with mode:
        program()
    (call,) = mode.capture().calls
    assert (call.count, len(call.floats), len(mode._observed)) == (20_000, 4, 1)


def test_call_mode__new_sizes_in_every_call__memory_is_bounded_and_the_rest_is_counted():
    found = captured(lambda: [torch.ones(size).exp() for size in range(500)])
    assert (len(found.calls), found.omissions) == (
        2 * mode_module._OF_ONE,
        (
            Omission("torch.ones", "more than 128 different calls", 372),
            Omission("torch.Tensor.exp", "more than 128 different calls", 372),
        ),
    )


def test_call_mode__reads_of_metadata__are_no_calls():
    x = torch.ones(2, 3)
    found = captured(lambda: (x.shape, x.size(0), x.dim(), len(x), x.item if False else x.dtype, x.tolist()))
    assert (found.calls, found.omissions) == ((), ())


def test_call_mode__call_that_is_refused__is_no_test():
    def program():
        with pytest.raises(RuntimeError):
            torch.ones(2, 3) @ torch.ones(2, 3)

    assert [call.target for call in captured(program).calls] == ["torch.ones"]


def test_call_mode__reflected_operator__is_written_as_python_writes_it():
    x = torch.ones(2)
    (call,) = captured(lambda: 1 - x).calls
    assert (call.target, call.args) == ("operator.sub", [1, {"ref": 0}])


def test_call_mode__result_and_gradient__are_those_without_it():
    torch.manual_seed(0)
    layer = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Dropout(0.5), torch.nn.ReLU(inplace=True))
    x = torch.randn(3, 4, requires_grad=True)

    def step():
        torch.manual_seed(1)
        x.grad = None
        found = layer(x)
        found.sum().backward()
        return found, x.grad

    plain = step()
    with CallMode():
        seen = step()
    assert all(map(torch.equal, plain, seen))


def test_call_mode__first_call_without_gradients__a_later_one_with_them_is_kept():
    x = torch.ones(2, requires_grad=True)

    def program():
        with torch.no_grad():
            x.exp()
        x.exp()

    found = captured(program).calls
    assert [call.tensors[0].tensor_spec().requires_grad for call in found] == [False, True]


@pytest.mark.parametrize(
    ("call", "given", "plain"),
    [
        pytest.param(torch.mul, [np.float64(0.1)], [0.1], id="float of numpy"),
        pytest.param(torch.sum, [np.int64(0), np.int64(1)], [0, 1], id="integers of numpy"),
        pytest.param(torch.sum, [Dimension.ROWS, Dimension.COLUMNS], [0, 1], id="IntEnum"),
        pytest.param(
            lambda x, mode: torch.nn.functional.interpolate(x, 4, mode=mode),
            [Mode.AREA, Mode.LINEAR],
            ["area", "linear"],
            id="enumeration of texts",
        ),
    ],
)
def test_call_mode__argument_that_stands_for_a_plain_one__is_the_plain_one(call, given, plain):
    x = torch.ones(1, 2, 3)
    found = captured(lambda: [call(x, value) for value in given])
    values = [dict(one.kwargs).get("mode", one.args[-1]) for one in found.calls]
    assert (values, [*map(type, values)], found.omissions) == (plain, [*map(type, plain)], ())


def test_call_mode__argument_of_a_class_of_the_authors__is_said_to_be_one():
    x = torch.ones(2)
    assert captured(lambda: torch.mul(x, Bits(2))).omissions == (Omission("torch.mul", "a Bits as an argument", 1),)


def test_call_mode__number_of_numpy_that_python_lacks__is_an_omission():
    x = torch.ones(2)
    (omission,) = captured(lambda: torch.mul(x, np.longdouble(0.5))).omissions
    assert omission.reason == "a longdouble as an argument"


def test_call_mode__autocast_to_two_dtypes__is_two_calls():
    x = torch.ones(2, 2)

    def program():
        for dtype in (torch.bfloat16, torch.float16):
            with torch.autocast("cpu", dtype):
                torch.mm(x, x)
        torch.mm(x, x)

    assert [call.modes for call in captured(program).calls] == [["autocast:bfloat16"], ["autocast:float16"], []]


@pytest.mark.parametrize(
    ("kind", "named"), [("cuda", "cuda"), ("hpu", "another device")], ids=["kind that is asked for", "any other"]
)
def test_call_mode__autocast_for_another_device__is_told_and_the_call_without_it_is_kept(kind, named):
    x = torch.ones(2, 2)

    def program():
        torch.set_autocast_enabled(kind, True)
        try:
            torch.mm(x, x)
        finally:
            torch.set_autocast_enabled(kind, False)
        torch.mm(x, x)

    found = captured(program)
    assert [(call.target, call.modes, call.count) for call in found.calls] == [("torch.mm", [], 1)]
    assert found.omissions == (Omission("torch.mm", f"a call under autocast for {named}, not for cpu", 1),)


def test_call_mode__autograd_function_of_the_program__is_told():
    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            return grad * 2

    found = captured(lambda: Double.apply(torch.ones(2, requires_grad=True)))
    assert [(one.name.rpartition(".")[2], one.count) for one in found.omissions] == [("Double", 1)]
    assert "counted" not in repr(torch.autograd.Function.__dict__["apply"].__func__)
