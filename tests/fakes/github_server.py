"""Serve ``FakeGithub`` over real HTTP on the loopback device, compressed as GitHub's answers are."""

from __future__ import annotations

import gzip
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.fakes.github import Answer, FakeGithub


class _Handler(BaseHTTPRequestHandler):
    """Carry one request to the ``FakeGithub`` of the server, and its answer back."""

    server: _Server
    protocol_version = "HTTP/1.1"
    wbufsize = -1
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        headers = {name.lower(): value for name, value in self.headers.items()}
        answer = self.server.github.answer(self.command, self.path, headers, body)
        if answer.status == 0:
            self.close_connection = True
            return
        self._send(answer, compressed="gzip" in headers.get("accept-encoding", "") and len(answer.body) > 1024)

    do_POST = do_PATCH = do_DELETE = do_GET  # noqa: N815 - the names are the standard library's

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as above
        """Say nothing."""

    def _send(self, answer: Answer, *, compressed: bool) -> None:
        body = gzip.compress(answer.body, compresslevel=1) if compressed else answer.body
        headers = {
            "Content-Type": "application/json; charset=utf-8",
            "Content-Length": str(len(body)),
            **answer.headers,
        }
        self.send_response(answer.status)
        for name, value in headers.items():
            self.send_header(name, value)
        if compressed:
            self.send_header("Content-Encoding", "gzip")
        self.end_headers()
        self._drip(body, answer.drip_s) if answer.drip_s else self.wfile.write(body)

    def _drip(self, body: bytes, drip_s: float) -> None:
        for byte in body:
            if self.server.github.stopped.wait(drip_s):
                return
            self.wfile.write(bytes([byte]))
            self.wfile.flush()


class _Server(ThreadingHTTPServer):
    """Bind a server to its ``FakeGithub``."""

    daemon_threads = True
    request_queue_size = 64
    github: FakeGithub

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing when a client goes away."""


@contextmanager
def serving(github: FakeGithub) -> Iterator[FakeGithub]:
    """Serve ``github`` on a free port of the loopback device; ``base`` is its address meanwhile."""
    server = _Server(("127.0.0.1", 0), _Handler)
    server.github = github
    github.base = f"http://127.0.0.1:{server.server_port}{github.mount}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield github
    finally:
        github.stopped.set()
        server.shutdown()
        thread.join()
        server.server_close()
