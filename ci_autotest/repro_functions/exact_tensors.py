"""How a repro compares tensors of which every bit counts but a NaN's."""

from __future__ import annotations

import torch


def assert_alike(found: torch.Tensor, expected: torch.Tensor) -> None:
    """Raise an AssertionError if two tensors differ at all, also in the sign of a zero."""
    left, right = exact(found), exact(expected)
    torch.testing.assert_close(left, right, rtol=0, atol=0, equal_nan=True, check_dtype=False)
    assert torch.equal(torch.signbit(left.nan_to_num()), torch.signbit(right.nan_to_num())), "the signs of zeros differ"


def exact(value: torch.Tensor) -> torch.Tensor:
    """Return a tensor on the host, of complex numbers both parts, and floating-point numbers in 64 bits."""
    value = value.detach().cpu().to_dense()
    value = torch.view_as_real(value) if value.is_complex() else value
    return value.double() if value.is_floating_point() else value
