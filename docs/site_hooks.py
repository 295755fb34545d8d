"""What the documentation takes from the code: tables of reference pages, and links to files of the repository.

A page says ``<!-- generated: NAME -->`` where a table belongs. A key of the configuration without a description fails
the build, and so does a public name that the page of the author's API leaves out.
"""

from __future__ import annotations

import inspect
import json
import posixpath
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import yaml
from mkdocs.exceptions import PluginError

import ci_autotest
from ci_autotest import testing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.pages import Page

ROOT: Final = Path(__file__).resolve().parents[1]
_MARKER: Final = re.compile(r"<!-- generated: ([\w ]+) -->")
_LINK: Final = re.compile(r"\]\((?P<path>\.\./[^)#\s]+)(?P<anchor>#[^)\s]*)?\)")
_ATTRIBUTE: Final = re.compile(r"^ {8}(?P<name>\w+): (?P<text>.+(?:\n {9,}\S.*)*)", re.MULTILINE)
#: Another spelling of a name on the page.
_ALIASES: Final = {"random_pytorch_tensor": "random_tensor", "random_pytorch_dtype": "random_dtype"}


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, **_: Any) -> str:
    """Put in what is generated, and turn links to files outside of the pages into links to the repository."""
    markdown = _MARKER.sub(lambda match: GENERATED[match[1]](), markdown)
    if page.file.src_uri == "reference/api.md":
        _require_names(markdown)
    folder = posixpath.dirname(f"docs/{page.file.src_uri}")

    def link(match: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(folder, match["path"]))
        if target.startswith("docs/"):
            return match[0]
        if not (ROOT / target).exists():
            message = f"{page.file.src_uri} links to {target}, which does not exist"
            raise PluginError(message)
        return f"]({config.repo_url}/blob/main/{target}{match['anchor'] or ''})"

    return _LINK.sub(link, markdown)


def _require_names(markdown: str) -> None:
    for name in ci_autotest.__all__:
        documented = _ALIASES.get(name, name)
        if not re.search(rf"(::: ci_autotest\.[\w.]*\b|## `ci_autotest\.){documented}\b", markdown):
            message = f"reference/api.md has no entry for the public name {name!r}"
            raise PluginError(message)
        if not inspect.getdoc(getattr(testing, name)):
            message = f"the public name {name!r} has no docstring"
            raise PluginError(message)


def _configuration() -> str:
    schema = json.loads((ROOT / "ci_autotest" / "autotest.schema.json").read_text("utf-8"))
    sections = {
        "Config": "## Keys of `autotest.yml`", "Reference": "## `reference`", "Candidate": "## A row of `candidates`",
        "ToleranceRule": "## A row of `tolerances`", "Known": "## A row of `known`",
        "OpInfo": "## `opinfo`", "OpOverride": "## A row of `op_overrides`",
    }  # fmt: skip
    return "\n\n".join(
        f"{heading}\n\n{_first_paragraph(schema['$defs'][name])}\n\n{_properties(schema['$defs'][name], name)}"
        for name, heading in sections.items()
    )


def _report() -> str:
    schema = json.loads((ROOT / "ci_autotest" / "report" / "report.schema.json").read_text("utf-8"))
    top = schema["$ref"].rsplit("/", 1)[-1]
    names = [top, *(name for name in schema["$defs"] if name != top and "properties" in schema["$defs"][name])]
    return "\n\n".join(
        f"## {'The report' if name == top else f'`{name}`'}\n\n{_first_paragraph(schema['$defs'][name])}\n\n"
        f"{_properties(schema['$defs'][name])}"
        for name in names
    )


def _first_paragraph(definition: dict[str, Any]) -> str:
    return _code(" ".join(definition.get("description", "").split("\n\n")[0].split()))


def _properties(definition: dict[str, Any], required_of: str = "") -> str:
    """Return a table of an object's keys.

    Raises:
        PluginError: A key of the configuration has no description.
    """
    described = dict(_ATTRIBUTE.findall(definition.get("description", "")))
    rows = ["| key | type | default | meaning |", "| --- | --- | --- | --- |"]
    for name, value in definition["properties"].items():
        text = value.get("description") or described.get(name, "")
        if not text and required_of:
            message = f"the key {name!r} of {required_of} has no description"
            raise PluginError(message)
        needed = name in definition.get("required", ())
        default = "required" if needed else f"`{json.dumps(value['default'])}`" if "default" in value else ""
        rows.append(f"| `{name}` | {_cell(_type(value))} | {_cell(default)} | {_cell(_code(' '.join(text.split())))} |")
    return "\n".join(rows)


def _type(value: dict[str, Any]) -> str:
    if "$ref" in value:
        name = value["$ref"].rsplit("/", 1)[-1]
        return f"[{name}](#{name.lower()})" if name in {"Finding"} else name
    if "anyOf" in value:
        return " or ".join(_type(each) for each in value["anyOf"])
    if "enum" in value:
        return " or ".join(f"`{each}`" for each in value["enum"])
    if value.get("type") == "array":
        return f"list of {_type(value['items'])}" if isinstance(value.get("items"), dict) else "list"
    if value.get("type") == "object":
        return "mapping"
    return str(value.get("type", "any"))


def _action(kind: str) -> Callable[[], str]:
    def table() -> str:
        action = yaml.safe_load((ROOT / "action.yml").read_text("utf-8"))
        rows = [f"| {kind[:-1]} | default | meaning |", "| --- | --- | --- |"]
        if kind == "outputs":
            rows = [f"| {kind[:-1]} | meaning |", "| --- | --- |"]
        for name, value in action[kind].items():
            default = f" `{value['default']}` |" if value.get("default") else " |"
            rows.append(f"| `{name}` |{default if kind == 'inputs' else ''} {_cell(value['description'])} |")
        return "\n".join(rows)

    return table


def _operators() -> str:
    families = json.loads((ROOT / "ci_autotest" / "report" / "operators.json").read_text("utf-8"))
    return "\n".join(
        f"- **{family}**: {', '.join(f'`{name}`' for name in names)}" for family, names in _listed(families["public"])
    )


def _listed(families: dict[str, list[str]]) -> Iterator[tuple[str, list[str]]]:
    for family, names in families.items():
        yield family, sorted(names)


def _code(text: str) -> str:
    return text.replace("``", "`")


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


GENERATED: Final[dict[str, Callable[[], str]]] = {
    "configuration": _configuration,
    "report": _report,
    "action inputs": _action("inputs"),
    "action outputs": _action("outputs"),
    "operators": _operators,
}
