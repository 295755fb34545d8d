"""Which calls draw from the framework's generator: two frameworks seeded alike give other numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ci_autotest.backends.operators import RANDOM

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ci_autotest.program.ir import Argument

#: Operators that draw only where an argument says so: its name, what it must be, and its default.
#: Source: PyTorch 2.13, ``torch/nn/functional.py``.
_ONLY_WHERE: Final[dict[str, tuple[str, object, object]]] = {
    "scaled_dot_product_attention": ("dropout_p", 0.0, 0.0),
    **dict.fromkeys(("dropout", "dropout1d", "dropout2d", "dropout3d"), ("training", False, True)),
    **dict.fromkeys(("rrelu", "alpha_dropout", "feature_alpha_dropout"), ("training", False, False)),
}


def is_drawn(operator: str, arguments: Mapping[str, Argument]) -> bool:
    """Whether a call draws.

    Args:
        operator: Canonical.
        arguments: By torch's names, without those that have torch's default.
    """
    name = operator.rpartition(".")[2]
    if name.rstrip("_") not in RANDOM and name not in RANDOM:
        return False
    if name not in _ONLY_WHERE:
        return True
    key, quiet, default = _ONLY_WHERE[name]
    return arguments.get(key, default) != quiet
