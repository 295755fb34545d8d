"""What a repro compares it compares as a run does: the same pairs differ."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from ci_autotest.alignment.compare import compare
from ci_autotest.backends.snapshots import observed
from ci_autotest.repro_functions import exact_tensors, sides, tensors
from ci_autotest.values.tolerance import Tolerance
from tests.tensor_pairs import PAIRS, t


@pytest.fixture(params=["tolerance", "bitwise"])
def strictness(request: Any, monkeypatch: pytest.MonkeyPatch) -> str:
    limits = (1.6e-2, 1e-5) if request.param == "tolerance" else (0.0, 0.0)
    for name, value in zip(("RTOL", "ATOL", "CHECK_DTYPE"), (*limits, True), strict=True):
        monkeypatch.setattr(tensors, name, value, raising=False)
    if request.param == "bitwise":
        monkeypatch.setattr(tensors, "assert_alike", exact_tensors.assert_alike)
    return request.param


@pytest.mark.parametrize("pair", PAIRS.values(), ids=PAIRS)
def test_apart__every_pair__differs_as_in_a_run(pair: tuple[Any, Any], strictness: str):
    left, right = pair
    # Integers are compared exactly unless a test allows a difference.
    is_exact = strictness == "bitwise" or not (right.is_floating_point() or right.is_complex())
    limits = (0.0, 0.0) if is_exact else (1.6e-2, 1e-5)
    found = compare(observed(left), observed(right), Tolerance(*limits, strictness=strictness))  # type: ignore[arg-type]
    assert bool(tensors.apart(left, right)) == (found is not None), tensors.apart(left, right)


def test_apart__a_difference__says_how_many_elements_how_much_and_where(monkeypatch: pytest.MonkeyPatch):
    for name, value in (("RTOL", 1e-6), ("ATOL", 1e-5), ("CHECK_DTYPE", True)):
        monkeypatch.setattr(tensors, name, value, raising=False)
    said = tensors.apart(t(1.0, 2.0, 3.5), t(1.0, 2.0, 3.0))
    assert "Mismatched elements: 1 / 3 (33.3%)" in said
    assert "Greatest absolute difference: 0.5 at index (2,)" in said


@pytest.mark.parametrize(
    ("value", "kept"),
    [("raises", "raises"), (2**60, 2**60), (torch.float16, torch.float16), (torch.Size([1, 2]), [1, 2]),
     ([1, 2], [1, 2]), (None, None), (object(), "an object")],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_plain__a_value_that_is_no_tensor__is_what_is_compared_of_it(value: object, kept: object):
    assert tensors.plain(value) == kept


@pytest.mark.parametrize("other", [1, 1.0, True, np.float64(1.0)])
def test_plain__numbers__are_the_same_as_in_a_run(other: Any, monkeypatch: pytest.MonkeyPatch):
    for name, value in (("RTOL", 1e-6), ("ATOL", 1e-5), ("CHECK_DTYPE", True)):
        monkeypatch.setattr(tensors, name, value, raising=False)
    assert tensors.apart(tensors.plain(1.0), tensors.plain(other)) == ""
    assert tensors.apart(tensors.plain(2), tensors.plain(other))


def test_gradients_of__what_no_output_depends_on__is_zero():
    x, y = torch.ones(2, requires_grad=True), torch.ones(3, requires_grad=True)
    roots = sides.roots_of([x * 2], {0: torch.ones(2)})
    found = sides.gradients_of(roots, {"x": x, "y": y})
    assert {name: value.tolist() for name, value in found.items()} == {
        "gradient of x": [2.0, 2.0],
        "gradient of y": [0.0, 0.0, 0.0],
    }
    assert sides.gradients_of([], {"x": x})["gradient of x"].tolist() == [0.0, 0.0]


def test_roots_of__a_cotangent_that_is_a_view__keeps_its_strides():
    x = torch.ones(2, 3, requires_grad=True)
    ((_, weight),) = sides.roots_of([x * 1], {0: torch.ones(3, 2).t()})
    assert weight.stride() == (1, 2)


def test_shared_with__views__are_named():
    x, y = torch.ones(4), torch.ones(4)
    assert sides.shared_with(x[1:], {"x": x, "y": y}) == ["x"]
    assert sides.shared_with(None, {"x": x}) == []
