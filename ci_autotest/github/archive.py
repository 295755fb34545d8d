"""Read the report and the programs of an artifact, within limits of sizes and counts; nothing is unpacked.

The author of the pull request may have written the archive. Whatever else it has is passed over unread, however it is
named: a test or a later version may have left it there.
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

#: Largest archive that is downloaded, in bytes; 10,000 findings take about 40 MB.
MOST_BYTES: Final = 128 << 20
#: Most entries: 10,000 findings of four files each, with their folders.
MOST_ENTRIES: Final = 60_000
#: Bytes of all entries that may be read together, by their headers: a report is never larger.
MOST_UNPACKED_BYTES: Final = 4 << 30
#: Bytes that are searched at once.
_PIECE_BYTES: Final = 1 << 20
#: Largest size of an entry with this name.
MOST_OF: Final = {"report.json": 64 << 20, "program.json": 8 << 20}
#: What is read. Whatever else is there is never opened, linked by its name or published.
_READ: Final = re.compile(r"report\.json|findings/[a-z0-9_-]{1,200}/program\.json")
# Source: .ZIP File Format Specification 6.3.10, 4.3.12 (central directory header), 4.4.4 (flags), 4.4.5 (methods).
_HEADER: Final = b"PK\x01\x02"
_ENCRYPTED: Final = 0x1 | 0x40 | 0x2000
_METHODS: Final = frozenset({zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED})
#: What the standard library raises for damaged archives.
_DAMAGED: Final = (
    zipfile.BadZipFile, zipfile.LargeZipFile, zlib.error, struct.error, EOFError, NotImplementedError, RuntimeError,
    OSError, ValueError, OverflowError, IndexError,
)  # fmt: skip


@dataclass(frozen=True)
class Archive:
    """An artifact whose report and programs may be read.

    Attributes:
        name: Name of the artifact, for messages.
    """

    name: str
    _zip: zipfile.ZipFile
    _entries: Mapping[str, zipfile.ZipInfo]

    def __contains__(self, entry: str) -> bool:
        """Whether the archive has an entry with this name."""
        return entry in self._entries

    def read(self, entry: str, most_bytes: int) -> bytes:
        """Return the content of an entry.

        Raises:
            PublishError: It does not exist, is larger than its header or ``most_bytes`` says, or is damaged.
        """
        info = self._entries.get(entry)
        if info is None:
            message = f"artifact {self.name!r} has no {entry}, so no run of ci-autotest wrote it."
            raise PublishError(message)
        if info.file_size > most_bytes:
            message = (
                f"{entry} of artifact {self.name!r} has {info.file_size:,} bytes; at most {most_bytes:,} are read."
            )
            raise PublishError(message)
        try:
            with self._zip.open(info) as file:
                # zipfile reads no more than the size in the header, and checks the checksum at the end.
                content = file.read()
        except _DAMAGED as error:
            raise _refusal(self.name, f"{entry} cannot be read: {error}") from None
        if len(content) != info.file_size:
            why = f"{entry} cannot be read: it has {len(content):,} bytes, but its header says {info.file_size:,}"
            raise _refusal(self.name, why)
        return content


def opened(name: str, file: BinaryIO) -> Archive:
    """Return the archive, every entry of it checked that may be read.

    Raises:
        PublishError: It is damaged, or has such an entry that no report has.
    """
    # Counted first, because zipfile makes an object of each entry.
    count = _count(file, _HEADER)
    if count > MOST_ENTRIES:
        raise _refusal(name, f"it has {count:,} entries, and {MOST_ENTRIES:,} are allowed")
    try:
        archive = zipfile.ZipFile(file)
    except _DAMAGED as error:
        raise _refusal(name, f"it is not an archive: {error}") from None
    entries: dict[str, zipfile.ZipInfo] = {}
    for info in archive.infolist():
        if not _READ.fullmatch(info.filename):
            continue
        # Of two entries with one name zipfile would read the last, and another reader the first.
        wrong = _wrong(info)
        if wrong or info.filename in entries:
            raise _refusal(name, f"entry {info.orig_filename[:100]!r} {wrong or 'appears twice'}")
        entries[info.filename] = info
    total = sum(info.file_size for info in entries.values())
    if total > MOST_UNPACKED_BYTES:
        raise _refusal(name, f"its entries have {total:,} bytes, and {MOST_UNPACKED_BYTES:,} are allowed")
    return Archive(name, archive, entries)


def _count(file: BinaryIO, wanted: bytes) -> int:
    """Count ``wanted`` in a file, a piece at a time."""
    file.seek(0)
    count, rest = 0, b""
    while piece := file.read(_PIECE_BYTES):
        piece = rest + piece
        count += piece.count(wanted)
        # A header may begin in one piece and end in the next.
        rest = piece[1 - len(wanted) :]
    return count


def _wrong(info: zipfile.ZipInfo) -> str:
    """Return what is wrong with an entry; both names are checked, because zipfile rewrites unusual ones."""
    # An archive that was not made on Unix has no mode: its kind is 0.
    kind = stat.S_IFMT(info.external_attr >> 16)
    most = MOST_OF[info.filename.rpartition("/")[2]]
    faults = {
        "is not a file of a report": info.orig_filename != info.filename,
        "is not a plain file": kind not in {0, stat.S_IFREG},
        "is encrypted": bool(info.flag_bits & _ENCRYPTED),
        f"is compressed by method {info.compress_type}": info.compress_type not in _METHODS,
        f"has {info.file_size:,} bytes, and {most:,} are allowed": info.file_size > most,
    }
    return next((fault for fault, holds in faults.items() if holds), "")


def _refusal(name: str, why: str) -> PublishError:
    return PublishError(
        f"artifact {name!r} is not read: {why}. It is not a report of ci-autotest; check what uploaded it."
    )
