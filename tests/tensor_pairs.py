"""Pairs of values that are the same or not, as a run and a repro see them."""

from __future__ import annotations

from typing import Any

import torch

NAN, INF = float("nan"), float("inf")


def t(*values: Any, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.tensor(values, dtype=dtype)


PAIRS = {
    "equal": (t(1.0, -2.0), t(1.0, -2.0)),
    "within": (t(1.0 + 1e-6), t(1.0)),
    "beyond": (t(1.0 + 1e-3), t(1.0)),
    "signs of zeros": (t(-0.0), t(0.0)),
    "NaN on both": (t(NAN, 1.0), t(NAN, 1.0)),
    "NaN on one": (t(NAN), t(1.0)),
    "infinities": (t(INF, -INF), t(INF, -INF)),
    "other infinity": (t(INF), t(-INF)),
    "shapes": (t(1.0), t(1.0, 1.0)),
    "dtypes": (t(1.0, dtype=torch.float64), t(1.0)),
    "no tensor": (None, t(1.0)),
    "bfloat16 within": (t(1.0078125, dtype=torch.bfloat16), t(1.0, dtype=torch.bfloat16)),
    "bfloat16 beyond": (t(1.5, dtype=torch.bfloat16), t(1.0, dtype=torch.bfloat16)),
    "float16 at the limit": (t(1.001, dtype=torch.float16), t(1.0, dtype=torch.float16)),
    "integers beyond float64": (t(2**60 + 1, dtype=torch.int64), t(2**60, dtype=torch.int64)),
    "small integers": (t(200, dtype=torch.uint8), t(201, dtype=torch.uint8)),
    "booleans": (t(True, False, dtype=torch.bool), t(True, True, dtype=torch.bool)),
    "complex": (t(1 + 2j, dtype=torch.complex64), t(1 + 2.1j, dtype=torch.complex64)),
    "equal complex": (t(1 + 2j, dtype=torch.complex64), t(1 + 2j, dtype=torch.complex64)),
    "empty": (torch.ones(0, 3), torch.ones(0, 3)),
    "sparse": (torch.eye(3).to_sparse(), (2 * torch.eye(3)).to_sparse()),
    "a scalar": (torch.tensor(2.0), torch.tensor(3.0)),
}
