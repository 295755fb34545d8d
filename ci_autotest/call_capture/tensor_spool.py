"""The file in which the elements of observed tensors wait for the end of the program: written once, not kept in memory.

A captured process writes it, and the parent reads it; both need nothing but bytes.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

#: Most bytes of one tensor, and of all tensors of a capture: the files go into a repository.
TENSOR_BYTES: Final = 1 << 20
ALL_BYTES: Final = 64 << 20


class TensorSpool:
    """The file, for the process that writes it; a forked child writes nothing.

    Args:
        path: The file.

    Attributes:
        path: The file.
        size: Number of bytes that were written and are still wanted.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.size = 0
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._process = os.getpid()

    def has_room_for(self, size_bytes: int) -> bool:
        """Whether a tensor of this size may be added."""
        return size_bytes <= min(TENSOR_BYTES, ALL_BYTES - self.size) and os.getpid() == self._process

    def add(self, data: bytes) -> int | None:
        """Write elements and return their place; ``None`` if the disk is full, because the program must go on."""
        place = self.size
        while data:
            try:
                written = os.pwrite(self._file, data, self.size)
            except OSError:
                self.size = place
                return None
            self.size += written
            data = data[written:]
        return place

    def rewind(self, size: int) -> None:
        """Give up what was written after the file had this size, for a call that becomes no test."""
        self.size = size

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)


def read_elements(path: Path, place: int, size_bytes: int) -> bytes | None:
    """Return the elements at a place; ``None`` if the process ended before all of them were written."""
    with path.open("rb") as file:
        file.seek(place)
        found = file.read(size_bytes)
    return found if len(found) == size_bytes else None
