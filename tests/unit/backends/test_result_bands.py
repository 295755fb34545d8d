"""Guard bands around what a call allocates: writes into them are found, and the call sees nothing of them."""

from __future__ import annotations

import ctypes

import pytest
import torch

from ci_autotest.backends.result_bands import OutOfBoundsError, ResultBands

#: The same memory by each way to allocate it.
ALLOCATIONS = {
    "empty": lambda: torch.empty(5),
    "empty, requires grad": lambda: torch.empty(5, requires_grad=True),
    "empty_like": lambda: torch.empty_like(torch.ones(5)),
    "empty_strided": lambda: torch.empty_strided((5,), (1,)),
    "new_empty": lambda: torch.ones(1).new_empty(5),
    "zeros": lambda: torch.zeros(5),
    "ones": lambda: torch.ones(5),
    "full": lambda: torch.full((5,), 2.0),
    "rand": lambda: torch.rand(5),
    "arange": lambda: torch.arange(5.0),
    "tensor": lambda: torch.tensor([1.0] * 5),
    "clone": lambda: torch.ones(5).clone(),
    "to": lambda: torch.ones(5, dtype=torch.float64).to(torch.float32),
    "result of an operator": lambda: torch.ones(5) + 1,
}
DTYPES = (
    torch.float64, torch.float32, torch.bfloat16, torch.float16, torch.float8_e4m3fn, torch.complex64, torch.int64,
    torch.int32, torch.uint8, torch.bool,
)  # fmt: skip


def write(tensor, position, size_bytes=1):
    """Write 0x55 to bytes, counted from the first of a tensor."""
    ctypes.memset(tensor.data_ptr() + position, 0x55, size_bytes)


@torch.library.custom_op("result_bands::past_its_end", mutates_args=())
def past_its_end(x: torch.Tensor) -> torch.Tensor:
    found = torch.empty_like(x)
    write(found, found.numel() * 4, 8)
    return found


def said_of(call, *, has_zeros=False):
    """Return what the bands say of a call."""
    try:
        with ResultBands(has_zeros=has_zeros):
            call()
    except OutOfBoundsError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("has_zeros", [False, True], ids=["nan", "zeros"])
def test_result_bands__write_beside_each_allocation__is_found(has_zeros):
    said = {
        (name, where): said_of(lambda make=make, at=at: write(make(), at), has_zeros=has_zeros)
        for name, make in ALLOCATIONS.items()
        for where, at in (("before", -3), ("behind", 20), ("within", 3))
    }
    wrong = {
        key: text
        for key, text in said.items()
        if (f"1 element {key[1]} the float32[5]" in text) is (key[1] == "within")
    }
    assert wrong == {}


def test_result_bands__each_dtype__counts_elements():
    said = [
        said_of(lambda dtype=dtype: write(torch.empty(3, dtype=dtype), 3 * dtype.itemsize, 2 * dtype.itemsize))
        for dtype in DTYPES
    ]
    names = [str(dtype).removeprefix("torch.") for dtype in DTYPES]
    assert said == [f"writes 2 elements behind the {name}[3] that it gets from torch.empty" for name in names]


def test_result_bands__operator_of_a_library__is_looked_into():
    said = said_of(lambda: past_its_end(torch.ones(3)))
    assert said == "writes 2 elements behind the float32[3] that it gets from torch.empty_like"


def test_result_bands__several_writes__are_all_named():
    def call():
        first, second = torch.empty(2), torch.zeros(3)
        write(first, -1)
        write(second, 12)

    assert said_of(call) == (
        "writes 1 element before the float32[2] that it gets from torch.empty; "
        "writes 1 element behind the float32[3] that it gets from torch.zeros"
    )


def test_result_bands__right_call__sees_nothing_of_them():
    with ResultBands(has_zeros=False):
        made = [make() for make in ALLOCATIONS.values()]
        made += [torch.empty_strided((2, 3), (1, 2)), torch.ones(2, 3).t().contiguous(), torch.empty(2, 3, 4, 4)]
        views = made[0][1:3], made[0].detach()
        seen = [
            (
                x.storage_offset(),
                x.untyped_storage().nbytes() == 4 * x.numel(),
                x._version,
                x._is_view(),
                x.data_ptr() % 64,
            )
            for x in made
        ]
        resized = torch.add(torch.ones(4), 1, out=torch.empty(0))
        replaced = torch.empty(3)
        replaced.set_(torch.ones(7))
    assert seen == [(0, True, 0, False, 0)] * len(made)
    assert (resized.tolist(), replaced.tolist(), views[0].shape) == ([2.0] * 4, [1.0] * 7, (2,))
    assert made[-3].stride() == (1, 2)


def test_result_bands__gradients__are_those_of_a_plain_call():
    class Doubled(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            found = torch.empty_like(x)
            return torch.mul(x, 2, out=found)

        @staticmethod
        def backward(ctx, gradient):
            return gradient * 2

    x = torch.ones(3, requires_grad=True)
    with ResultBands(has_zeros=False):
        Doubled.apply(x).sum().backward()
    assert x.grad.tolist() == [2.0, 2.0, 2.0]


def test_result_bands__call_that_raises__raises_its_own_error():
    def call():
        write(torch.empty(1), 4)
        message = "its own"
        raise ValueError(message)

    with pytest.raises(ValueError, match="its own"):
        said_of(call)
