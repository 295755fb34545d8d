"""Drawn dtypes: their names, groups of them, and the range of values that each can hold."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast

import torch

from ci_autotest.errors import AuthorError
from ci_autotest.record.draw.generators import Either, settle
from ci_autotest.record.draw.tensor_data import default_range
from ci_autotest.values.dtypes import (
    COMPLEX,
    DIFFERENTIABLE,
    DTYPES,
    FLOAT8,
    FLOATING,
    HALF,
    INTEGERS,
    OF_PYTHON,
    UNSIGNED,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from ci_autotest.record.draw.draws import Drawer


def _group(names: Collection[str]) -> tuple[str, ...]:
    """Return the dtypes in the order of ``DTYPES``, because a draw chooses by position."""
    return tuple(name for name in DTYPES if name in names)


#: Groups of dtypes, named as in OneFlow's AutoTest 0.9.0.
GROUPS: Final[dict[str, tuple[str, ...]]] = {
    "bool": ("bool",),
    "uint": _group(UNSIGNED),
    "int": _group(INTEGERS - UNSIGNED),
    "index": ("int32", "int64"),
    "half": _group(HALF),
    "float": _group(FLOATING - HALF - FLOAT8),
    "float8": _group(FLOAT8),
    "complex": _group(COMPLEX),
    "arithmetic": _group((INTEGERS | FLOATING) - HALF - FLOAT8),
    "all": _group(DTYPES.keys() - FLOAT8),
}


def random_dtype(names: Sequence[str] = ("arithmetic",)) -> torch.dtype:
    """Draw a dtype; each dtype of the given names is equally likely.

    Args:
        names: Groups (``float``, ``half``, ``float8``, ``int``, ``uint``, ``index``, ``bool``, ``complex``,
            ``arithmetic``, ``all``) and names of single dtypes, such as ``bfloat16``. Only ``float8`` has float8.

    Raises:
        AuthorError: No name is given, or a name is unknown.
    """
    if isinstance(names, str):
        names = (names,)
    unknown = [name for name in names if name not in GROUPS and name not in DTYPES]
    if unknown or not names:
        problem = f"does not know the dtype {unknown[0]!r}" if unknown else "got no dtype"
        message = f"random_dtype() {problem}. Use {', '.join(GROUPS)}, or single names such as float32."
        raise AuthorError(message)
    found = dict.fromkeys(name for group in names for name in GROUPS.get(group, (group,)))
    return cast(
        "torch.dtype", Either(tuple(getattr(torch, name) for name in found))
    )  # typed as its value, so that type checkers accept it as an argument


def dtype_name(dtype: Any) -> str:
    """Return the name of a dtype without its framework.

    Raises:
        AuthorError: Data cannot be drawn for it.
    """
    name = OF_PYTHON.get(dtype) if isinstance(dtype, type) else str(dtype).removeprefix("torch.")
    if name not in DTYPES:
        message = (
            f"random_tensor(dtype={dtype!r}): data cannot be drawn for that dtype. Use float, int, torch.float64, …"
        )
        raise AuthorError(message)
    return name


def holds_gradients(dtype: str) -> bool:
    """Return true if a leaf of this dtype may require grad."""
    return dtype in DIFFERENTIABLE


def drawn_range(drawer: Drawer, low: Any, high: Any, dtype: str) -> tuple[float, float]:
    """Return the range ``[low, high)`` of a tensor's elements, in their unit.

    Args:
        drawer: Draws the bounds that are generators.
        low: Lower bound; ``None``: the dtype's default.
        high: Upper bound; ``None``: the dtype's default.
        dtype: Name without framework.

    Raises:
        AuthorError: The range is empty, or an integer dtype cannot hold all of its values.
    """
    default = default_range(dtype)
    bounds = (
        default[0] if low is None else settle(drawer, low, int),
        default[1] if high is None else settle(drawer, high, int),
    )
    if not bounds[0] < bounds[1]:
        message = f"random_tensor(low={bounds[0]}, high={bounds[1]}) has an empty range. Give low below high."
        raise AuthorError(message)
    if dtype in INTEGERS:
        held = torch.iinfo(getattr(torch, dtype))
        if bounds[0] < held.min or bounds[1] > held.max + 1:
            message = (
                f"random_tensor(low={bounds[0]}, high={bounds[1]}, dtype=torch.{dtype}) exceeds the range of {dtype}, "
                f"{held.min} to {held.max}. Give a narrower range, or a wider dtype."
            )
            raise AuthorError(message)
    return bounds
