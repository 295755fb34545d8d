"""Where the ranks of a group connect to their worker, and where anybody else may connect too."""

from __future__ import annotations

import hmac
import select
import socket
import time
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from ci_autotest.backends.ranks.connection import GREETING_BYTES, GREETING_S, SEND_S, wire_of
from ci_autotest.backends.ranks.rank_node import Greeting
from ci_autotest.host.wire import SilentError, WireError

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Self

    from ci_autotest.host.wire import Wire

#: Connections that have not said yet who they are.
_STRANGERS_AT_MOST: Final = 64
_GREETINGS: Final = msgspec.json.Decoder(Greeting)


class _Stranger(NamedTuple):
    """Who has not said yet who it is; ``until`` is in monotonic seconds."""

    wire: Wire
    until: float


class Reception:
    """A port on which ranks say who they are. Nobody waits there for another one, who may say nothing.

    Args:
        host: This machine's address.
        secret: What a rank must say.
        silence_s: Seconds without a byte that a rank takes or gives in the middle of a frame after which it is gone.

    Attributes:
        address: Host and port.
        found: The wire of each rank that has said who it is.

    Raises:
        OSError: There is no port to be had.
    """

    def __init__(self, host: str, secret: str, silence_s: float = SEND_S) -> None:
        self._listener = socket.create_server((host, 0))
        self.address: tuple[str, int] = self._listener.getsockname()[:2]
        self._secret, self._silence_s = secret, silence_s
        self.found: dict[int, Wire] = {}
        self._strangers: dict[int, _Stranger] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        """Close the port, and every connection but those of the ranks; theirs too after an error."""
        self._listener.close()
        for stranger in self._strangers.values():
            stranger.wire.close()
        for wire in self.found.values() if error is not None else ():
            wire.close()

    def look(self, wait_s: float) -> bool:
        """Read what those who have connected say, for at most some seconds; return whether anybody said anything."""
        now = time.monotonic()
        for fd, stranger in [*self._strangers.items()]:
            if now > stranger.until:
                self._strangers.pop(fd).wire.close()
        listening = [self._listener.fileno()] if len(self._strangers) < _STRANGERS_AT_MOST else []
        ready = select.select([*listening, *self._strangers], [], [], wait_s)[0]
        for fd in ready:
            if fd in self._strangers:
                self._hear(fd)
            else:
                wire = wire_of(self._listener.accept()[0], self._silence_s, self._silence_s)
                self._strangers[wire.read_fd] = _Stranger(wire, now + GREETING_S)
        return bool(ready)

    def _hear(self, fd: int) -> None:
        wire = self._strangers[fd].wire
        try:
            greeting = _GREETINGS.decode(wire.receive(time.monotonic(), GREETING_BYTES)[0])
        except SilentError:  # It has only begun to say something.
            return
        except (WireError, msgspec.DecodeError):
            greeting = Greeting("", 0)
        del self._strangers[fd]
        if hmac.compare_digest(greeting.secret.encode(), self._secret.encode()):
            self.found[greeting.rank] = wire
        else:
            wire.close()
