"""The repro of a framework without torch compares arrays as one with torch compares tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ci_autotest.repro_functions import arrays, exact_arrays, exact_tensors, tensors
from tests import tensor_pairs

PAIRS = {name: pair for name, pair in tensor_pairs.PAIRS.items() if "sparse" not in name}


def in_numpy(value: Any) -> Any:
    """Return a value as the framework's functions give it: bfloat16 as float32 of the same values."""
    if value is None:
        return None
    dtype = str(value.dtype).rpartition(".")[2]
    return (value.float() if dtype == "bfloat16" else value).numpy(), dtype


@pytest.mark.parametrize("is_exact", [False, True], ids=["tolerance", "exact"])
@pytest.mark.parametrize("pair", PAIRS.values(), ids=PAIRS)
def test_apart__every_pair__differs_as_with_torch(pair: Any, is_exact: bool, monkeypatch: pytest.MonkeyPatch):
    for module in (arrays, tensors):
        for name, value in (("RTOL", 1.6e-2), ("ATOL", 1e-5), ("CHECK_DTYPE", True)):
            monkeypatch.setattr(module, name, value, raising=False)
    if is_exact:
        monkeypatch.setattr(arrays, "assert_alike", exact_arrays.assert_alike)
        monkeypatch.setattr(tensors, "assert_alike", exact_tensors.assert_alike)
    found = arrays.apart(*map(in_numpy, pair))
    assert bool(found) == bool(tensors.apart(*pair)), found


def test_with_zeros__no_gradient__is_as_one_of_zeros():
    ones = (np.ones(2, np.float32), "float32")
    found = arrays.with_zeros(
        {"gradient of x": None, "gradient of y": ones}, {"gradient of x": ones, "gradient of y": ones}
    )
    assert found["gradient of x"][0].tolist() == [0.0, 0.0]
    assert found["gradient of y"] is ones


@pytest.mark.parametrize("other", [1, 1.0, True, np.float64(1.0)])
def test_plain__numbers__are_the_same_as_in_a_run(other: Any, monkeypatch: Any):
    for name, value in (("RTOL", 1e-6), ("ATOL", 1e-5), ("CHECK_DTYPE", True)):
        monkeypatch.setattr(arrays, name, value, raising=False)
    assert arrays.apart(arrays.plain(1.0), arrays.plain(other)) == ""
    assert arrays.apart(arrays.plain(2), arrays.plain(other))


@pytest.mark.parametrize(
    ("value", "kept"), [((1, 2), [1, 2]), (None, None), ("raises", "raises"), (object(), "a object")]
)
def test_plain__a_value_that_is_no_tensor__is_what_is_compared_of_it(value: object, kept: object):
    assert arrays.plain(value) == kept
