"""Sources of tensors: the part of a storage that their elements span, and how they lie in it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

from ci_autotest.backends.input_copies import laid_out, source_of
from ci_autotest.program.ir import TensorSpec

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.mark.parametrize(
    ("make", "spec"),
    [
        pytest.param(lambda: torch.arange(6.0).view(2, 3), TensorSpec.plain("float32", (2, 3)), id="contiguous"),
        pytest.param(
            lambda: torch.arange(6.0).view(2, 3)[1:], TensorSpec.plain("float32", (1, 3)), id="from an offset"
        ),
        pytest.param(
            lambda: torch.arange(6.0).view(2, 3)[:, ::2], TensorSpec("float32", (2, 2), (3, 2), 0, 6), id="sliced"
        ),
        pytest.param(lambda: torch.ones(1).expand(3), TensorSpec("float32", (3,), (0,), 0, 1), id="expanded"),
        pytest.param(lambda: torch.ones(4, 0)[::2], TensorSpec.plain("float32", (2, 0)), id="without elements"),
        pytest.param(
            lambda: torch.tensor([1j, 2]).conj(), TensorSpec.plain("complex64", (2,)), id="conjugated in place"
        ),
    ],
)
def test_source_of__of_a_tensor__has_its_elements_in_its_layout(
    make: Callable[[], torch.Tensor], spec: TensorSpec
) -> None:
    tensor = make()
    source, found = source_of(tensor)

    assert found == spec
    assert source.numel() == spec.storage_size
    assert laid_out(source, found).tolist() == tensor.tolist()
