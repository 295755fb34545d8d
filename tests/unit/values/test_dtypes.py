"""The table of dtypes, held against torch, numpy, safetensors and torch.testing."""

from __future__ import annotations

import numpy as np
import pytest
import safetensors.torch
import torch
from torch.testing._comparison import default_tolerances

from ci_autotest.host.binding import storage_of
from ci_autotest.program.literals import array_of, rounded_bytes
from ci_autotest.record.draw.dtypes import GROUPS
from ci_autotest.values.dtypes import (
    BITS,
    COMPLEX,
    DIFFERENTIABLE,
    DTYPES,
    FLOAT8,
    FLOATING,
    HALF,
    INTEGERS,
    NUMPY_FORMATS,
    OF_PYTHON,
    PARTS,
    TOLERANCES,
    UNSIGNED,
    WIDE,
)
from ci_autotest.values.tolerance import tolerance_for

#: Numbers that every floating dtype of the table holds exactly.
NUMBERS = (0.0, -0.0, 1.0, -1.5, 240.0, 2.0**-14, float("inf"), float("-inf"))
each_dtype = pytest.mark.parametrize("name", DTYPES)


def of_torch(name: str) -> torch.dtype:
    return getattr(torch, name)


def those(predicate) -> set[str]:
    return {name for name in DTYPES if predicate(of_torch(name))}


def is_integer(dtype: torch.dtype) -> bool:
    return not (dtype.is_floating_point or dtype.is_complex or dtype is torch.bool)


def numpy_dtype(name: str) -> np.dtype | None:
    try:
        return torch.empty(0, dtype=of_torch(name)).numpy().dtype
    except TypeError:
        return None


def bytes_of(tensor: torch.Tensor) -> bytes:
    return tensor.view(torch.uint8).numpy().tobytes()


@each_dtype
def test_dtypes__size_and_numpy_format__are_those_of_torch(name):
    row, found = DTYPES[name], numpy_dtype(name)
    assert (row.name, row.size_bytes) == (name, of_torch(name).itemsize)
    assert (None if row.numpy is None else np.dtype(row.numpy)) == found
    assert storage_of(bytes(row.size_bytes), name).shape == (1,)


def test_dtypes__sets__are_those_of_torch():
    assert those(lambda dtype: dtype.is_floating_point) == FLOATING
    assert those(lambda dtype: dtype.is_complex) == COMPLEX
    assert those(is_integer) == INTEGERS
    assert those(lambda dtype: is_integer(dtype) and not dtype.is_signed) == UNSIGNED
    assert those(lambda dtype: dtype.is_floating_point and torch.finfo(dtype).bits == 16) == HALF
    assert those(lambda dtype: dtype.is_floating_point and torch.finfo(dtype).bits == 8) == FLOAT8
    assert those(lambda dtype: dtype.is_floating_point or dtype.is_complex) == DIFFERENTIABLE | FLOAT8
    assert DTYPES.keys() - FLOATING - COMPLEX - INTEGERS == {"bool"}


@each_dtype
def test_dtypes__requires_grad__is_refused_for_others(name):
    if name in DIFFERENTIABLE | FLOAT8:
        assert torch.zeros(1, dtype=of_torch(name), requires_grad=True).requires_grad
    else:
        with pytest.raises(RuntimeError, match="floating point and complex"):
            torch.zeros(1, dtype=of_torch(name), requires_grad=True)


@pytest.mark.parametrize("name", TOLERANCES)
def test_tolerances__each_dtype__are_those_of_torch_testing(name):
    own = {"float8_e4m3fn": (2.0**-3, 2.0**-9), "float8_e5m2": (2.0**-2, 2.0**-16)}  # torch has none for these
    assert TOLERANCES[name] == own.get(name, default_tolerances(of_torch(name)))
    assert (tolerance_for(name).rtol, tolerance_for(name).atol) == TOLERANCES[name]


def test_parts__complex_dtypes__are_those_of_their_real_part():
    assert {name: str(torch.zeros(1, dtype=of_torch(name)).real.dtype)[6:] for name in COMPLEX} == PARTS


def test_wide__narrower_dtypes__are_those_that_a_float64_changes():
    promoted = {name: str(torch.promote_types(of_torch(name), torch.float64))[6:] for name in DIFFERENTIABLE}
    promoted |= dict.fromkeys(FLOAT8, "float64")  # torch promotes these with nothing
    assert {name: wide for name, wide in promoted.items() if wide != name} == WIDE


@pytest.mark.parametrize("kind", OF_PYTHON)
def test_of_python__each_type__is_what_torch_makes_of_its_numbers(kind):
    assert torch.tensor(kind(1)).dtype is of_torch(OF_PYTHON[kind])


@pytest.mark.parametrize("name", sorted(DTYPES.keys() - COMPLEX))
def test_safetensors__names__are_read_as_the_dtype(name):
    data = safetensors.torch.save({"x": torch.zeros(1, dtype=of_torch(name))})
    assert safetensors.deserialize(data)[0][1]["dtype"] == DTYPES[name].safetensors


@pytest.mark.parametrize("name", sorted(FLOATING))
def test_elements__each_floating_dtype__are_converted_both_ways(name):
    tensor = torch.tensor(NUMBERS, dtype=torch.float64).to(of_torch(name))
    assert array_of(bytes_of(tensor), name, (-1,)).astype(np.float64).tobytes() == bytes_of(tensor.double())
    assert rounded_bytes(np.array(NUMBERS), name) == bytes_of(tensor)


@pytest.mark.parametrize("name", sorted(FLOAT8))
def test_elements__each_byte_of_a_float8__is_the_number_that_torch_reads(name):
    every = torch.arange(256, dtype=torch.uint8)
    numbers = every.view(of_torch(name)).double().numpy()
    np.testing.assert_array_equal(array_of(bytes(range(256)), name, (-1,)).astype(np.float64), numbers)
    is_number = ~np.isnan(numbers)
    assert rounded_bytes(numbers[is_number], name) == bytes(np.arange(256, dtype=np.uint8)[is_number])


@pytest.mark.parametrize("name", sorted(FLOAT8))
def test_rounded_bytes__numbers_between_those_of_a_float8__are_rounded_as_torch_does(name):
    numbers = np.concatenate([np.linspace(-500, 500, 4001), np.linspace(-1e-2, 1e-2, 4001), [7e4, -7e4]])
    assert rounded_bytes(numbers, name) == bytes_of(torch.from_numpy(numbers).to(of_torch(name)))


def test_bits__dtypes_without_a_numpy_format__have_integers_of_their_size():
    assert BITS.keys() == DTYPES.keys() - NUMPY_FORMATS.keys()
    assert {name: np.dtype(bits).itemsize for name, bits in BITS.items()} == {
        name: DTYPES[name].size_bytes for name in BITS
    }


@pytest.mark.parametrize(
    ("group", "names"),
    [
        ("bool", ("bool",)),
        ("uint", ("uint8",)),
        ("int", ("int8", "int16", "int32", "int64")),
        ("index", ("int32", "int64")),
        ("half", ("float16", "bfloat16")),
        ("float", ("float32", "float64")),
        ("complex", ("complex64", "complex128")),
        ("arithmetic", ("uint8", "int8", "int16", "int32", "int64", "float32", "float64")),
    ],
)
def test_groups__dtypes_of_oneflow__are_in_its_order(group, names):
    oneflow = {"bool", "uint8", "int8", "int16", "int32", "int64", *FLOATING, *COMPLEX}
    assert tuple(name for name in GROUPS[group] if name in oneflow) == names
