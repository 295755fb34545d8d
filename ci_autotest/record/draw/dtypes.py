"""Dtypes as something that varies: single names, groups of them, and the range of values that each can hold."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast

import torch

from ci_autotest.errors import AuthorError
from ci_autotest.program.ir import COMPLEX, FLOATING, ITEM_SIZE
from ci_autotest.record.draw.generators import Either, settle
from ci_autotest.record.draw.tensor_data import INTEGERS, default_range

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ci_autotest.record.draw.draws import Drawer

#: Groups by the names of OneFlow's AutoTest 0.9.0, and what they hold here; a dtype's own name is a group of one.
GROUPS: Final[dict[str, tuple[str, ...]]] = {
    "bool": ("bool",),
    "uint": ("uint8",),
    "int": ("int8", "int16", "int32", "int64"),
    "index": ("int32", "int64"),
    "half": ("float16", "bfloat16"),
    "float": ("float32", "float64"),
    "complex": ("complex64", "complex128"),
    "arithmetic": ("uint8", "int8", "int16", "int32", "int64", "float32", "float64"),
    "all": tuple(ITEM_SIZE),
}
_PYTHON: Final = {float: "float32", int: "int64", bool: "bool", complex: "complex64"}


def random_dtype(names: Sequence[str] = ("arithmetic",)) -> torch.dtype:
    """Vary a dtype over groups (``float``, ``half``, ``int``, ``uint``, ``index``, ``bool``, ``complex``,
    ``arithmetic``, ``all``) and single names (``bfloat16``), each dtype as likely.

    Raises:
        AuthorError: No name is given, or one is unknown.
    """  # noqa: D205 - the groups are the sentence
    if isinstance(names, str):
        names = (names,)
    unknown = [name for name in names if name not in GROUPS and name not in ITEM_SIZE]
    if unknown or not names:
        said = f"no dtype {unknown[0]!r}" if unknown else "no dtype at all"
        message = f"random_dtype() is given {said}. Use {', '.join(GROUPS)}, or single names such as float32."
        raise AuthorError(message)
    found = dict.fromkeys(name for group in names for name in GROUPS.get(group, (group,)))
    return cast("torch.dtype", Either(tuple(getattr(torch, name) for name in found)))  # typed as what its callee takes


def dtype_name(dtype: Any) -> str:
    """Return a dtype's name without its framework.

    Raises:
        AuthorError: No data are drawn for it.
    """
    name = _PYTHON.get(dtype) if isinstance(dtype, type) else str(dtype).removeprefix("torch.")
    if name not in ITEM_SIZE:
        message = (
            f"random_tensor(dtype={dtype!r}) is no dtype that data are drawn for. Use float, int, torch.float64, …"
        )
        raise AuthorError(message)
    return name


def holds_gradients(dtype: str) -> bool:
    """Whether a leaf of this dtype may ask for its gradient."""
    return dtype in FLOATING or dtype in COMPLEX


def drawn_range(drawer: Drawer, low: Any, high: Any, dtype: str) -> tuple[float, float]:
    """Return the range ``[low, high)`` that a test asked for, in the unit of the elements.

    Args:
        drawer: Draws bounds that are generators.
        low: ``None`` for the dtype's default.
        high: Likewise.
        dtype: Name without framework.

    Raises:
        AuthorError: The range is empty, or the dtype holds no such values.
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
                f"random_tensor(low={bounds[0]}, high={bounds[1]}, dtype=torch.{dtype}) leaves the range of {dtype}: "
                f"it holds {held.min} to {held.max}. Give a narrower range, or a wider dtype."
            )
            raise AuthorError(message)
    return bounds
