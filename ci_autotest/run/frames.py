"""Frames on the pipe between parent and worker: msgpack with a header of a mark and a length. Never pickle.

A frame that does not decode breaks the protocol: its worker is ended, and only the case in flight is lost.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec

from ci_autotest.run.messages import FromWorker, Reply, ToWorker

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
_REPLY: Final = msgspec.msgpack.Decoder(Reply)


def encode(message: Message | Reply) -> bytes:
    """Return a message's bytes, without a frame."""
    return _ENCODER.encode(message)


def decode_reply(data: bytes) -> Reply:
    """Return what the agent of another machine passes on.

    Raises:
        msgspec.DecodeError: It is no reply.
    """
    return _decoded(_REPLY, data)


def frame(message: Message) -> bytes:
    """Return a message's bytes with its length before them."""
    body = _ENCODER.encode(message)
    return HEADER.pack(_MARK, len(body)) + body


def size_of(header: bytes | bytearray) -> int | None:
    """Return the bytes that follow a header; ``None`` when it is none, or announces more than is allowed."""
    mark, size = HEADER.unpack_from(header)
    return size if mark == _MARK and size <= FRAME_BYTES else None


def decode_to_worker(body: bytes) -> ToWorker:
    """Return what the parent said."""
    message: ToWorker = _decoded(_TO_WORKER, body)
    return message


def decode_from_worker(body: bytes) -> FromWorker:
    """Return what a worker said.

    Raises:
        msgspec.DecodeError: It is no message: foreign code wrote to the pipe.
    """
    message: FromWorker = _decoded(_FROM_WORKER, body)
    return message


def _decoded(decoder: msgspec.msgpack.Decoder[T], data: bytes) -> T:
    """Return the message that bytes are, whatever is wrong with them one kind of error.

    Raises:
        msgspec.DecodeError: They are none.
    """
    try:
        return decoder.decode(data)
    except (UnicodeDecodeError, RecursionError) as error:  # text that is no UTF-8, and depth, pass the library by
        raise msgspec.DecodeError(str(error)) from error
