"""The repro of a framework without torch compares arrays as one with torch compares tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ci_autotest.repro_functions import arrays, exact_arrays, tensors
from tests.unit.repro_functions import test_tensors as of_torch

PAIRS = {name: pair for name, pair in of_torch.PAIRS.items() if "sparse" not in name}


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
        monkeypatch.setattr(tensors, "assert_alike", of_torch.exact_tensors.assert_alike)
    found = arrays.apart(*map(in_numpy, pair))
    assert bool(found) == bool(tensors.apart(*pair)), found


@pytest.mark.parametrize(
    ("gradient", "is_none"), [(None, True), ((np.zeros(2), "float32"), True), ((np.ones(2), "float32"), False)]
)
def test_unless_zero__gradient_of_zeros__is_as_none(gradient: Any, is_none: bool):
    assert (arrays.unless_zero(gradient) is None) is is_none


@pytest.mark.parametrize(
    ("value", "kept"), [((1, 2), [1, 2]), (None, None), ("raises", "raises"), (object(), "a object")]
)
def test_plain__a_value_that_is_no_tensor__is_what_is_compared_of_it(value: object, kept: object):
    assert arrays.plain(value) == kept
