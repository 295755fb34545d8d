"""Views of a dense tensor, each with the expression that makes it."""

from __future__ import annotations

import torch

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
