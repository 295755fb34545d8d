"""JSON Schemas with a description for each key, taken from the docstrings of the types.

Editors and the documentation show these descriptions, so that a key is explained in one place.
"""

from __future__ import annotations

import inspect
import re
from typing import TYPE_CHECKING, Any, Final

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterator

_ATTRIBUTES: Final = "\n\nAttributes:\n"


class Section(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Base of every part of a file that is read strictly."""


_ENTRY: Final = re.compile(r" {4}(\w+): (.*)")


def schema_of(kind: type[msgspec.Struct]) -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of ``kind``; its keys are described by the section ``Attributes``."""
    schema: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(msgspec.json.schema(kind)))
    inherited = {
        each.__name__: _descriptions_of(each) for each in _descendants(msgspec.Struct) if _root(each) == _root(kind)
    }
    for title, definition in schema["$defs"].items():
        text = inspect.cleandoc(definition.get("description", ""))
        if "properties" in definition:
            text = text.partition(_ATTRIBUTES)[0]
            descriptions = inherited[title]
            for name, key in definition["properties"].items():
                if name in descriptions:
                    key["description"] = descriptions[name]
        if text:
            definition["description"] = _markdown(text)
    return schema


def _root(kind: type) -> str:
    """Return the package of a type: names of classes are unique in it only."""
    return kind.__module__.partition(".")[0]


def _descendants(kind: type) -> Iterator[type]:
    own: list[type] = type.__subclasses__(kind)
    for each in own:
        yield each
        yield from _descendants(each)


def _descriptions_of(kind: type) -> dict[str, str]:
    """Return the descriptions of a type's attributes, and of those that it inherits and does not describe itself."""
    found: dict[str, str] = {}
    for each in reversed(kind.__mro__):
        found |= _descriptions(inspect.cleandoc(each.__doc__ or "").partition(_ATTRIBUTES)[2])
    return found


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
