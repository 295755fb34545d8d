"""Tables of the reference pages, which are made of the code and committed: `python -m docs.generated` writes them.

A table stands between ``<!-- generated: NAME -->`` and ``<!-- end -->``. A test holds it equal to what is made here.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import yaml

from ci_autotest.kinds import KINDS
from ci_autotest.values.schedule import SCHEDULE

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT: Final = Path(__file__).resolve().parents[1]
#: Pages that have tables.
PAGES: Final = (
    *(ROOT / "docs" / "reference" / f"{name}.md" for name in ("action", "configuration", "report")),
    ROOT / "docs" / "explanation" / "stateful.md",
)
_TABLE: Final = re.compile(r"(?P<begin><!-- generated: (?P<name>[\w ]+) -->\n).*?(?P<end><!-- end -->)", re.DOTALL)
#: Of a row of the schedule.
_NEEDS: Final[dict[tuple[str, ...], str]] = {
    ("steps",): "run a program call by call",
    ("again",): "run steps of it again in their place",
    ("body",): "be called again with what was made of a body",
    ("bands",): "be kernels in this process (`guard`)",
    ("operators",): "have operators of a library (`opcheck`)",
}
_ATTRIBUTE: Final = re.compile(r"^ {8}(?P<name>\w+): (?P<text>.+(?:\n {9,}\S.*)*)", re.MULTILINE)


def with_tables(page: str) -> str:
    """Return a page with its tables as the code is now.

    Raises:
        ValueError: A key of the configuration has no description.
    """
    return _TABLE.sub(lambda match: f"{match['begin']}\n{GENERATED[match['name']]()}\n\n{match['end']}", page)


def _configuration() -> str:
    schema = json.loads((ROOT / "ci_autotest" / "autotest.schema.json").read_text("utf-8"))
    sections = {
        "Config": "## Keys of `autotest.yml`", "Reference": "## `reference`", "": "",
        "ToleranceRule": "## A row of `tolerances`", "Known": "## A row of `known`",
        "OpInfo": "## `opinfo`", "OpOverride": "## A row of `op_overrides`",
    }  # fmt: skip
    return "\n\n".join(
        f"{heading}\n\n{_first_paragraph(schema['$defs'][name])}\n\n{_properties(schema['$defs'][name], name)}"
        if name
        else _candidates(schema["$defs"])
        for name, heading in sections.items()
    )


def _candidates(definitions: dict[str, Any]) -> str:
    """Return tables of the keys of candidates: those of all kinds, those that some share, those of one."""
    kinds = {name: definitions[kind.__name__] for name, kind in KINDS.items()}
    owners: dict[str, list[str]] = {}
    for name, definition in kinds.items():
        for key, value in definition["properties"].items():
            if key != "backend":
                owners.setdefault(json.dumps([key, value]), []).append(name)
    about_kind = next(iter(kinds.values()))["properties"]["backend"]["description"]
    tables: dict[tuple[str, ...], dict[str, Any]] = {
        tuple(kinds): {"backend": {"enum": [*kinds], "description": about_kind}}
    }
    for text, names in owners.items():
        key, value = json.loads(text)
        tables.setdefault(tuple(names), {})[key] = value
    words = [f"- `{name}`: {_first_paragraph(definition)}" for name, definition in kinds.items()]
    lines = ["## A row of `candidates`", "A side that is tested. `backend` is its kind, and decides which keys it has:"]
    lines.append("\n".join(words))
    for names in sorted(tables, key=lambda names: (-len(names), list(kinds).index(names[0]))):
        others = [f"`{name}`" for name in kinds if name not in names]
        own = ", ".join(f"`{name}`" for name in names)
        about = {0: "every kind", 1: f"every kind but {', '.join(others)}"}.get(len(others), own)
        definition = {"properties": tables[names], "required": ("backend", *kinds[names[0]].get("required", ()))}
        lines += [f"### Keys of {about}", _properties(definition, about)]
    return "\n\n".join(lines)


def _report() -> str:
    schema = json.loads((ROOT / "ci_autotest" / "report" / "report.schema.json").read_text("utf-8"))
    top = schema["$ref"].rsplit("/", 1)[-1]
    names = [top, *(name for name in schema["$defs"] if name != top and "properties" in schema["$defs"][name])]
    return "\n\n".join(
        f"## {'The report' if name == top else f'`{name}`'}\n\n{_first_paragraph(schema['$defs'][name])}\n\n"
        f"{_properties(schema['$defs'][name])}"
        for name in names
    )


def _schedule() -> str:
    heads = (
        "row",
        "what is called",
        "what varies",
        "what must hold",
        "which cases",
        "the candidate must",
        "passes at most",
    )
    lines = [
        f"| `{name.name.lower()}` | {row.calls} | {row.varies or 'nothing'} | {row.holds} | {row.asked} | "
        f"{_NEEDS.get(row.needs, '')} | {row.forward} forward, {row.backward} backward |"
        for name, row in SCHEDULE.items()
    ]
    return "\n".join([f"| {' | '.join(heads)} |", "|---" * len(heads) + "|", *lines])


def _first_paragraph(definition: dict[str, Any]) -> str:
    return _code(" ".join(definition.get("description", "").split("\n\n")[0].split()))


def _properties(definition: dict[str, Any], required_of: str = "") -> str:
    """Return a table of an object's keys.

    Raises:
        ValueError: A key of the configuration has no description.
    """
    described = dict(_ATTRIBUTE.findall(definition.get("description", "")))
    rows = ["| key | type | default | meaning |", "| --- | --- | --- | --- |"]
    for name, value in definition["properties"].items():
        text = value.get("description") or described.get(name, "")
        if not text and required_of:
            message = f"the key {name!r} of {required_of} has no description"
            raise ValueError(message)
        needed = name in definition.get("required", ())
        default = "required" if needed else f"`{json.dumps(value['default'])}`" if "default" in value else ""
        rows.append(f"| `{name}` | {_cell(_type(value))} | {_cell(default)} | {_cell(_code(' '.join(text.split())))} |")
    return "\n".join(rows)


def _type(value: dict[str, Any]) -> str:
    if "$ref" in value:
        name = value["$ref"].rsplit("/", 1)[-1]
        return f"[{name}](#{name.lower()})" if name in {"Finding"} else name
    if value.get("discriminator", {}).get("propertyName") == "backend":
        return "candidate"
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


def _code(text: str) -> str:
    return text.replace("``", "`")


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


GENERATED: Final[dict[str, Callable[[], str]]] = {
    "configuration": _configuration,
    "schedule": _schedule,
    "report": _report,
    "action inputs": _action("inputs"),
    "action outputs": _action("outputs"),
}


if __name__ == "__main__":
    for path in PAGES:
        path.write_text(with_tables(path.read_text("utf-8")), "utf-8")
