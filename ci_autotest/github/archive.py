"""Own the reading of an artifact: by an allow list of names, sizes and counts; nothing is unpacked.

Whoever opened the pull request may have written the archive. A plain file that is none of a report's is passed over
unread, as a test or a later version may have left it; a name that leads anywhere refuses the whole.
"""

from __future__ import annotations

import re
import stat
import struct
import zipfile
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ci_autotest.errors import PublishError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import BinaryIO

#: Bytes of an archive that is downloaded at all; 10,000 findings take about 40 MB.
MOST_BYTES: Final = 128 << 20
#: Entries; 10,000 findings of four files each leave room for their folders.
MOST_ENTRIES: Final = 60_000
#: Bytes of all entries together, as they say themselves. They are not read; more is no report.
MOST_UNPACKED_BYTES: Final = 4 << 30
#: Bytes that are looked through at once.
_PIECE_BYTES: Final = 1 << 20
#: Bytes that an entry of this name may have, read or not.
MOST_OF: Final = {
    "report.json": 64 << 20,
    "junit.xml": 256 << 20,
    "summary.md": 2 << 20,
    "comment.md": 1 << 20,
    "index.html": 256 << 20,
    "repro.py": 64 << 20,
    "program.json": 8 << 20,
    "tensors.safetensors": 1 << 30,
    "README.md": 2 << 20,
}

_ALLOWED: Final = re.compile(
    r"(?:report\.json|junit\.xml|summary\.md|comment\.md|index\.html)"
    r"|findings/(?:[a-z0-9_-]{1,200}/(?:repro\.py|program\.json|tensors\.safetensors|README\.md)?)?"
)
#: Names of other files, which are passed over: no way up, no drive, nothing hidden.
_OTHER: Final = re.compile(r"(?:[A-Za-z0-9_-][A-Za-z0-9_. -]{0,199}/){0,8}[A-Za-z0-9_-][A-Za-z0-9_. -]{0,199}")
# Source: .ZIP File Format Specification 6.3.10, 4.3.12 (central directory header), 4.4.4 (flags), 4.4.5 (methods).
_HEADER: Final = b"PK\x01\x02"
_ENCRYPTED: Final = 0x1 | 0x40 | 0x2000
_METHODS: Final = frozenset({zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED})
#: What the standard library raises on archives that are none.
_DAMAGED: Final = (
    zipfile.BadZipFile, zipfile.LargeZipFile, zlib.error, struct.error, EOFError, NotImplementedError, RuntimeError,
    OSError, ValueError, OverflowError, IndexError,
)  # fmt: skip


@dataclass(frozen=True)
class Archive:
    """Hold an artifact whose entries are all allowed.

    Attributes:
        name: Of the artifact, for messages.
    """

    name: str
    _zip: zipfile.ZipFile
    _entries: Mapping[str, zipfile.ZipInfo]

    def __contains__(self, entry: str) -> bool:
        """Whether there is an entry of this name."""
        return entry in self._entries

    def read(self, entry: str, most_bytes: int) -> bytes:
        """Return the content of an entry.

        Raises:
            PublishError: There is none, it is larger than it says or than ``most_bytes``, or is damaged.
        """
        info = self._entries.get(entry)
        if info is None:
            message = f"artifact {self.name!r} holds no {entry}: no run of ci-autotest has written it."
            raise PublishError(message)
        if info.file_size > most_bytes:
            message = f"{entry} of artifact {self.name!r} has {info.file_size:,} bytes, and {most_bytes:,} are read."
            raise PublishError(message)
        try:
            with self._zip.open(info) as file:
                # Reads no more than the entry says that it has, and checks its sum at the end.
                content = file.read()
        except _DAMAGED as error:
            raise _refusal(self.name, f"{entry} cannot be read: {error}") from None
        if len(content) != info.file_size:
            why = f"{entry} cannot be read: it has {len(content):,} bytes and says {info.file_size:,}"
            raise _refusal(self.name, why)
        return content


def opened(name: str, file: BinaryIO) -> Archive:
    """Return the archive, every entry of it checked.

    Raises:
        PublishError: It is damaged, or holds what a report's folder does not.
    """
    # Counted before the library makes an object of each.
    count = _count(file, _HEADER)
    if count > MOST_ENTRIES:
        raise _refusal(name, f"it has {count:,} entries, and {MOST_ENTRIES:,} are allowed")
    try:
        archive = zipfile.ZipFile(file)
    except _DAMAGED as error:
        raise _refusal(name, f"it is no archive: {error}") from None
    entries: dict[str, zipfile.ZipInfo] = {}
    for info in archive.infolist():
        wrong = _wrong(info)
        if wrong or info.filename in entries:
            raise _refusal(name, f"entry {info.orig_filename[:100]!r} {wrong or 'is there twice'}")
        entries[info.filename] = info
    total = sum(info.file_size for info in entries.values())
    if total > MOST_UNPACKED_BYTES:
        raise _refusal(name, f"its entries have {total:,} bytes, and {MOST_UNPACKED_BYTES:,} are allowed")
    return Archive(name, archive, {key: info for key, info in entries.items() if _ALLOWED.fullmatch(key)})


def _count(file: BinaryIO, wanted: bytes) -> int:
    """Count ``wanted`` in a file, a piece at a time."""
    file.seek(0)
    count, rest = 0, b""
    while piece := file.read(_PIECE_BYTES):
        piece = rest + piece
        count += piece.count(wanted)
        rest = piece[1 - len(wanted) :]
    return count


def _wrong(info: zipfile.ZipInfo) -> str:
    """Return what is wrong with an entry; the library has renamed what it does not like, so the name is asked twice."""
    kind = stat.S_IFMT(info.external_attr >> 16)
    is_known = _ALLOWED.fullmatch(info.filename) is not None
    most = MOST_OF.get(info.filename.rpartition("/")[2], 0) if is_known else MOST_UNPACKED_BYTES
    is_named = is_known or _OTHER.fullmatch(info.filename) is not None
    faults = {
        "is none of a report's files": info.orig_filename != info.filename or not is_named,
        "is no plain file": kind not in {0, stat.S_IFREG, stat.S_IFDIR},
        "is a folder with a file's name": kind == stat.S_IFDIR and not info.is_dir(),
        "is encrypted": bool(info.flag_bits & _ENCRYPTED),
        f"is compressed by method {info.compress_type}": info.compress_type not in _METHODS,
        f"has {info.file_size:,} bytes, and {most:,} are allowed": info.file_size > most,
    }
    return next((fault for fault, holds in faults.items() if holds), "")


def _refusal(name: str, why: str) -> PublishError:
    return PublishError(f"artifact {name!r} is not read: {why}. It is no report of ci-autotest; see what uploaded it.")
