"""Nests of Python values: what is changed keeps its containers, and what is read keeps its order."""

from __future__ import annotations

from typing import NamedTuple

import pytest
import torch

from ci_autotest.backends.nest import holds_tensor, leaves, mapped, tensors_in


class Pair(NamedTuple):
    """A tuple with names."""

    first: object
    second: object


ONE, TWO = torch.tensor(1), torch.tensor(2)


@pytest.mark.parametrize(
    ("value", "changed"),
    [
        pytest.param(ONE, "1", id="a tensor"),
        pytest.param([ONE, (TWO, 3)], ["1", ("2", 3)], id="lists and tuples"),
        pytest.param({"a": [TWO], "b": None}, {"a": ["2"], "b": None}, id="a dictionary"),
        pytest.param(Pair(ONE, "x"), Pair("1", "x"), id="a tuple with names"),
        pytest.param(torch.Size([2, 3]), torch.Size([2, 3]), id="a size"),
    ],
)
def test_mapped__changes_tensors_and_keeps_containers(value: object, changed: object) -> None:
    found = mapped(value, lambda tensor: str(tensor.item()))  # type: ignore[arg-type, return-value]

    assert (type(found), found) == (type(changed), changed)


def test_leaves__of_a_nest__are_in_order() -> None:
    assert list(leaves([1, (2, {"a": 3, "b": [None]}), torch.Size([4]), slice(5)])) == [1, 2, 3, None, 4, slice(5)]


def test_tensors_in__of_a_nest__leaves_out_other_values() -> None:
    assert list(map(int, tensors_in((2, [TWO], {"a": ONE})))) == [2, 1]


@pytest.mark.parametrize(
    ("value", "holds"),
    [
        pytest.param([1, (ONE,)], True, id="a tensor in a tuple in a list"),
        pytest.param((1, "x"), False, id="no tensor"),
    ],
)
def test_holds_tensor(value: object, holds: bool) -> None:
    assert holds_tensor(value) is holds
