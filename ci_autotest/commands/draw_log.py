"""The draw log of a case as text: printed, edited by hand and read back, one ``name = value`` on a line."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from ci_autotest.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from ci_autotest.values.case import Draw, DrawnValue

_FIELDS: Final[dict[str, type]] = {"test": str, "seed": int, "case": int, "attempt": int, "profile": str}


@dataclass(frozen=True, slots=True)
class DrawLog:
    """A case and its draws.

    Args:
        test: Id of the test.
        seed: Root seed, which determines the data of tensors.
        case: Number of the case.
        attempt: ``None`` for the attempt that the reference accepts.
        profile: Profile of the attempt; ``None`` for the one of the case.
        values: Edited draws by site; all others are drawn anew.
    """

    test: str
    seed: int
    case: int
    attempt: int | None = None
    profile: str | None = None
    values: Mapping[str, DrawnValue] = field(default_factory=dict)


def render(log: DrawLog, draws: Iterable[Draw], profile: str) -> str:
    """Return the text of a case: the fields that name it, then each draw with its kind and range.

    The profile is a comment, because it follows from the case's number unless the log names one.
    """
    lines = [f"{name} = {getattr(log, name)!r}" for name in _FIELDS if getattr(log, name) is not None]
    lines.append(f"# profile: {profile}")
    for draw in draws:
        line = f"{draw.label} = {draw.value!r}"
        lines.append(f"{line:<28}  # {draw.kind} of [{draw.low:g}, {draw.high:g})")
    return "\n".join(lines) + "\n"


def parse(text: str, file: str) -> DrawLog:
    """Parse a draw log, edited or not.

    Raises:
        UsageError: A line is not ``name = value``, a name occurs twice, or the test or case is missing.
    """
    found: dict[str, DrawnValue] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("def "):
            break  # The program below the draws follows from them.
        if not line.partition("#")[0].strip():
            continue
        name, value = edit_of(line, f"{file}, line {number}")
        if name in found:
            message = f"{file}, line {number}: {name} is given twice. Keep one."
            raise UsageError(message)
        found[name] = value
    fields = {name: found.pop(name) for name in _FIELDS if name in found}
    for name, kind in _FIELDS.items():
        if name in {"test", "case"} and name not in fields:
            message = f"{file} names no {name}. Keep the lines that `ci-autotest draws` printed."
            raise UsageError(message)
        if name in fields and type(fields[name]) is not kind:
            message = f"{file}: {name} is {fields[name]!r}. Give {'a number' if kind is int else 'a text in quotes'}."
            raise UsageError(message)
    return DrawLog(**{"seed": 0, **fields}, values=found)  # type: ignore[arg-type]


def edit_of(text: str, source: str) -> tuple[str, DrawnValue]:
    """Return the name and the value of ``name = value``.

    Args:
        text: The assignment.
        source: Where it stands, for messages.

    Raises:
        UsageError: It is not an assignment, or the value is not a number, boolean or quoted text.
    """
    name, equals, rest = text.partition("=")
    try:
        value = ast.literal_eval(rest.strip())
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):  # the last two for deep nesting
        value = ...
    if not equals or not name.strip() or not isinstance(value, bool | int | float | str):
        message = f"{source}: {text.strip()!r} is no draw. Write SITE=VALUE, such as 0.ndim=2."
        raise UsageError(message)
    return name.strip(), value


def asked_for(test: str | None, case: int, edits: Iterable[str], file: Path | None, seed: int | str) -> DrawLog:
    """Return the log of a command line, which gives a test and a case, or a file; edits override it.

    Raises:
        UsageError: Both or neither are given, or an edit cannot be parsed.
    """
    values = dict(edit_of(text, "--edit") for text in edits)
    if (test is None) == (file is None):
        message = "give either a test, as PATH::TEST, or --log FILE with what `ci-autotest draws` printed."
        raise UsageError(message)
    if file is not None:
        read = parse(_text(file), str(file))
        return replace(read, values={**read.values, **values})
    return DrawLog(test or "", seed if isinstance(seed, int) else 0, case, values=values)


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or f"it is not UTF-8 ({error})"
        message = f"{file} cannot be read: {reason}. Give --log a file with what `ci-autotest draws` printed."
        raise UsageError(message) from error
