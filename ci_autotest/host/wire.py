"""The wire between a worker and its host: frames of a JSON head and raw buffers, over two pipes."""

from __future__ import annotations

import os
import select
import struct
import time
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

#: Bytes of the head, number of buffers; then the length of each buffer.
_COUNTS: Final = struct.Struct("<II")
_LENGTH_BYTES: Final = 8
_READ_BYTES: Final = 1 << 20
#: Limits of a frame. They keep a broken peer from making us wait for, or allocate, an absurd number of bytes.
_HEAD_AT_MOST: Final = 1 << 28
_BUFFERS_AT_MOST: Final = 1 << 16
_BUFFER_AT_MOST: Final = 1 << 36


class WireError(Exception):
    """The other end is gone, or sent something that is no frame."""


class GoneError(WireError):
    """The other end has closed its pipe or connection."""


class SilentError(WireError):
    """The other end sent no complete frame before the deadline."""


class Wire:
    """One end of a pair of pipes.

    Args:
        read_fd: Descriptor to read from.
        write_fd: Descriptor to write to.
    """

    def __init__(self, read_fd: int, write_fd: int) -> None:
        self.read_fd = read_fd
        self.write_fd = write_fd
        self._buffer = bytearray()

    def send(self, head: bytes, buffers: Sequence[bytes | memoryview] = ()) -> None:
        """Write a frame.

        Raises:
            WireError: The other end does not read any more.
        """
        lengths = struct.pack(f"<{len(buffers)}Q", *map(len, buffers))
        view = memoryview(b"".join((_COUNTS.pack(len(head), len(buffers)), lengths, head, *buffers)))
        try:
            # A pipe takes only part of a large frame at once.
            while view:
                view = view[os.write(self.write_fd, view) :]
        except OSError as error:
            raise WireError(str(error)) from error

    def receive(self, until: float | None = None, at_most: int | None = None) -> tuple[bytes, list[memoryview]]:
        """Return the next frame: its head and its buffers.

        Args:
            until: Deadline in monotonic seconds; ``None`` to wait forever.
            at_most: Bytes of the head of a frame that must have no buffers, from a peer who has not said who it is yet.

        Raises:
            WireError: The other end is gone, or sent something that is no frame.
            SilentError: The frame is not complete at the deadline. What has come of it is kept.
        """
        self._fill(_COUNTS.size, until)
        head_size, count = _COUNTS.unpack_from(self._buffer)
        is_allowed = head_size <= _HEAD_AT_MOST and count <= _BUFFERS_AT_MOST
        if not is_allowed or (at_most is not None and (head_size > at_most or count)):
            message = f"a frame with {head_size} bytes of head and {count} buffers"
            raise WireError(message)
        start = _COUNTS.size + _LENGTH_BYTES * count
        self._fill(start, until)
        lengths = struct.unpack_from(f"<{count}Q", self._buffer, _COUNTS.size)
        size = sum(lengths)
        if size > _BUFFER_AT_MOST:
            message = f"a frame of {size} bytes"
            raise WireError(message)
        self._fill(start + head_size + size, until)
        self._take(start)
        head, rest = self._take(head_size), memoryview(self._take(size))
        ends = list(accumulate(lengths, initial=0))
        return head, [rest[start:end] for start, end in pairwise(ends)]

    def _fill(self, size: int, until: float | None) -> None:
        """Read until so many bytes have come."""
        while len(self._buffer) < size:
            if until is not None and not self._has_come(until - time.monotonic()):
                message = "the other end is silent"
                raise SilentError(message)
            try:
                part = os.read(self.read_fd, _READ_BYTES)
            except OSError as error:  # a connection that was reset
                raise GoneError(str(error)) from error
            if not part:
                message = "the other end is gone"
                raise GoneError(message)
            self._buffer += part

    def _take(self, size: int) -> bytes:
        """Return the first bytes that have come, and forget them."""
        # Copied, because a bytearray cannot shrink while a view of it exists.
        found = bytes(memoryview(self._buffer)[:size])
        del self._buffer[:size]
        return found

    def is_ready(self, wait_s: float) -> bool:
        """Whether within some seconds there is something to read, or the other end is gone."""
        # The frame may have arrived together with the one before it.
        return bool(self._buffer) or self._has_come(wait_s)

    def _has_come(self, wait_s: float) -> bool:
        return bool(select.select([self.read_fd], [], [], max(0.0, wait_s))[0])

    def close(self) -> None:
        """Close both pipes."""
        for fd in (self.read_fd, self.write_fd):
            os.close(fd)
