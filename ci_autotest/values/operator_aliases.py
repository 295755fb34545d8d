"""Aliases of operators: names that torch has twice, and all names under which a user may write an operator."""

from __future__ import annotations

from typing import Final

#: Canonical name by alias, both without ``torch.``. A name without a namespace is that of the function in ``torch`` or
#: ``torch.special`` and of the method. Source: PyTorch 2.13's documentation ("Alias for ...") and the aliases of its
#: operator database; a test compares them with this table.
ALIASES: Final[dict[str, str]] = {
    "absolute": "abs", "arccos": "acos", "arccosh": "acosh", "arcsin": "asin", "arcsinh": "asinh", "arctan": "atan",
    "arctan2": "atan2", "arctanh": "atanh", "clip": "clamp", "concat": "cat", "concatenate": "cat",
    "det": "linalg.det", "divide": "div", "expit": "sigmoid", "fix": "trunc", "ger": "outer",
    "greater": "gt", "greater_equal": "ge", "igamma": "gammainc", "igammac": "gammaincc", "inverse": "linalg.inv",
    "less": "lt", "less_equal": "le", "linalg.matmul": "matmul", "matrix_exp": "linalg.matrix_exp",
    "matrix_power": "linalg.matrix_power", "moveaxis": "movedim", "multiply": "mul", "mvlgamma": "multigammaln",
    "ndimension": "dim", "negative": "neg", "nelement": "numel", "not_equal": "ne",
    "orgqr": "linalg.householder_product", "psi": "digamma", "row_stack": "vstack", "rsub": "sub",
    "slogdet": "linalg.slogdet", "subtract": "sub", "swapaxes": "transpose", "swapdims": "transpose",
    "trapz": "trapezoid", "true_divide": "div",
}  # fmt: skip
_NAMESPACES: Final = ("torch", "torch.nn.functional", "torch.Tensor", "torch.special")


def names_of(operator: str) -> tuple[str, ...]:
    """Return the names under which a user may write an operator; not all of those of torch need to exist.

    A function of the user's has one name, and ``torch.linalg.norm`` is not ``torch.norm``.
    """
    if not operator.startswith("torch.") or operator.startswith("torch.ops."):
        return (operator,)
    namespace, _, last = operator.rpartition(".")
    bare = last if namespace in _NAMESPACES else operator.removeprefix("torch.")
    names = [bare, *(alias for alias, of in ALIASES.items() if of == bare)]
    spelled = (f"{space}.{name}" for name in names for space in (_NAMESPACES if "." not in name else ("torch",)))
    return tuple(dict.fromkeys((operator, *spelled)))
