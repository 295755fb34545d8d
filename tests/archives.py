"""Make artifacts as GitHub stores them, honest and hostile."""

from __future__ import annotations

import io
import json
import struct
import warnings
import zipfile
import zlib
from typing import TYPE_CHECKING

import msgspec

from ci_autotest.report import report_json

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ci_autotest.values.result import RunResult


def zipped(entries: Mapping[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    """Return an archive of these entries."""
    return made([(name, data, {}) for name, data in entries.items()], method)


def made(entries: list[tuple[str, bytes, dict]], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    """Return an archive of entries with attributes of their own: two of one name are both written."""
    file = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(file, "w", method) as archive:
        warnings.simplefilter("ignore", UserWarning)
        for name, data, attributes in entries:
            info = zipfile.ZipInfo(name)
            info.compress_type = method
            info.external_attr = 0o100644 << 16
            for key, value in attributes.items():
                setattr(info, key, value)
            archive.writestr(info, data)
    return file.getvalue()


def report_bytes(result: RunResult, **changes) -> bytes:
    """Return ``report.json`` of a result, with fields as somebody may have changed them."""
    document = json.loads(msgspec.json.encode(report_json.ordered(result)))
    return json.dumps(document | changes).encode()


def patched(data: bytes, name: str, offset_local: int, offset_central: int, fmt: str, value: int) -> bytes:
    """Return an archive whose headers of an entry say something else, both of them.

    Args:
        data: The archive.
        name: Of the entry.
        offset_local: Of the field in the local header; -1 for none.
        offset_central: Of the field in the central directory.
        fmt: Of the field, as ``struct`` has it.
        value: What the headers are to say.
    """
    out = bytearray(data)
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        local = archive.getinfo(name).header_offset
    central = data.index(b"PK\x01\x02")
    while data[central + 46 : central + 46 + len(name)] != name.encode():
        central = data.index(b"PK\x01\x02", central + 4)
    if offset_local >= 0:
        struct.pack_into(fmt, out, local + offset_local, value)
    struct.pack_into(fmt, out, central + offset_central, value)
    return bytes(out)


def bomb(size_bytes: int) -> bytes:
    """Return an archive whose report.json is zeros, which are compressed to a thousandth."""
    return zipped({"report.json": b"\0" * size_bytes})


def crc_of(data: bytes) -> int:
    """Return the sum that an entry of these bytes has."""
    return zlib.crc32(data)
