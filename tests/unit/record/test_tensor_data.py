"""Data per dtype and range; and what ``random_tensor`` makes of its arguments."""

from __future__ import annotations

import numpy as np
import pytest
import torch as real

from ci_autotest import oneof, random, random_bool, random_tensor, torch
from ci_autotest.errors import AuthorError
from ci_autotest.record.draw.streams import Streams
from ci_autotest.record.draw.tensor_data import default_range, elements
from tests.engine import record

STREAMS = Streams()
STREAMS.open((1, 1))
INTEGERS = ["uint8", "int8", "int16", "int32", "int64"]


def drawn(dtype: str, bounds: tuple[float, float], shape: tuple[int, ...] = (50, 40)) -> np.ndarray:
    return elements(STREAMS, "site", dtype, shape, bounds)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
@pytest.mark.parametrize("bounds", [(-1.0, 1.0), (0.1, 2.0), (-3.0, -2.0)], ids=str)
def test_elements__floats__fill_the_range(dtype, bounds):
    found = drawn(dtype, bounds)
    low, high = bounds
    assert found.dtype == ("float64" if dtype == "float64" else "float32")
    assert found.shape == (50, 40)
    assert bool((found >= np.float32(low)).all())
    assert bool((found < np.float32(high)).all())
    assert abs(float(found.mean()) - (low + high) / 2) < 0.05 * (high - low)
    assert abs(float(found.std()) - (high - low) / 12**0.5) < 0.05 * (high - low)


@pytest.mark.parametrize("dtype", INTEGERS)
def test_elements__integers__take_each_value(dtype):
    low, high = (0, 5) if dtype == "uint8" else (-2, 5)
    found = drawn(dtype, (low, high))
    assert found.dtype == dtype
    assert set(found.flatten().tolist()) == set(range(low, high))


def test_elements__bool__takes_both():
    found = drawn("bool", (0, 2))
    assert found.dtype == bool
    assert 0.4 < found.mean() < 0.6


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_elements__complex__fills_both_parts(dtype):
    found = drawn(dtype, (-10.0, 10.0))
    assert found.dtype == dtype
    assert found.shape == (50, 40)
    for part in (found.real, found.imag):
        assert part.min() < -9
        assert part.max() > 9
    assert abs(np.corrcoef(found.real.flatten(), found.imag.flatten())[0, 1]) < 0.1


@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (1,), (5,)], ids=str)
def test_elements__any_shape__is_that_shape(shape):
    assert drawn("float32", (-1, 1), shape).shape == shape


def test_elements__longer__begins_alike():
    assert drawn("float32", (-1, 1), (3,)).tolist() == drawn("float32", (-1, 1), (9,)).tolist()[:3]


def test_elements__float32__has_24_bits():
    lowest = np.abs(drawn("float32", (0.0, 1.0), (20_000,)) * 2**24) % 2
    assert 0.4 < lowest.mean() < 0.6


@pytest.mark.parametrize(
    ("dtype", "bounds"),
    [("float32", (-1.0, 1.0)), ("int64", (-10, 11)), ("uint8", (0, 11)), ("complex64", (-10.0, 10.0))],
)
def test_default_range__per_dtype__is_signed(dtype, bounds):
    assert default_range(dtype) == bounds


def tensors(count: int = 30, **how) -> list[real.Tensor]:
    return [
        record(lambda: random_tensor(**how) * 1, 2 * case, profile="ordinary").trace.values[0] for case in range(count)
    ]


def test_random_tensor__free__has_one_to_five_dimensions_of_one_to_seven():
    found = tensors(60)
    assert {t.dim() for t in found} == {1, 2, 3, 4, 5}
    assert {size for t in found for size in t.shape} == set(range(1, 8))
    assert all(t.requires_grad and t.dtype is real.float32 for t in found)


@pytest.mark.parametrize(
    ("how", "shapes"),
    [
        pytest.param({"ndim": 2, "dim0": 3, "dim1": 4}, {(3, 4)}, id="given"),
        pytest.param({"ndim": 0}, {()}, id="0-dim"),
        pytest.param({"ndim": 1, "dim0": 0}, {(0,)}, id="empty"),
        pytest.param({"ndim": 1, "dim0": random(2, 4).to(int)}, {(2,), (3,)}, id="a generator"),
        pytest.param({"ndim": 1, "dim0": random(2, 4)}, {(2,), (3,)}, id="an untyped generator is a size"),
        pytest.param({"ndim": random(1, 3), "dim0": 2, "dim1": 2}, {(2,), (2, 2)}, id="ndim a generator"),
    ],
)
def test_random_tensor__sizes__are_as_asked(how, shapes):
    assert {tuple(t.shape) for t in tensors(**how)} == shapes


def test_random_tensor__dim_given_and_ndim_not__has_at_least_that_many():
    assert {t.dim() for t in tensors(60, dim2=3)} == {3, 4, 5}


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [
        (float, real.float32), (int, real.int64), (bool, real.bool), (complex, real.complex64),
        (real.float64, real.float64), (real.float16, real.float16), (real.bfloat16, real.bfloat16),
        (real.int32, real.int32), (real.uint8, real.uint8), (real.complex128, real.complex128),
    ],
    ids=str,
)  # fmt: skip
def test_random_tensor__dtype__is_as_asked_and_only_floats_require_grad(dtype, expected):
    found = record(lambda: random_tensor(ndim=1, dtype=dtype).clone()).trace.values[0]
    assert found.dtype is expected
    assert found.requires_grad == (expected.is_floating_point or expected.is_complex)


def test_random_tensor__dtype_a_generator__is_drawn():
    assert {t.dtype for t in tensors(dtype=oneof(real.float32, torch.float64))} == {real.float32, real.float64}


def test_random_tensor__requires_grad_a_generator__is_drawn():
    assert {t.requires_grad for t in tensors(requires_grad=random_bool())} == {True, False}


@pytest.mark.parametrize(
    ("bounds", "least", "most"),
    [
        pytest.param({"low": 5, "high": 8}, 5, 7, id="both"),
        pytest.param({"low": 5}, 5, 10, id="low: up to the default"),
        pytest.param({"high": -5}, -10, -6, id="high: from the default"),
    ],
)
def test_random_tensor__integer_bounds__are_kept(bounds, least, most):
    found = record(lambda: random_tensor(ndim=2, dim0=40, dim1=20, dtype=int, **bounds) + 0).trace.values[0]
    assert (int(found.min()), int(found.max())) == (least, most)


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({"ndim": 2, "dim2": 3}, "random_tensor(ndim=2) got dim2 too. Drop it, or raise ndim to 3."),
        ({"ndim": 1, "dim0": -1}, "random_tensor() got a negative size: (-1,). Sizes are 0 or more."),
        ({"low": 2, "high": 1}, "random_tensor(low=2, high=1) has an empty range. Give low below high."),
        ({"low": 2}, "has an empty range. Give low below high."),
        ({"dtype": str}, "data cannot be drawn for that dtype. Use float, int, torch.float64"),
        ({"dtype": "float33"}, "data cannot be drawn for that dtype."),
    ],
    ids=["a dimension too many", "negative size", "empty range", "low above the default high", "str", "unknown name"],
)
def test_random_tensor__contradictory__says_what_to_write(how, said):
    with pytest.raises(AuthorError) as caught:
        record(lambda: random_tensor(**how))
    assert said in str(caught.value)


def test_random_tensor__outside_a_test__says_so():
    with pytest.raises(AuthorError, match=r"random_tensor\(\) was called outside a test"):
        random_tensor()
