"""Source locations of the user's functions in the checkout, to which the report links."""

from __future__ import annotations

import inspect
from pathlib import Path
from types import FunctionType
from typing import TYPE_CHECKING, Any, Final

from ci_autotest.values.finding import Location

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

#: Folders of installed packages; they may lie in the checkout, but are not part of the repository.
_INSTALLED: Final = frozenset({"site-packages", "dist-packages"})


def source_locations(functions: Mapping[str, Callable[..., Any]], root: Path) -> dict[str, Location]:
    """Return where functions are defined; only Python functions in the checkout have a location.

    Args:
        functions: Functions by operator.
        root: The configuration's folder. The checkout is the nearest folder at or above it with ``.git``, else itself.
    """
    folder = root.resolve()
    top = next((each for each in (folder, *folder.parents) if (each / ".git").exists()), folder)
    found = {operator: _location(function, top) for operator, function in functions.items()}
    return {operator: location for operator, location in found.items() if location is not None}


def _location(function: Callable[..., Any], top: Path) -> Location | None:
    # A wrapper of a decorator is defined elsewhere than the kernel.
    plain = inspect.unwrap(function) if isinstance(function, FunctionType) else function
    if not isinstance(plain, FunctionType):
        return None
    file = Path(plain.__code__.co_filename).resolve()
    if not file.is_file() or not file.is_relative_to(top) or _INSTALLED.intersection(file.parts):
        return None
    return Location(file=file.relative_to(top).as_posix(), line=plain.__code__.co_firstlineno)
