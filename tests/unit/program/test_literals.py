"""Tensors as text read back to the same bits, for every dtype."""

from __future__ import annotations

import struct

import numpy as np
import pytest
import torch

from ci_autotest.backends.sameness import byte_view, same_bits
from ci_autotest.program.literals import short_text, tensor_text

FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
COMPLEX = [torch.complex64, torch.complex128]
INTEGERS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]


def text_of(tensor: torch.Tensor) -> str:
    return tensor_text(bytes(byte_view(tensor)), str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape))


def read_back(text: str) -> torch.Tensor:
    return eval(text, {"torch": torch})  # noqa: S307 - what is under test


def extremes(dtype: torch.dtype) -> torch.Tensor:
    info = torch.finfo(dtype)
    values = [0.0, -0.0, 1.0, -1.0, 0.1, 1 / 3, info.eps, 1 + info.eps, info.max, info.min, info.tiny]
    smallest = torch.zeros(1, dtype=dtype).view({2: torch.int16, 4: torch.int32, 8: torch.int64}[dtype.itemsize])
    denormals = (smallest + torch.tensor([1, 2, 3, 1000], dtype=smallest.dtype)).view(dtype)
    return torch.cat([torch.tensor(values, dtype=dtype), denormals, torch.tensor([torch.inf, -torch.inf], dtype=dtype)])


def test_byte_view__zeros_without_memory__are_zeros():
    assert byte_view(torch._efficientzerotensor(2, dtype=torch.float32)) == bytes(8)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_tensor_text__extreme_floats__same_bits(dtype):
    tensor = extremes(dtype)
    assert same_bits(read_back(text_of(tensor)), tensor)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_tensor_text__many_bit_patterns__same_bits(dtype):
    generator = torch.Generator().manual_seed(1)
    size = dtype.itemsize
    drawn = torch.randint(0, 256, (400, size), dtype=torch.uint8, generator=generator).view(dtype).flatten()
    tensor = drawn[~drawn.isnan()]
    assert same_bits(read_back(text_of(tensor)), tensor)


@pytest.mark.parametrize("zero", [complex(0.0, -0.0), complex(-0.0, 0.0), complex(-0.0, -0.0), 0j], ids=str)
def test_tensor_text__complex_zeros__same_bits(zero):
    tensor = torch.tensor([zero] * 3, dtype=torch.complex64)
    assert same_bits(torch.view_as_real(read_back(text_of(tensor))), torch.view_as_real(tensor))


@pytest.mark.parametrize("dtype", FLOATS + COMPLEX, ids=str)
def test_tensor_text__nan__is_nan(dtype):
    found = read_back(text_of(torch.tensor([1.0, torch.nan]).to(dtype)))
    assert found.dtype is dtype
    assert found.isnan().tolist() == [False, True]


@pytest.mark.parametrize("dtype", COMPLEX, ids=str)
def test_tensor_text__complex__same_bits(dtype):
    tensor = torch.tensor([complex(0.1, -0.0), complex(-0.0, torch.inf), 1 / 3 - 1e-40j, 2 + 3j], dtype=dtype)
    assert same_bits(torch.view_as_real(read_back(text_of(tensor))), torch.view_as_real(tensor))


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_tensor_text__integers__same_bits(dtype):
    info = torch.iinfo(dtype)
    tensor = torch.tensor([info.min, 0, 1, 7, info.max], dtype=dtype)
    assert same_bits(read_back(text_of(tensor)), tensor)


@pytest.mark.parametrize("dtype", [torch.bool, *FLOATS, *COMPLEX, *INTEGERS], ids=str)
@pytest.mark.parametrize("value", [0, 1], ids=["zeros", "ones"])
def test_tensor_text__any_shape_of_one_value__same_dtype_shape_and_bits(dtype, value):
    for shape in [(), (1,), (0,), (2, 0, 3), (2, 3), (1, 1, 2)]:
        tensor = torch.full(shape, value).to(dtype)
        found = read_back(text_of(tensor))
        assert (found.dtype, found.shape) == (dtype, tensor.shape)
        assert same_bits(found, tensor), shape


@pytest.mark.parametrize(
    ("tensor", "text"),
    [
        (torch.tensor([1.5, -2.0]), "torch.tensor([1.5, -2.0])"),
        (torch.tensor([0.1, 1e-30]), "torch.tensor([0.1, 1e-30])"),
        (torch.zeros(2, 3), "torch.zeros((2, 3))"),
        (torch.ones(3, dtype=torch.float64), "torch.ones((3,), dtype=torch.float64)"),
        (-torch.zeros(2), "torch.tensor([-0.0, -0.0])"),
        (torch.tensor([1, 2]), "torch.tensor([1, 2])"),
        (torch.tensor([True, False]), "torch.tensor([True, False])"),
        (torch.tensor(2.5), "torch.tensor(2.5)"),
        (torch.empty(0, 2), "torch.zeros((0, 2), dtype=torch.float32)"),
        (torch.tensor([1.0], dtype=torch.bfloat16), "torch.tensor([1.0], dtype=torch.bfloat16)"),
    ],
    ids=["floats", "small", "zeros", "ones", "negative zeros", "integers", "booleans", "0-dim", "empty", "bfloat16"],
)
def test_tensor_text__small_tensor__reads_well(tensor, text):
    assert text_of(tensor) == text


def test_tensor_text__denormal__has_the_shortest_digits():
    tensor = torch.from_numpy(np.array([1e-45, 3e-39], "f4"))
    assert text_of(tensor) == "torch.tensor([1e-45, 3e-39])"


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "int64", "uint8", "bool", "complex64"])
def test_short_text__runs_of_equal_elements__reads_back(dtype: str):
    made = torch.zeros(90, dtype=getattr(torch, dtype))
    made[40:43] = torch.tensor([1, 0, 1]).to(made.dtype)
    made[60:] = 1 if dtype == "bool" else float("nan") if made.is_floating_point() else 7
    data = bytes(byte_view(made))
    for shape in ((90,), (9, 10)):
        text = short_text(data, dtype, shape)
        read = read_back(text)
        torch.testing.assert_close(read, made.reshape(shape), rtol=0, atol=0, equal_nan=True)
        assert text.startswith("torch.cat([torch.")


@pytest.mark.parametrize(
    ("numbers", "expected"),
    [
        ([0.0] * 80, "torch.zeros((80,))"), ([-0.0] * 80, "torch.full((80,), -0.0)"), ([2.5] * 80, "torch.full((80,), 2.5)"),
        ([0.0, 1.0] * 40, ""), ([1.0, 2.0], "torch.tensor([1.0, 2.0])"),
        ([0.0] * 70 + [-0.0] * 9, "torch.cat([torch.zeros((70,)), torch.full((9,), -0.0)])"),
    ],
)  # fmt: skip
def test_short_text__as_few_numbers_as_there_are(numbers: list[float], expected: str):
    assert short_text(struct.pack(f"<{len(numbers)}f", *numbers), "float32", (len(numbers),)) == expected
