"""JSON Schemas with a description for each key, taken from the docstrings of the types.

Editors and the documentation show these descriptions, so that a key is explained in one place.
"""

from __future__ import annotations

import inspect
import re
from typing import Any, Final

import msgspec

_ENTRY: Final = re.compile(r" {4}(\w+): (.*)")


def schema_of(kind: type[msgspec.Struct]) -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of ``kind``; its keys are described by the section ``Attributes``."""
    schema: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(msgspec.json.schema(kind)))
    for definition in schema["$defs"].values():
        text = inspect.cleandoc(definition.get("description", ""))
        if "properties" in definition:
            text, _, attributes = text.partition("\n\nAttributes:\n")
            descriptions = _descriptions(attributes)
            for name, key in definition["properties"].items():
                if name in descriptions:
                    key["description"] = descriptions[name]
        if text:
            definition["description"] = _markdown(text)
    return schema


def _descriptions(attributes: str) -> dict[str, str]:
    """Return the descriptions of a docstring's attributes by name, each in one line."""
    found: dict[str, str] = {}
    name = ""
    for line in attributes.splitlines():
        if entry := _ENTRY.fullmatch(line):
            name = entry[1]
            found[name] = entry[2]
        elif name and line.strip():
            found[name] += f" {line.strip()}"
    return {name: _markdown(text) for name, text in found.items()}


def _markdown(text: str) -> str:
    return text.replace("``", "`")
