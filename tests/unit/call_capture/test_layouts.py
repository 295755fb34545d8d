from __future__ import annotations

import pytest
import torch

from ci_autotest.call_capture.layouts import layout_of
from ci_autotest.program.ir import TensorSpec

VIEWS = {
    "contiguous": (lambda: torch.zeros(2, 3, 4), []),
    "size one": (lambda: torch.zeros(2, 1, 4).transpose(0, 1).transpose(0, 1), []),
    "empty": (lambda: torch.zeros(2, 0, 4).transpose(0, 2), []),
    "transposed": (lambda: torch.zeros(2, 3, 4).transpose(0, 2), [".transpose(0, 2)"]),
    "permuted": (lambda: torch.zeros(2, 3, 4).permute(2, 0, 1), [".permute(2, 0, 1)"]),
    "part of a projection": (lambda: torch.zeros(2, 5, 12)[..., 4:8], ["[:, :, :4]"]),
    "heads": (
        lambda: torch.zeros(2, 5, 24)[..., :8].view(2, 5, 2, 4).transpose(1, 2),
        ["[:, :, :2]", ".transpose(1, 2)"],
    ),
    "rows": (lambda: torch.zeros(7, 3)[2:4], []),
    "stepped": (lambda: torch.zeros(2, 8)[:, ::2], ["[:, ::2]"]),
    "expanded": (lambda: torch.zeros(3, 1).expand(3, 5), [".expand(-1, 5)"]),
    "expanded in front": (lambda: torch.zeros(3, 2).expand(4, 3, 2), [".expand(4, -1, -1)"]),
    "channels last": (
        lambda: torch.zeros(2, 3, 4, 5).to(memory_format=torch.channels_last),
        [".to(memory_format=torch.channels_last)"],
    ),
    "channels last in 3d": (
        lambda: torch.zeros(2, 3, 4, 5, 6).to(memory_format=torch.channels_last_3d),
        [".to(memory_format=torch.channels_last_3d)"],
    ),
}


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
