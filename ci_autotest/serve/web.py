"""The service over HTTP on loopback: ``POST /verify``, ``/replay`` and ``/explain`` take and give JSON.

The command ``serve`` is here too.
"""

from __future__ import annotations

import contextlib
import hmac
import os
import secrets
import signal
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Final

import msgspec

from ci_autotest.errors import UnavailableError
from ci_autotest.serve.service import TOKEN, RequestError, Service
from ci_autotest.version import VERSION

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import TextIO

_REQUEST_BYTES: Final = 1 << 22
_IDLE_S: Final = 30.0


class WebServer(ThreadingHTTPServer):
    """The server.

    Args:
        service: Answers the requests.
        port: Port on loopback; 0 for a free one.
        token: What a request must bear: other users of this machine reach loopback, too.
    """

    daemon_threads = True

    def __init__(self, service: Service, port: int, token: str) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.token = token
        self.answers = {"/verify": service.verify, "/replay": service.replay, "/explain": service.explain}


class _Handler(BaseHTTPRequestHandler):
    """One connection."""

    server: WebServer
    server_version = f"ci-autotest/{VERSION}"
    timeout = _IDLE_S

    def do_GET(self) -> None:
        """Say what this is."""
        self._send(200, {"service": "ci-autotest", "version": VERSION, "post": sorted(self.server.answers)})

    def do_POST(self) -> None:
        """Answer a request."""
        try:
            self._send(200, self._answer())
        except RequestError as error:
            self._send(error.status, {"error": str(error)})

    def _answer(self) -> dict[str, Any]:
        given = self.headers.get("Authorization", "").removeprefix("Bearer ")
        if not hmac.compare_digest(given.encode(), self.server.token.encode()):
            message = "the header Authorization must be 'Bearer ' and the token of the service."
            raise RequestError(message, 401)
        answer = self.server.answers.get(self.path)
        if answer is None:
            message = f"there is no {self.path[:80]}. Post to {', '.join(sorted(self.server.answers))}."
            raise RequestError(message, 404)
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal() or int(length) > _REQUEST_BYTES:
            message = f"the header Content-Length must be a number up to {_REQUEST_BYTES:,}."
            raise RequestError(message, 413)
        try:
            fields = msgspec.json.decode(self.rfile.read(int(length)))
        except msgspec.DecodeError as error:
            message = f"the request is no JSON: {error}."
            raise RequestError(message) from error
        return answer(fields)

    def _send(self, status: int, document: dict[str, Any]) -> None:
        data = msgspec.json.encode(document)
        with contextlib.suppress(ConnectionError):  # Nobody waits for it any more.
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name of the base class
        """Log nothing: what is asked for may be secret."""


def serve(port: int, mcp_transport: str | None, jobs: int | None, environ: Mapping[str, str], stream: TextIO) -> int:
    """Answer requests until the process is interrupted; return 0.

    Raises:
        UnavailableError: The port is taken, or the package of the protocol is not installed.
    """
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    service = Service(environ, jobs or max(1, (os.cpu_count() or 1) // 2))
    try:
        if mcp_transport is not None:
            from ci_autotest.serve.protocol import serve_protocol  # noqa: PLC0415 - an extra

            with contextlib.suppress(KeyboardInterrupt):
                serve_protocol(service, mcp_transport, port)
            return 0
        given = environ.get(TOKEN, "")
        token = given or secrets.token_urlsafe(32)
        try:
            server = WebServer(service, port, token)
        except OSError as error:
            message = f"port {port} cannot be used: {error.strerror}. Give another --port, or 0 for a free one."
            raise UnavailableError(message) from error
        stream.write(f"serving on http://127.0.0.1:{server.server_port}\n")
        stream.write(f"token in {TOKEN}\n" if given else f"token {token}\n")
        stream.flush()
        with contextlib.suppress(KeyboardInterrupt):
            server.serve_forever()
        server.server_close()
    finally:
        service.close()
    return 0
