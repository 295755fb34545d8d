"""Hold a request and its answer against an OpenAPI 3.0 description."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import jsonschema
import referencing
import referencing.jsonschema

if TYPE_CHECKING:
    from pathlib import Path

    from tests.fakes.github import Answer, Seen


def described(path: Path) -> Description:
    """Return the description in a file."""
    document = _as_json_schema(json.loads(path.read_bytes()))
    resource = referencing.jsonschema.DRAFT4.create_resource(document)
    return Description(document, referencing.Registry().with_resource("urn:github", resource))


@dataclass(frozen=True)
class Description:
    """Hold GitHub's description, and say what departs from it."""

    document: dict[str, Any]
    registry: referencing.Registry

    def wrong(self, seen: Seen) -> list[str]:
        """Return what is wrong with a request and its answer; empty when both are as described."""
        found = self._operation(seen)
        return self.wrong_request(seen) + (self._wrong_answer(found[0], seen.answer) if found else [])

    def wrong_request(self, seen: Seen) -> list[str]:
        """Return what is wrong with a request, whatever it was answered."""
        found = self._operation(seen)
        if found is None:
            return [f"{seen.method} {seen.path} is not described"]
        operation, in_path = found
        return [
            *self._wrong_parameters(operation, "path", in_path),
            *self._wrong_parameters(operation, "query", seen.query),
            *self._wrong_body(operation, seen),
        ]

    def properties(self, name: str) -> tuple[set[str], set[str]]:
        """Return the described and the required properties of a component."""
        schema = self.document["components"]["schemas"][name]
        return set(schema["properties"]), set(schema["required"])

    def _operation(self, seen: Seen) -> tuple[dict[str, Any], dict[str, str]] | None:
        for pattern, methods in self._paths:
            found = pattern.fullmatch(seen.path)
            if found and seen.method.lower() in methods:
                return methods[seen.method.lower()], found.groupdict()
        return None

    @cached_property
    def _paths(self) -> list[tuple[re.Pattern[str], dict[str, Any]]]:
        # The path with the fewest parameters wins: `comments/1` of `/issues/` is no number and its part.
        paths = sorted(self.document["paths"].items(), key=lambda item: item[0].count("{"))
        return [
            (re.compile(re.sub(r"\\{(\w+)\\}", r"(?P<\1>[^/]+)", re.escape(template))), methods)
            for template, methods in paths
        ]

    def _wrong_parameters(self, operation: dict[str, Any], place: str, given: dict[str, str]) -> list[str]:
        described = {each["name"]: each for each in map(self._resolved, operation["parameters"]) if each["in"] == place}
        wrong = [f"{place} {name!r} is not described" for name in given if name not in described]
        wrong += [f"{place} {name!r} is missing" for name, each in described.items() if _is_missing(each, given)]
        for name in given.keys() & described.keys():
            schema = described[name]["schema"]
            value = int(given[name]) if schema["type"] == "integer" and given[name].isdigit() else given[name]
            wrong += [f"{place} {name!r}: {error}" for error in self._errors(schema, value)]
        return wrong

    def _wrong_body(self, operation: dict[str, Any], seen: Seen) -> list[str]:
        if "requestBody" not in operation:
            return [] if seen.content is None else ["a body is not described"]
        kind = seen.headers.get("content-type", "")
        if kind not in operation["requestBody"]["content"]:
            return [f"content type {kind!r} is not described"]
        schema = operation["requestBody"]["content"][kind]["schema"]
        extra = set(seen.content) - set(schema["properties"])
        return [f"body: {name!r} is not described" for name in sorted(extra)] + self._errors(schema, seen.content)

    def _wrong_answer(self, operation: dict[str, Any], answer: Answer) -> list[str]:
        if str(answer.status) not in operation["responses"]:
            return [f"status {answer.status} is not described"]
        described = self._resolved(operation["responses"][str(answer.status)])
        if "content" not in described:
            return [] if answer.body == b"" else ["an answer with a body is not described"]
        schema = described["content"]["application/json"]["schema"]
        return self._errors(schema, json.loads(answer.body))

    def _resolved(self, item: dict[str, Any]) -> dict[str, Any]:
        return self.registry.resolver("urn:github").lookup(item["$ref"]).contents if "$ref" in item else item

    def _errors(self, schema: dict[str, Any], value: Any) -> list[str]:
        validator = jsonschema.Draft4Validator(
            {"$ref": f"urn:github{schema['$ref']}"} if "$ref" in schema else _absolute(schema), registry=self.registry
        )
        return [f"{error.json_path}: {error.message}" for error in validator.iter_errors(value)]


def _is_missing(parameter: dict[str, Any], given: dict[str, str]) -> bool:
    return parameter.get("required", False) and parameter["name"] not in given


def _absolute(schema: Any) -> Any:
    """Return a schema whose references start at the document, wherever it is used."""
    if isinstance(schema, list):
        return [_absolute(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: f"urn:github{value}"
        if key == "$ref" and isinstance(value, str) and value.startswith("#")
        else _absolute(value)
        for key, value in schema.items()
    }


def _as_json_schema(node: Any) -> Any:
    """Return OpenAPI 3.0's ``nullable`` as JSON Schema writes it; nothing else that is used differs from draft 4."""
    if isinstance(node, list):
        return [_as_json_schema(each) for each in node]
    if not isinstance(node, dict):
        return node
    plain = {key: _as_json_schema(value) for key, value in node.items()}
    return {"anyOf": [{"type": "null"}, plain]} if node.get("nullable") is True else plain
