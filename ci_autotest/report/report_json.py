"""``report.json``: written deterministically, read strictly.

The file is the run's record: shards are merged from it, comments are made from it and a later run is compared with it.
Somebody else may have written a file that is read, so names that become paths are checked here.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, Final

import msgspec

from ci_autotest.errors import OutputError, UnavailableError, UsageError
from ci_autotest.report.atomic import write_bytes
from ci_autotest.report.finding_folders import is_finding_id
from ci_autotest.values.result import SCHEMA, RunError, RunResult
from ci_autotest.values.schema import schema_of
from ci_autotest.values.verdict import printable

if TYPE_CHECKING:
    from pathlib import Path

#: Largest report that is read, in bytes; 10,000 findings take about 20 MiB.
GREATEST_SIZE_BYTES: Final = 64 * 1024 * 1024

_SURROGATE: Final = re.compile("[\ud800-\udfff]")


class _ReportHead(msgspec.Struct, frozen=True):
    """The part of a report that decides how the rest is read."""

    schema: str = ""


def ordered(result: RunResult) -> RunResult:
    """Return the run with every collection sorted whose order means nothing, so that equal runs give equal bytes.

    Candidates and notes keep their order.
    """
    return msgspec.structs.replace(
        result,
        results=tuple(sorted(result.results, key=lambda item: (item.test, item.candidate))),
        findings=tuple(sorted(result.findings, key=lambda item: (item.test, item.case, item.identity))),
        broken=tuple(sorted(result.broken, key=lambda item: (item.test, item.message))),
        fixed=tuple(sorted(result.fixed)),
        speed=tuple(
            sorted(result.speed, key=lambda item: (item.test, item.candidate, item.case, item.phase != "forward"))
        ),
        new=None if result.new is None else tuple(sorted(result.new)),
    )


def write(result: RunResult, path: Path) -> None:
    """Write the report as JSON, indented by 2, the same bytes for the same run.

    Raises:
        OutputError: The folder cannot be written, or a number is not finite and the schema allows no ``null``.
    """
    data = text_of(result)
    _decoded(data, str(path))
    write_bytes(path, data)


def text_of(result: RunResult) -> bytes:
    """Return the content of ``report.json``."""
    return msgspec.json.format(_encoded(ordered(result)), indent=2) + b"\n"


def read(path: Path) -> RunResult:
    """Read a report strictly.

    Raises:
        OutputError: The file is missing, too large, truncated, of another schema, or has something that the schema
            does not allow.
    """
    return parsed(_content(path), str(path))


def _with_error(result: RunResult) -> RunResult:
    """Return a report of before, in which what ended the run was one of the notes, with that as its error."""
    places = {UsageError.exit_code: 0, UnavailableError.exit_code: -1}
    if result.error is not None or result.exit_code not in places or not result.notes:
        return result
    error = RunError(result.notes[places[result.exit_code]], result.exit_code)
    return msgspec.structs.replace(result, error=error)


def _with_places(result: RunResult) -> RunResult:
    """Return a report without places whose names could not stand beside code: it may come from outside."""
    findings = tuple(
        finding if finding.at is None or printable(finding.at) else msgspec.structs.replace(finding, at=None)
        for finding in result.findings
    )
    return msgspec.structs.replace(result, findings=findings)


def parsed(data: bytes, where: str) -> RunResult:
    """Return the report in ``data``, read strictly.

    Args:
        data: Content of ``report.json``.
        where: Its origin, for messages.

    Raises:
        OutputError: As for ``read``.
    """
    result = _decoded(data, where)
    _check_keys(data, where)
    _check_names(result, where)
    return _with_places(_with_error(result))


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of ``report.json``, as it is shipped in ``report.schema.json``."""
    schema = schema_of(RunResult)
    definition = schema["$defs"]["RunResult"]
    # The type has a default for code that builds a result; a file must name its schema.
    definition["required"] = ["schema", *definition["required"]]
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": SCHEMA, **schema}


def _encoded(result: RunResult) -> bytes:
    try:
        return msgspec.json.encode(result, order="deterministic")
    except UnicodeEncodeError:
        # A file name that is not UTF-8 reaches a message as lone surrogates, which JSON cannot represent.
        return msgspec.json.encode(_without_surrogates(msgspec.to_builtins(result)), order="deterministic")


def _without_surrogates(value: Any) -> Any:
    match value:
        case str():
            return _SURROGATE.sub(lambda found: f"\\u{ord(found[0]):04x}", value)
        case dict():
            return {_without_surrogates(key): _without_surrogates(item) for key, item in value.items()}
        case list() | tuple():
            return [_without_surrogates(item) for item in value]
        case _:
            return value


def _content(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            data = file.read(GREATEST_SIZE_BYTES + 1)
    except OSError as error:
        message = f"{path} cannot be read: {error.strerror}. Name a folder that `ci-autotest run` has written."
        raise OutputError(message) from error
    if len(data) > GREATEST_SIZE_BYTES:
        message = (
            f"{path} is larger than {GREATEST_SIZE_BYTES:,} bytes, the limit for a report. "
            "Name a report that `ci-autotest run` has written."
        )
        raise OutputError(message)
    return data


def _decoded(data: bytes, path: str) -> RunResult:
    try:
        schema = msgspec.json.decode(data, type=_ReportHead).schema
        if schema == SCHEMA:
            return msgspec.json.decode(data, type=RunResult)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        message = f"{path} is not a report: {error}. It is truncated or was edited; run again to make a new one."
        raise OutputError(message) from error
    found = f"has schema '{schema[:80]}'" if schema else "names no schema"
    message = f"{path} {found}: this version reads '{SCHEMA}'. Read it with the version that wrote it."
    raise OutputError(message)


def _check_keys(data: bytes, path: str) -> None:
    """Refuse an object that has a key twice, because readers differ in which value they take."""
    twice: list[str] = []

    def note(pairs: list[tuple[str, object]]) -> None:
        if len({key for key, _ in pairs}) < len(pairs):
            twice.append(Counter(key for key, _ in pairs).most_common(1)[0][0])

    try:
        # `parse_int`, because Python refuses to parse an integer of 5,000 digits.
        json.loads(data, object_pairs_hook=note, parse_int=float)
    except (ValueError, RecursionError) as error:  # In a field of a newer version, which is not decoded.
        message = f"{path} is not a report: {error}. It is truncated or was edited; run again to make a new one."
        raise OutputError(message) from error
    if twice:
        message = (
            f"{path} has the key {twice[0][:80]!r} twice in one object. It was edited; run again to make a new one."
        )
        raise OutputError(message)


def _check_names(result: RunResult, path: str) -> None:
    """Refuse names that lead out of the output folder, and a candidate that is there twice."""
    names = [info.name for info in result.candidates]
    for name in names:
        if names.count(name) > 1:
            message = f"{path} has two candidates named {name[:80]!r}. The file was edited."
            raise OutputError(message)
    ids = [finding.id for finding in result.findings]
    for name in (*ids, *(result.new or ())):
        if not is_finding_id(name):
            message = f"{path} names a finding {name[:80]!r}, which is not a finding id. The file was edited."
            raise OutputError(message)
    for repro in (finding.repro for finding in result.findings if finding.repro is not None):
        if PurePosixPath(repro).is_absolute() or ".." in PurePosixPath(repro).parts or "\\" in repro:
            message = f"{path} names a repro {repro[:80]!r}, which is not in the output folder. The file was edited."
            raise OutputError(message)
