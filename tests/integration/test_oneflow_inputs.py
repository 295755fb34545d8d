"""Inputs beyond those of OneFlow's harness: a body that cannot take them is excused, and nothing else is."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from ci_autotest import torch
from ci_autotest.compat.oneflow_names import NAMES
from ci_autotest.errors import AuthorError
from tests.engine import record

if TYPE_CHECKING:
    from collections.abc import Callable


def written_array() -> object:
    array = np.ones(2, np.float32)
    y = NAMES["random_tensor"](1, 2) * torch.from_numpy(array)
    array[0] = 3
    return y


def constant() -> object:
    NAMES["random_tensor"](1, 2).sum()
    return 3


def nothing_called() -> None:
    NAMES["random_tensor"](1, 2)


@pytest.mark.parametrize("body", [written_array, constant, nothing_called])
def test_random_tensor__input_that_oneflow_never_draws__excuses_no_fault_of_the_recording(body: Callable[[], object]):
    with pytest.raises(AuthorError):
        record(body, profile="non_contiguous")


def test_random_tensor__input_that_oneflow_never_draws__excuses_the_bodys_own_error():
    def body() -> None:
        assert NAMES["random_tensor"](1, 2).is_contiguous()

    assert record(body, profile="non_contiguous").assumption.startswith("the body does not take inputs")
