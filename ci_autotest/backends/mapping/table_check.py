"""Check the rows of a table: operators and arguments are torch's, adapters exist, and a reason is given where needed.

Each message names the file and the row, and suggests the nearest name that exists.
"""

from __future__ import annotations

import ast
import difflib
import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn

import torch

from ci_autotest.backends.mapping.argument_names import arguments
from ci_autotest.backends.operators.identity import operator_of
from ci_autotest.backends.operators.signatures import resolved
from ci_autotest.errors import ConfigError
from ci_autotest.program.python_names import is_module
from ci_autotest.program.random_calls import is_random
from ci_autotest.program.targets import is_attribute, is_function
from ci_autotest.values.operator_aliases import ALIASES

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ci_autotest.backends.mapping.row import MappingRow

#: Folder of each framework's adapters. They are read as text, because they import a framework that this process lacks.
ADAPTERS_FOLDER: Final = Path(__file__).parents[2] / "host" / "adapters"
_PREFIX: Final = "adapters."
_NAMESPACES: Final = ("torch", "torch.nn.functional", "torch.linalg", "torch.fft", "torch.special", "torch.Tensor")


def check_row(operator: str, row: MappingRow, place: str, adapters: Path, *, like_torch: bool) -> None:
    """Refuse a wrong row.

    Args:
        operator: The row's key.
        row: The row.
        place: File and row, for messages.
        adapters: File of the functions that it may name.
        like_torch: Whether the table may have rows of module classes.

    Raises:
        ConfigError: It names an operator, an argument or an adapter that does not exist, or lacks a required key.
    """
    _check_operator(operator, place, like_torch=like_torch)
    if row.unsupported:
        if row.to or row.inplace:
            _refuse(place, "it has `unsupported` and also a counterpart. Keep one of the two.")
        return
    if not row.to and not row.inplace and not (like_torch and (row.default or row.only or row.rename)):
        _refuse(place, "it has neither `to` nor `unsupported`.")
    for path in filter(None, (row.to, row.inplace)):
        if not is_module(path):
            _refuse(place, f"{path!r} is not a dotted path.")
    _check_arguments(operator, row, place)
    _check_adapters(row, place, adapters)
    if row.promote and not row.positional:
        _refuse(place, "it has `promote` and no `positional`. Name the arguments that are promoted, in order.")
    more = [
        name for name in ("default", "only", "fill", "adapt", "promote", "result", "positional") if getattr(row, name)
    ]
    if more and not row.reason:
        _refuse(place, f"it has `{more[0]}` and no `reason`. Say in a few words why another name is not enough.")


def check_generator(operators: Sequence[str], location: str) -> None:
    """Refuse a wrong entry of ``same_generator``.

    Args:
        operators: The operators listed there.
        location: The file, for messages.

    Raises:
        ConfigError: One is not an operator of torch, or draws no random numbers.
    """
    for operator in operators:
        place = f"{location}, same_generator, {operator}"
        _check_operator(operator, place, like_torch=False)
        if not is_random(operator):
            _refuse(place, "it draws no random numbers.")


def unknown_key(message: str, keys: Sequence[str]) -> str:
    """Return msgspec's message about a value as a sentence, with the nearest known key if a key is unknown."""
    found = re.search(r"unknown field `(.+?)`", message)
    if found is None:
        return f"{message[:1].lower()}{message[1:]}."
    return f"there is no key {found[1]!r}. {_nearest(found[1], keys)}It has {', '.join(keys)}."


def _check_operator(operator: str, place: str, *, like_torch: bool) -> None:
    if like_torch and _is_module_class(operator):
        return
    if _is_module_class(operator):
        _refuse(place, "modules are lowered to functions, so give rows for the functions that its forward calls.")
    is_attribute_of_tensors = operator.startswith("torch.Tensor.") and is_attribute(operator.rpartition(".")[2])
    if is_attribute_of_tensors or operator.startswith("torch.nn.init."):
        return
    canonical = operator_of(operator)
    if canonical != operator and resolved(canonical) is not None:
        _refuse(place, f"write this row under the operator's canonical name, {canonical}.")
    if not is_function(operator) or resolved(operator) is None:
        hint = _nearest(operator.rpartition(".")[2], _operators())
        _refuse(place, f"torch {torch.__version__} has no operator of this name. {hint}".rstrip())


def _check_arguments(operator: str, row: MappingRow, place: str) -> None:
    known = arguments(operator)
    if not known:
        return
    for part, names in (
        ("rename", row.rename),
        ("default", row.default),
        ("only", row.only),
        ("adapt", row.adapt),
        ("positional", row.positional),
    ):
        for name in names:
            if name not in known:
                hint = _nearest(name, known)
                has = ", ".join(sorted(known))
                fault = f"`{part}` names argument {name!r}, which {operator} does not have."
                _refuse(place, f"{fault} {hint}It has {has}.")


def _check_adapters(row: MappingRow, place: str, adapters: Path) -> None:
    named = [path.removeprefix(_PREFIX) for path in (row.to, row.inplace) if path.startswith(_PREFIX)]
    named += [*row.adapt.values(), *filter(None, [row.promote, row.result])]
    known = _functions(adapters) if named else frozenset()
    for name in named:
        if name not in known:
            hint = _nearest(name, known)
            _refuse(place, f"host/adapters/{adapters.name} has no function {name!r}. {hint}".rstrip())


@lru_cache(maxsize=16)
def _functions(path: Path) -> frozenset[str]:
    """Return the names of a framework's adapters: the public functions of its file, defined or imported.

    The file is read as text, because the framework that it imports is missing here. ``from module import *`` stands for
    the functions that the module beside it defines, and not for those that it imports.
    """
    if not path.is_file():
        return frozenset()
    found: set[str] = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ImportFrom) and node.names[0].name == "*":
            found |= _defined(path.with_name(f"{(node.module or '').rpartition('.')[2]}.py"))
        elif isinstance(node, ast.ImportFrom):
            found |= {alias.asname or alias.name for alias in node.names}
    return frozenset(name for name in found | _defined(path) if not name.startswith("_"))


def _defined(path: Path) -> set[str]:
    """Return the functions that a file defines; ``mul = _together(operator.mul)`` defines one, too."""
    found = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.Assign):
            found |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return found


@lru_cache(maxsize=1)
def _operators() -> dict[str, str]:
    """Return torch's operators by the last part of their names, to suggest the nearest one."""
    found = {}
    for namespace in _NAMESPACES:
        for name in dir(resolved(namespace) if namespace != "torch" else torch):
            path = f"{namespace}.{name}"
            if (
                not name[0].isupper()
                and not name.startswith("_")
                and name not in ALIASES
                and is_function(path)
                and operator_of(path) == path
            ):
                found[name] = path
    return found


def _is_module_class(operator: str) -> bool:
    found = resolved(operator) if operator.startswith("torch.nn.") else None
    return isinstance(found, type) and issubclass(found, torch.nn.Module)


def _nearest(name: str, known: Iterable[str] | Mapping[str, str]) -> str:
    found = difflib.get_close_matches(name, list(known), 1, 0.5)
    if not found:
        return ""
    return f"Did you mean {known[found[0]] if isinstance(known, Mapping) else found[0]}? "


def _refuse(place: str, fault: str) -> NoReturn:
    message = f"{place}: {fault}"
    raise ConfigError(message)
