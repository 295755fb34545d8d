"""Decide which calls draw random numbers. They cannot be compared: frameworks draw different ones from one seed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ci_autotest.backends.operators.identity import RANDOM

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ci_autotest.program.ir import Argument

_DROPOUT: Final = (("training", True, frozenset({False})), ("p", 0.5, frozenset({0, 1})))
#: Operators that draw depending on arguments. For each argument: its name, its default, and the values with which the
#: operator draws nothing. Source: PyTorch 2.13, ``torch/nn/functional.py``.
_ONLY_WHERE: Final[dict[str, tuple[tuple[str, bool | float, frozenset[object]], ...]]] = {
    "scaled_dot_product_attention": (("dropout_p", 0.0, frozenset({0})),),
    "multi_head_attention_forward": (("training", True, frozenset({False})), ("dropout_p", 0.0, frozenset({0}))),
    "rrelu": (("training", False, frozenset({False})),),
    **dict.fromkeys(("dropout", "dropout1d", "dropout2d", "dropout3d"), _DROPOUT),
    **dict.fromkeys(("alpha_dropout", "feature_alpha_dropout"), (("training", False, frozenset({False})), _DROPOUT[1])),
}


def may_draw(operator: str) -> bool:
    """Whether an operator draws or not depending on an argument."""
    return operator.rpartition(".")[2] in _ONLY_WHERE


def is_drawn(operator: str, arguments: Mapping[str, Argument]) -> bool:
    """Whether a call draws.

    Args:
        operator: Canonical name.
        arguments: Arguments by torch's names, without those that have torch's default.
    """
    name = operator.rpartition(".")[2]
    if name.rstrip("_") not in RANDOM and name not in RANDOM:
        return False
    return not any(_is_quiet(arguments.get(key, default), quiet) for key, default, quiet in _ONLY_WHERE.get(name, ()))


def _is_quiet(value: Argument, quiet: frozenset[object]) -> bool:
    return isinstance(value, bool | int | float) and value in quiet
