"""Descriptions in the JSON Schemas come from the docstrings of the types."""

from __future__ import annotations

import msgspec
import pytest

from ci_autotest.config.values import Config
from ci_autotest.values.result import RunResult
from ci_autotest.values.schema import schema_of


class Sample(msgspec.Struct):
    """A sample.

    Attributes:
        size: Number of ``elements``, counted
            over all dimensions.
        other: Second.
    """

    size: int
    other: str = "a"
    untold: int = 0


def test_schema_of__docstring_with_attributes__describes_each_key_in_one_line() -> None:
    definition = schema_of(Sample)["$defs"]["Sample"]

    assert definition["description"] == "A sample."
    assert {name: key.get("description") for name, key in definition["properties"].items()} == {
        "size": "Number of `elements`, counted over all dimensions.", "other": "Second.", "untold": None,
    }  # fmt: skip


@pytest.mark.parametrize("kind", [Config, RunResult])
def test_schema_of__shipped_schema__describes_every_type_and_has_no_rest_of_a_docstring(kind) -> None:
    for name, definition in schema_of(kind)["$defs"].items():
        assert definition.get("description"), name
        assert "properties" not in definition or "Attributes:" not in definition["description"], name


def test_schema_of__configuration__describes_every_key() -> None:
    bare = [
        f"{name}.{key}"
        for name, definition in schema_of(Config)["$defs"].items()
        for key, value in definition["properties"].items()
        if not value.get("description", "").endswith(".")
    ]

    assert bare == []
