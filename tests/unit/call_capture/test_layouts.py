from __future__ import annotations

import pytest
import torch

from ci_autotest.call_capture.layouts import layout_of
from ci_autotest.program.ir import TensorSpec
from tests.unit.call_capture.views import VIEWS


@pytest.mark.parametrize("name", VIEWS)
def test_layout_of__view__is_an_expression_with_its_strides(name):
    make, suffixes = VIEWS[name]
    wanted = make()
    found = layout_of(TensorSpec("float32", tuple(wanted.shape), wanted.stride()))
    assert found is not None
    dims, layout = found
    # The expression is one of ours, over zeros.
    view = eval(f"tensor{''.join(layout.suffixes())}", {"tensor": torch.zeros(dims), "torch": torch})  # noqa: S307
    own = [(size, stride) for size, stride in zip(view.shape, view.stride(), strict=True) if size > 1]
    given = [(size, stride) for size, stride in zip(wanted.shape, wanted.stride(), strict=True) if size > 1]
    assert (view.shape, own if wanted.numel() else given, layout.suffixes()) == (wanted.shape, given, suffixes)


def test_layout_of__overlapping_windows__has_no_expression():
    windows = torch.zeros(9).unfold(0, 3, 1)
    assert layout_of(TensorSpec("float32", tuple(windows.shape), windows.stride())) is None
