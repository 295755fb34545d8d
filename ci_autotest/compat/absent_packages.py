"""What a file has in place of a package that is not installed, or of a name that torch does not have."""

from __future__ import annotations

import pkgutil
from importlib.util import find_spec
from typing import Any, Final

from ci_autotest.compat.missing_names import MissingName

#: Packages of which torch ships a copy; a file compares versions with them while it is imported.
_COPIES: Final = {"packaging": "torch._vendor.packaging", "pkg_resources.packaging": "torch._vendor.packaging"}
_NOTHING: Final = object()


def instead_of(path: str, absence: ModuleNotFoundError) -> Any:
    """Return what an import binds in place of a name of a package that is not installed.

    Args:
        path: The dotted name, as the file imports it.
        absence: What the import raised.

    Raises:
        ModuleNotFoundError: Another package is absent, which the imported one needs.
    """
    package = path.partition(".")[0]
    if (absence.name or "").partition(".")[0] != package:
        raise absence
    for own, copy in _COPIES.items():
        if path == own or path.startswith(f"{own}."):
            return pkgutil.resolve_name(copy + path.removeprefix(own))
    if find_spec(package) is not None:
        raise absence  # The package is there, and what is missing is a part of it.
    return MissingName(path, lack=f"and {package} is not installed")


def has_attribute(owner: object, name: str) -> bool:
    """Return what ``hasattr`` does; a name that torch does not have is no attribute."""
    return attribute(owner, name, _NOTHING) is not _NOTHING


def attribute(owner: object, name: str, default: object) -> Any:
    """Return what ``getattr`` does with a default; a name that torch does not have is no attribute."""
    found = getattr(owner, name, default)
    return default if isinstance(found, MissingName) else found
