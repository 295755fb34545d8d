"""Real messages and files, damaged: bits, slices, bytes that are no UTF-8, numbers, types and depths, each by its seed."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any, Final

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

#: Mutations of each message and file that is decoded.
COUNT: Final = 1000
#: What stands in a value's place: of another type, a number out of every range, a text that is none, a depth.
ODD: Final[tuple[Any, ...]] = (
    None, True, -1, 0, 2**31, 2**63 - 1, -(2**63), 2**64 - 1, 1e308, -0.0, "", "nan", "\0", "../x", "x" * 5000,
    [], {}, [None], {"": 0}, [[[[1]]]],
)  # fmt: skip
_DEEP: Final = (17, 600, 5000)


def mutations(data: bytes, seed: int, count: int = COUNT) -> Iterator[bytes]:
    """Yield ``data`` damaged in ``count`` ways: the same ones for one seed."""
    for number in range(count):
        yield mutated(data, random.Random(f"{seed}:{number}"))  # noqa: S311 - damage, not a secret


def mutated(data: bytes, chance: random.Random) -> bytes:
    """Return ``data`` damaged once, or a few times."""
    for _ in range(chance.choice((1, 1, 1, 2, 5))):
        data = chance.choice(_DAMAGES)(data, chance)
    return data


def _flipped(data: bytes, chance: random.Random) -> bytes:
    at = chance.randrange(len(data) or 1)
    return data[:at] + bytes(byte ^ (1 << chance.randrange(8)) for byte in data[at : at + 1]) + data[at + 1 :]


def _truncated(data: bytes, chance: random.Random) -> bytes:
    return data[: chance.randrange(len(data) + 1)]


def _slice(data: bytes, chance: random.Random) -> tuple[int, int]:
    start = chance.randrange(len(data) + 1)
    return start, min(len(data), start + chance.randrange(1, 40))


def _deleted(data: bytes, chance: random.Random) -> bytes:
    start, end = _slice(data, chance)
    return data[:start] + data[end:]


def _duplicated(data: bytes, chance: random.Random) -> bytes:
    start, end = _slice(data, chance)
    return data[:end] + data[start:end] + data[end:]


def _no_utf8(data: bytes, chance: random.Random) -> bytes:
    at = chance.randrange(len(data) + 1)
    return data[:at] + b"\xff" + data[at + chance.randrange(2) :]


def _huge_number(data: bytes, chance: random.Random) -> bytes:
    digits = [at for at, byte in enumerate(data) if byte in b"0123456789"]
    at = chance.choice(digits or [0])
    return (
        data[:at] + chance.choice((b"9" * 400, b"9" * 5000, b"1e999", b"-99999999999999999999", b"0")) + data[at + 1 :]
    )


def _odd_value(data: bytes, chance: random.Random) -> bytes:
    return _restructured(data, lambda _: chance.choice(ODD), chance)


def _deep_value(data: bytes, chance: random.Random) -> bytes:
    """Return a document with one value nested deeply; raw bytes, because an encoder refuses the depth."""
    depth = chance.choice(_DEEP)
    mark = "deeply-nested-value"
    marked = _restructured(data, lambda _: mark, chance)
    if _format(data) == "msgpack":
        return marked.replace(msgspec.msgpack.encode(mark), b"\x91" * depth + b"\xc0")
    return marked.replace(f'"{mark}"'.encode(), b"[" * depth + b"]" * depth)


def _format(data: bytes) -> str:
    """Return which of two formats a document is in; JSON for what is in neither."""
    return "msgpack" if data[:1] >= b"\x80" else "json"


def _restructured(data: bytes, change: Callable[[Any], Any], chance: random.Random) -> bytes:
    """Return a document with one of its values changed; what is no document stays as it is."""
    codec = getattr(msgspec, _format(data))
    try:
        document = codec.decode(data)
        places = list(_places(document))
        if not places:
            return data
        holder, key = chance.choice(places)
        holder[key] = change(holder[key])
        encoded: bytes = codec.encode(document)
    except (ValueError, RecursionError, TypeError, OverflowError):
        return data
    return encoded


def _places(document: object) -> Iterator[tuple[Any, Any]]:
    items = (
        document.items() if isinstance(document, dict) else enumerate(document) if isinstance(document, list) else ()
    )
    for key, value in items:
        yield document, key
        yield from _places(value)


_DAMAGES: Final = (
    _flipped, _truncated, _deleted, _duplicated, _no_utf8, _huge_number, _odd_value, _odd_value, _deep_value,
)  # fmt: skip
