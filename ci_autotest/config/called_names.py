"""The names that a framework's table calls. It reads the rows without torch, so that the publisher of a comment can."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import yaml

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_TABLES: Final = Path(__file__).parents[1] / "backends" / "framework" / "mapping" / "tables"


def called_names(framework: str, *own_rows: Mapping[str, object]) -> frozenset[str]:
    """Return the functions and adapters that the shipped table of a framework and a user's own rows name.

    Args:
        framework: Its module; one without a shipped table has the user's rows alone.
        own_rows: Of each candidate of that framework, in the format of the table's file.
    """
    path = _TABLES / f"{framework}.yml"
    shipped: object = {}
    # The name becomes a path, so that it must not lead elsewhere.
    if framework.isidentifier() and path.is_file():
        text = path.read_text(encoding="utf-8")
        shipped = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))["operators"]  # noqa: S506 - safe, in C
    tables = (table for table in (shipped, *own_rows) if isinstance(table, dict))
    return frozenset(name for table in tables for row in table.values() for name in _of_row(row))


def _of_row(row: object) -> Iterator[str]:
    if isinstance(row, dict):
        yield from (row[key] for key in ("to", "inplace") if isinstance(row.get(key), str))
        adapters = [*row.get("adapt", {}).values(), *filter(None, map(row.get, ("result", "promote")))]
        yield from (f"adapters.{name}" for name in adapters)
