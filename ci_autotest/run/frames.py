"""Frames on the pipe between parent and worker: msgpack with a header of a mark and a length. Never pickle.

A frame that does not decode breaks the protocol: its worker is ended, and only the case in flight is lost.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec

from ci_autotest.run.messages import FromWorker, ToWorker, WorkerReply

if TYPE_CHECKING:
    from ci_autotest.run.messages import Message

T = TypeVar("T")

#: A mark, so that foreign code that writes to the pipe is noticed at its first bytes, and the length of the body.
HEADER: Final = struct.Struct("<4sI")
_MARK: Final = b"\xc1AT1"
#: Bytes of one frame; a recording of the largest tensors that a program may hold fits.
FRAME_BYTES: Final = 1 << 30

_ENCODER: Final = msgspec.msgpack.Encoder()
_TO_WORKER: Final = msgspec.msgpack.Decoder(ToWorker)
_FROM_WORKER: Final = msgspec.msgpack.Decoder(FromWorker)
_REPLY: Final = msgspec.msgpack.Decoder(WorkerReply)


def encode(message: Message | WorkerReply) -> bytes:
    """Return a message's bytes without a header."""
    return _ENCODER.encode(message)


def decode_reply(data: bytes) -> WorkerReply:
    """Return the reply of an agent on another machine.

    Raises:
        msgspec.DecodeError: The bytes are not a reply.
    """
    return _decoded(_REPLY, data)


def frame(message: Message) -> bytes:
    """Return a message's bytes with their header."""
    body = _ENCODER.encode(message)
    return HEADER.pack(_MARK, len(body)) + body


def size_of(header: bytes | bytearray) -> int | None:
    """Return the number of bytes that follow a header; ``None`` if it is not one, or announces more than is allowed."""
    mark, size = HEADER.unpack_from(header)
    return size if mark == _MARK and size <= FRAME_BYTES else None


def decode_to_worker(body: bytes) -> ToWorker:
    """Return a message of the parent."""
    message: ToWorker = _decoded(_TO_WORKER, body)
    return message


def decode_from_worker(body: bytes) -> FromWorker:
    """Return a message of a worker.

    Raises:
        msgspec.DecodeError: The bytes are not a message: foreign code wrote to the pipe.
    """
    message: FromWorker = _decoded(_FROM_WORKER, body)
    return message


def _decoded(decoder: msgspec.msgpack.Decoder[T], data: bytes) -> T:
    try:
        return decoder.decode(data)
    except (UnicodeDecodeError, RecursionError) as error:
        # msgspec raises these for invalid UTF-8 and deep nesting; callers handle a single kind of error.
        raise msgspec.DecodeError(str(error)) from error
