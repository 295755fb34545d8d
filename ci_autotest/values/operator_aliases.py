"""Aliases of operators: names that torch has twice, for whoever compares names that users write."""

from __future__ import annotations

from typing import Final

#: Spellings that differ by more than their namespace. Source: PyTorch 2.13's documentation ("Alias for ...").
ALIASES: Final[dict[str, str]] = {
    "absolute": "abs", "arccos": "acos", "arcsin": "asin", "arctan": "atan", "clip": "clamp", "concat": "cat",
    "concatenate": "cat", "divide": "div", "true_divide": "div", "multiply": "mul", "subtract": "sub",
    "negative": "neg", "greater": "gt", "greater_equal": "ge", "less": "lt", "less_equal": "le", "not_equal": "ne",
    "moveaxis": "movedim", "rsub": "sub", "swapaxes": "transpose", "swapdims": "transpose", "expit": "sigmoid",
    "special_softmax": "softmax", "special_log_softmax": "log_softmax", "special_expit": "sigmoid",
}  # fmt: skip
