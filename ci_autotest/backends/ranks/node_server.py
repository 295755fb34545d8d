"""The connection of a worker to the server of ranks on a node: it answers questions in their order, or is lost."""

from __future__ import annotations

import contextlib
import time
from collections import deque
from typing import TYPE_CHECKING

import msgspec

from ci_autotest.backends.ranks.connection import connected, wire_of
from ci_autotest.errors import UnavailableError
from ci_autotest.host.wire import WireError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ci_autotest.backends.ranks.rank_node import Setup


class LostNodeError(WireError):
    """A server does not answer."""


class NodeServer:
    """The connection to the server of a node.

    Args:
        address: Its host and port.
        setup: What it needs.
        answer_s: Seconds that it may take to answer.

    Attributes:
        address: Its host and port.
        is_alive: Whether it has answered so far.
        own_host: This machine's address, as that node reaches it.

    Raises:
        OSError: It cannot be reached.
    """

    def __init__(self, address: tuple[str, int], setup: Setup, answer_s: float) -> None:
        self.address = address
        connection = connected(address)
        self.own_host: str = connection.getsockname()[0]
        self._wire, self._answer_s, self.is_alive = wire_of(connection, answer_s), answer_s, True
        #: For each question without an answer yet, until when it is waited for, in monotonic seconds.
        self._until: deque[float] = deque()
        self._named = f"candidate '{setup.candidate.name}': on node {address[0]}"
        # Answered later (`greet`), so that all nodes import at once.
        self._send(setup)

    def greet(self, until: float) -> None:
        """Wait until it is ready to fork; ``until`` is in monotonic seconds.

        Raises:
            UnavailableError: Its node lacks what the candidate needs.
            LostNodeError: It does not answer.
        """
        fault = msgspec.json.decode(self._answer(until), type=str)
        if fault:
            self.close()
            message = f"{self._named}, {fault}"
            raise UnavailableError(message)

    def ask(self, question: msgspec.Struct) -> bytes:
        """Ask a question and return the answer.

        Raises:
            LostNodeError: There is none, now and later.
        """
        self.post(question)
        return self.answer()

    def post(self, question: msgspec.Struct) -> None:
        """Ask a question; answers come in the order of the questions."""
        self._until.append(time.monotonic() + self._answer_s)
        if self.is_alive:
            self._send(question)

    def answer(self) -> bytes:
        """Return the answer to the first question that has none yet.

        Raises:
            LostNodeError: There is none, now and later.
        """
        return self._answer(self._until.popleft())

    def check(self) -> None:
        """Raise ``LostNodeError`` if it is lost."""
        if not self.is_alive:
            lost = "a node of the cluster is lost"
            raise LostNodeError(lost)

    def _send(self, message: msgspec.Struct) -> None:
        with contextlib.suppress(WireError):  # It shows when the answer is read.
            self._wire.send(msgspec.json.encode(message))

    def _answer(self, until: float) -> bytes:
        self.check()
        try:
            return self._wire.receive(until)[0]
        except WireError as error:
            self.close()
            raise LostNodeError(str(error)) from error

    def close(self) -> None:
        """End the connection, and with it this worker's ranks on the node; a second call does nothing."""
        if self.is_alive:
            self.is_alive = False
            with contextlib.suppress(OSError):
                self._wire.close()


def answers_of(questions: Sequence[tuple[NodeServer, msgspec.Struct]]) -> list[bytes | None]:
    """Ask all servers, then return what each answers; ``None`` for one that is lost."""
    for server, question in questions:
        server.post(question)
    found: list[bytes | None] = []
    for server, _ in questions:
        try:
            found.append(server.answer())
        except LostNodeError:
            found.append(None)
    return found
