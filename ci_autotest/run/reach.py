"""Whether a test file can reach Python's or numpy's global generators: what cannot needs none of them seeded.

Seeding both costs four microseconds a case, as much as a small operator. So a file is read once, and what it imports is
held against a list: a file that imports anything else may reach them by way of that, and they are seeded for it.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

#: Packages that use neither generator, or not on behalf of who calls them. ``ci_autotest.random`` is a draw of ours.
_HARMLESS: Final = frozenset({
    "__future__", "ci_autotest", "cmath", "collections", "contextlib", "dataclasses", "enum", "functools", "itertools",
    "math", "operator", "pytest", "torch", "typing", "typing_extensions", "unittest",
})  # fmt: skip
#: Names by which modules are reached without an import, attributes that are generators or lead to them, and what of a
#: harmless package is neither.
_NAMES: Final = frozenset({"__import__", "__builtins__", "__loader__", "__spec__", "eval", "exec", "globals", "vars"})
_ATTRIBUTES: Final = frozenset({"random", "modules", "importorskip", "__globals__", "__dict__"})
_INNER: Final = frozenset({"random", "np", "numpy"})


def reaches_generators(path: Path) -> bool:
    """Return whether a file may reach a global generator; what cannot be read as Python may."""
    try:
        tree = ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return True
    return any(_reaches(node) for node in ast.walk(tree))


def _reaches(node: ast.AST) -> bool:
    match node:
        case ast.Import(names):
            return not all(_is_harmless(alias.name) for alias in names)
        case ast.ImportFrom(module, names, level):
            return bool(level) or not all(_is_harmless(f"{module}.{alias.name}") for alias in names)
        case ast.Name(name):
            return name in _NAMES
        case ast.Attribute(owner, name):
            is_torchs = isinstance(owner, ast.Name) and owner.id == "torch"
            return name in _ATTRIBUTES and not is_torchs
        case _:
            return False


def _is_harmless(module: str) -> bool:
    package, *inner = module.split(".")
    return package in _HARMLESS and (package == "ci_autotest" or not _INNER & set(inner))
