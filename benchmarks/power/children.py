"""Children: a piece of work in a process of its own, because a mutant may read or write outside of its tensors."""

from __future__ import annotations

import json
import os
import select
import signal
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


def in_child(work: Callable[[Callable[[Any], None]], None], limit_s: float) -> tuple[list[Any], bool]:
    """Run ``work(tell)`` in a fork of this process; return the values that it told, and whether it ended by itself.

    Args:
        work: Is given a function that sends a value to this process at once, so that it survives a crash.
        limit_s: Seconds without a value after which the child is killed.
    """
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        _run(work, writer)
    os.close(writer)
    told, held = [], b""
    with os.fdopen(reader, "rb", buffering=0) as pipe:
        while select.select([pipe], [], [], limit_s)[0]:
            block = pipe.read(65536)
            if not block:
                break
            *lines, held = (held + block).split(b"\n")
            told += [json.loads(line) for line in lines]
        else:
            os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    return told, status == 0


def _run(work: Callable[[Callable[[Any], None]], None], writer: int) -> None:
    """Work and end this process, whatever happens."""
    status = 1
    try:
        work(lambda value: _write(writer, json.dumps(value).encode() + b"\n"))
        status = 0
    finally:
        os._exit(status)


def _write(writer: int, data: bytes) -> None:
    while data:
        data = data[os.write(writer, data) :]
