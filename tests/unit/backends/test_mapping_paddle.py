"""The table of Paddle and its adapters: every row is valid, and every adapter is named by one."""

from __future__ import annotations

import pytest

from ci_autotest.backends.framework.mapping.table import (
    ADAPTERS,
    ADAPTERS_FOLDER,
    TABLES,
    _functions,
    load_table,
    read_table,
)
from ci_autotest.errors import ConfigError


def named(table) -> set[str]:
    """Return the adapters that the rows of a table name."""
    paths = {path for row in table.rows.values() for path in (row.to, row.inplace)}
    single = {name for row in table.rows.values() for name in (*row.adapt.values(), row.promote, row.result)}
    return {path.removeprefix(ADAPTERS) for path in paths if path.startswith(ADAPTERS)} | single - {""}


def test_load_table__paddle__names_each_of_its_adapters_and_no_other():
    table = load_table("paddle")
    assert named(table) == _functions(ADAPTERS_FOLDER / "paddle.py")
    assert [operator for operator, row in table.rows.items() if "adapters." in row.to and not row.reason] == []


def test_read_table__paddle_with_an_adapter_misspelled__is_refused():
    text = (TABLES / "paddle.yml").read_text(encoding="utf-8").replace("weight: transpose", "weight: transposed")
    with pytest.raises(ConfigError, match=r"has no function .transposed.\. Did you mean transpose\?"):
        read_table(text, "paddle.yml")
