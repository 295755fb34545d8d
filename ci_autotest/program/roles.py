"""Roles that operators share, by name: Python's operators, dropout, attributes that are views, variadic methods."""

from __future__ import annotations

from typing import Final

#: Functions of the ``operator`` module that a step may call, by what they do.
BINARY: Final = (
    "add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and_", "or_", "xor", "lshift", "rshift",
)  # fmt: skip
COMPARISONS: Final = ("lt", "le", "gt", "ge", "eq", "ne")
UNARY: Final = ("neg", "pos", "abs", "invert")
#: Each writes to its first argument; a tensor has no ``@=`` of its own.
IN_PLACE: Final = tuple(f"i{name.rstrip('_')}" for name in BINARY if name != "matmul")
OPERATORS: Final = (*BINARY, *COMPARISONS, *UNARY, *IN_PLACE, "getitem", "setitem")
#: Functions and layers that drop elements in training; outside of it they may return their input.
DROPOUTS: Final = ("dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_alpha_dropout")
DROPOUT_LAYERS: Final = ("Dropout", "Dropout1d", "Dropout2d", "Dropout3d", "AlphaDropout", "FeatureAlphaDropout")
#: Attributes that return a view of a tensor.
VIEW_ATTRIBUTES: Final = frozenset({"T", "mT", "H", "mH", "real", "imag"})
#: Methods that take sizes or dimensions as separate arguments, while the function takes a tuple.
VARIADIC: Final = frozenset({"permute", "flip", "tile", "reshape", "view", "expand", "repeat"})
