"""A framework's table: which function implements each operator of torch, and how its arguments change.

Each framework has one YAML file in ``tables/``; a user's own rows replace those of the file. Loading a table checks its
rows (``table_check``).
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
import yaml

from ci_autotest.backends.mapping.row import MappingRow
from ci_autotest.backends.mapping.table_check import ADAPTERS_FOLDER, check_generator, check_row, unknown_key
from ci_autotest.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

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
        message = f"{location}: {unknown_key(str(error), keys)}"
        raise ConfigError(message) from error
    rows = _rows(file.operators, location, adapters / f"{file.framework}.py", like_torch=file.like_torch)
    check_generator(file.same_generator, location)
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
            message = f"{place}: {unknown_key(str(error), keys)}"
            raise ConfigError(message) from error
        check_row(operator, row, place, adapters, like_torch=like_torch)
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
