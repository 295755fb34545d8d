"""A framework's table: which function implements each operator of torch, and how its arguments change.

Each framework has one YAML file in ``tables/``; a user's own rows replace those of the file. Loading a table checks its
rows.
"""

from __future__ import annotations

import ast
import dataclasses
import difflib
import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

import msgspec
import torch
import yaml

from ci_autotest.backends.operators.argument_binding import arguments
from ci_autotest.backends.operators.identity import operator_of
from ci_autotest.backends.operators.signatures import resolved
from ci_autotest.errors import ConfigError
from ci_autotest.program.python_names import is_module
from ci_autotest.program.random_calls import is_random
from ci_autotest.program.targets import is_attribute, is_function
from ci_autotest.values.operator_aliases import ALIASES

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


# A row of a framework's table: the counterpart of one operator of torch, and what happens to its arguments.


class MappingRow(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The counterpart of one operator.

    Attributes:
        to: Dotted path in the framework, or ``adapters.NAME``.
        inplace: The same for in-place spellings: ``x.add_(y)``, ``x += y``, ``inplace=True``.
        rename: The framework's name of an argument, by torch's.
        default: Arguments without counterpart, with the one value that they may have.
        only: The allowed values of an argument, if other values have no counterpart.
        fill: Arguments that only the framework's function has, with the value that they get unless the call gives one.
        adapt: Adapter of an argument, by torch's name.
        promote: Adapter of each positional argument, which also gets the others: torch's type promotion.
        result: Adapter of the result.
        positional: Torch's names of the arguments to pass by position, in order.
        draws: Whether the row also holds for calls that draw random numbers, if that depends on an argument.
        reason: Why the row changes more than names.
        unsupported: Why there is no counterpart.
    """

    to: str = ""
    inplace: str = ""
    rename: dict[str, str] = {}
    default: dict[str, Any] = {}
    only: dict[str, list[Any]] = {}
    fill: dict[str, Any] = {}
    adapt: dict[str, str] = {}
    promote: str = ""
    result: str = ""
    positional: tuple[str, ...] = ()
    draws: bool = False
    reason: str = ""
    unsupported: str = ""


# Check the rows of a table: operators and arguments are torch's, adapters exist, and a reason is given where needed.
#
# Each message names the file and the row, and suggests the nearest name that exists.


#: Folder of each framework's adapters. They are read as text, because they import a framework that this process lacks.
ADAPTERS_FOLDER: Final = Path(__file__).parents[3] / "host" / "adapters"
_PREFIX: Final = "adapters."
_NAMESPACES: Final = ("torch", "torch.nn.functional", "torch.linalg", "torch.fft", "torch.special", "torch.Tensor")


def _check_row(operator: str, row: MappingRow, place: str, adapters: Path, *, like_torch: bool) -> None:
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


def _check_generator(operators: Sequence[str], location: str) -> None:
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


def _unknown_key(message: str, keys: Sequence[str]) -> str:
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


TABLES: Final = Path(__file__).parent / "tables"
#: Prefix of the path of a function of ``host/adapters/<framework>.py``.
ADAPTERS: Final = "adapters."


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    framework: str
    version: str
    namespace: str
    operators: dict[str, Any] = {}
    like_torch: bool = False
    same_generator: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class MappingTable:
    """The rows of one framework.

    Attributes:
        framework: Its name, as users know it.
        version: The version that the rows were written for.
        namespace: Replaces ``torch`` in a path if the table is ``like_torch``.
        like_torch: Whether an operator without a row has torch's name and arguments.
        rows: Rows by canonical operator; if ``like_torch``, also by module class.
        adapters: Folder of the adapter files, one for each framework.
        same_generator: Operators without a row that draw the same numbers as torch from the same seed, in 32 and 64
            bits.
    """

    framework: str
    version: str
    namespace: str
    like_torch: bool
    rows: Mapping[str, MappingRow]
    adapters: Path = ADAPTERS_FOLDER
    same_generator: frozenset[str] = frozenset()

    def row(self, operator: str) -> MappingRow | None:
        """Return an operator's row; ``None`` if it has none."""
        return self.rows.get(operator)

    @property
    def label(self) -> str:
        """The framework's name and version, for messages."""
        return f"{self.framework} {self.version}".rstrip()

    def extended(self, rows: Mapping[str, object], location: str) -> MappingTable:
        """Return the table with a user's own rows, which replace the rows of the same operators.

        Args:
            rows: Rows by operator, in the format of the table's file.
            location: Their place for messages, for example ``candidate 'paddle' of autotest.yml``.

        Raises:
            ConfigError: A row is wrong.
        """
        found = _rows(rows, location, self.adapters / f"{self.framework}.py", like_torch=self.like_torch)
        return dataclasses.replace(self, rows={**self.rows, **found})


def has_table(framework: str) -> bool:
    """Whether a table ships for a framework."""
    return (TABLES / f"{framework}.yml").is_file()


def load_table(framework: str) -> MappingTable:
    """Return the table that ships for a framework.

    Raises:
        ConfigError: No table ships for the framework, or its file is wrong.
    """
    path = TABLES / f"{framework}.yml"
    if not path.is_file():
        known = ", ".join(sorted(found.stem for found in TABLES.glob("*.yml")))
        message = f"there is no table for {framework!r}. Tables ship for {known}."
        raise ConfigError(message)
    return read_table(path.read_text(encoding="utf-8"), path.name)


def read_table(text: str, location: str, adapters: Path = ADAPTERS_FOLDER) -> MappingTable:
    """Return the table in a file's text.

    Args:
        text: The text, in YAML.
        location: Name of the file, for messages.
        adapters: Folder of the adapter files.

    Raises:
        ConfigError: The text is not YAML, a key is unknown or missing, or a row is wrong.
    """
    try:
        found: object = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506 - safe, in C
    except yaml.YAMLError as error:
        message = f"{location} is not valid YAML: {' '.join(str(error).split())}."
        raise ConfigError(message) from error
    _refuse_repeated(text, location)
    try:
        file = msgspec.convert(found, _File)
    except msgspec.ValidationError as error:
        keys = tuple(field.name for field in msgspec.structs.fields(_File))
        message = f"{location}: {_unknown_key(str(error), keys)}"
        raise ConfigError(message) from error
    rows = _rows(file.operators, location, adapters / f"{file.framework}.py", like_torch=file.like_torch)
    _check_generator(file.same_generator, location)
    same = frozenset(file.same_generator)
    return MappingTable(file.framework, file.version, file.namespace, file.like_torch, rows, adapters, same)


def _rows(given: Mapping[str, object], location: str, adapters: Path, *, like_torch: bool) -> dict[str, MappingRow]:
    found = {}
    for operator, written in given.items():
        place = f"{location}, row {operator}"
        try:
            row = msgspec.convert(written, MappingRow)
        except msgspec.ValidationError as error:
            keys = tuple(field.name for field in msgspec.structs.fields(MappingRow))
            message = f"{place}: {_unknown_key(str(error), keys)}"
            raise ConfigError(message) from error
        _check_row(operator, row, place, adapters, like_torch=like_torch)
        found[operator] = row
    return found


def _refuse_repeated(text: str, location: str) -> None:
    """Refuse two rows for one operator, because YAML silently takes the last one."""
    seen: dict[str, int] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("  ") and line[2:3] not in {" ", "#", ""} and line.strip().startswith("torch."):
            operator = line.strip().partition(":")[0]
            if operator in seen:
                message = f"{location}, row {operator}: it is in line {seen[operator]} and in line {number}. Keep one."
                raise ConfigError(message)
            seen[operator] = number
