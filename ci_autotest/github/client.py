"""Own the exchange with GitHub's REST API: one deadline for all of it, bounded answers, retries, no token in any text.

What a caller can act on is a value (``Forbidden``, ``Unclear``); what it cannot is a
``PublishError``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

import msgspec
import requests
import urllib3

from ci_autotest.errors import PublishError
from ci_autotest.github.answer import (
    Forbidden,
    Reply,
    Unclear,
    decoded,
    has_next,
    is_broken,
    reason_of,
)
from ci_autotest.github.retry import wait_s
from ci_autotest.version import VERSION

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

PER_PAGE: Final = 100  # the most that GitHub gives
MAX_PAGES: Final = 100
MAX_TRIES: Final = 6
MAX_ANSWER_BYTES: Final = 32 * 1024 * 1024  # a page of 100 comments of 65,536 characters of 4 bytes is 26 MB
CONNECT_S: Final = 10.0
READ_S: Final = 30.0

_REASON_CHARS: Final = 200
_PIECE_BYTES: Final = 65_536
_HEADERS: Final = {
    "Accept": "application/vnd.github+json",
    "X-GitHub-Api-Version": "2022-11-28",
    "User-Agent": f"ci-autotest/{VERSION}",
}
_UNAUTHORIZED: Final = 401
_HIDDEN: Final = frozenset({403, 404})
_GOOD: Final = range(200, 300)


class Identified(Protocol):
    """Anything that a list of GitHub's holds."""

    @property
    def id(self) -> int:
        """GitHub's own number of it."""


T = TypeVar("T")
Item = TypeVar("Item", bound=Identified)


@dataclass(frozen=True, kw_only=True)
class _Request:
    method: str
    url: str
    params: Mapping[str, str | int] = field(default_factory=dict)
    body: bytes | None = None

    @property
    def where(self) -> str:
        return f"{self.method} {self.url}"


@dataclass(frozen=True)
class _Bearer(requests.auth.AuthBase):
    """Set the token; given as ``auth``, so that no ``.netrc`` replaces it."""

    token: str = field(repr=False)

    def __call__(self, r: requests.PreparedRequest) -> requests.PreparedRequest:
        r.headers["Authorization"] = f"Bearer {self.token}"
        return r


@dataclass(frozen=True, kw_only=True)
class Client:
    """Send the requests of one publication.

    Attributes:
        api_url: Without a slash at the end, checked.
        clock: Seconds from any origin, never backward.
        sleep: Waits for a number of seconds.
        deadline_s: For all requests and waits together, from ``start_s`` on.
        start_s: What ``clock`` said at the start.
    """

    session: requests.Session
    api_url: str
    token: str = field(repr=False)
    clock: Callable[[], float]
    sleep: Callable[[float], None]
    deadline_s: float
    start_s: float

    def get(self, path: str, shape: msgspec.json.Decoder[T], params: Mapping[str, str | int]) -> T | Forbidden:
        """Return what is at ``path``; ``params`` are those of the query."""
        return self._content(_Request(method="GET", url=self.api_url + path, params=params), shape)

    def pages(
        self, path: str, shape: msgspec.json.Decoder[list[Item]], params: Mapping[str, str | int]
    ) -> list[Item] | Forbidden:
        """Return all items of a list, each once, in GitHub's order.

        Pages are counted here: of ``Link`` only the presence of a next page is believed, never its
            address, and a page
        that brings nothing new is the last.

        Raises:
            PublishError: There are more than ``MAX_PAGES`` pages.
        """
        found: dict[int, Item] = {}
        for page in range(1, MAX_PAGES + 1):
            query = {**params, "per_page": PER_PAGE, "page": page}
            request = _Request(method="GET", url=self.api_url + path, params=query)
            reply = self._judged(request, self._answered(request))
            if isinstance(reply, Forbidden):
                return reply
            fresh = {item.id: item for item in decoded(request.where, reply, shape) if item.id not in found}
            found |= fresh
            if not fresh or not has_next(reply):
                return list(found.values())
        message = f"GET {self.api_url}{path} goes on after {MAX_PAGES} pages of {PER_PAGE}: more than GitHub holds."
        raise PublishError(message)

    def post(self, path: str, shape: msgspec.json.Decoder[T], content: object) -> T | Forbidden | Unclear:
        """Create something at ``path``, at most once: an answer that does not come is left to the caller."""
        request = _Request(method="POST", url=self.api_url + path, body=msgspec.json.encode(content))
        reply = self._answered(request)
        if is_broken(reply):
            return Unclear(f"{request.where} {reply.said}")
        judged = self._judged(request, reply)
        return judged if isinstance(judged, Forbidden) else decoded(request.where, judged, shape)

    def patch(self, path: str, shape: msgspec.json.Decoder[T], content: object) -> T | Forbidden:
        """Replace what is at ``path``."""
        body = msgspec.json.encode(content)
        return self._content(_Request(method="PATCH", url=self.api_url + path, body=body), shape)

    def delete(self, path: str) -> Forbidden | None:
        """Remove what is at ``path``."""
        request = _Request(method="DELETE", url=self.api_url + path)
        reply = self._judged(request, self._answered(request))
        return reply if isinstance(reply, Forbidden) else None

    def pause(self, seconds: float, why: str) -> None:
        """Wait, unless the deadline would pass meanwhile.

        Raises:
            PublishError: There is not that much time left.
        """
        left_s = self._left_s(why)
        if seconds >= left_s:
            message = (
                f"{why}, so {seconds:,.0f} s must be waited, and {left_s:,.0f} s are left "
                f"of the {self.deadline_s:,.0f} s that publishing may take. Run this job again later."
            )
            raise PublishError(message)
        self.sleep(seconds)

    def _left_s(self, why: str) -> float:
        left_s = self.start_s + self.deadline_s - self.clock()
        if left_s <= 0:
            message = f"{why}, and the {self.deadline_s:,.0f} s that publishing may take are over. Run this job again."
            raise PublishError(message)
        return left_s

    def _content(self, request: _Request, shape: msgspec.json.Decoder[T]) -> T | Forbidden:
        reply = self._judged(request, self._answered(request))
        return reply if isinstance(reply, Forbidden) else decoded(request.where, reply, shape)

    def _answered(self, request: _Request) -> Reply:
        """Send a request until an answer stands; a POST only once, unless the rate limit refused it."""
        failures = 0
        while True:
            reply = self._exchange(request)
            seconds = wait_s(reply, failures)
            if seconds is None or (request.method == "POST" and is_broken(reply)):
                return reply
            failures += 1
            why = f"{request.where} {reply.said}"
            if failures == MAX_TRIES:
                message = f"{why}, {MAX_TRIES} times in a row. Run this job again later."
                raise PublishError(message)
            self.pause(seconds, why)

    def _judged(self, request: _Request, reply: Reply) -> Reply | Forbidden:
        if reply.status in _GOOD:
            return reply
        reason = self._plain(reason_of(reply)) or "no reason given"
        if reply.status in _HIDDEN:
            permissions = self._plain(reply.headers.get("x-accepted-github-permissions", ""))
            return Forbidden(status=reply.status, where=request.where, reason=reason, permissions=permissions)
        if reply.status == _UNAUTHORIZED:
            message = (
                f"{request.where} answered 401: GitHub does not accept GITHUB_TOKEN ({reason}). Pass a valid token."
            )
            raise PublishError(message)
        message = f"{request.where} answered {reply.status}, where 200 to 204 were expected: {reason}."
        raise PublishError(message)

    def _plain(self, text: str) -> str:
        """Return foreign text fit for a message: short, printable, and without the token, should it be echoed."""
        text = " ".join(text.replace(self.token, "***").split())
        return "".join(filter(str.isprintable, text))[:_REASON_CHARS].rstrip(". ")

    def _exchange(self, request: _Request) -> Reply:
        left_s = self._left_s(f"{request.where} was next")
        try:
            with self.session.request(
                request.method,
                request.url,
                params=request.params,
                data=request.body,
                headers=_HEADERS if request.body is None else _HEADERS | {"Content-Type": "application/json"},
                auth=_Bearer(self.token),
                timeout=(min(CONNECT_S, left_s), min(READ_S, left_s)),
                allow_redirects=False,  # the token goes to one address only
                stream=True,
            ) as response:
                headers = {name.lower(): value for name, value in response.headers.items()}
                return Reply(status=response.status_code, headers=headers, body=self._read(request, response))
        except (requests.RequestException, urllib3.exceptions.HTTPError) as error:
            # The name only: its text may quote addresses and headers.
            return Reply(status=0, headers={}, body=b"", lost=type(error).__name__)

    def _read(self, request: _Request, response: requests.Response) -> bytes:
        # `read1` returns what has come, so that the deadline is seen between two drops; an old
        # urllib3 lacks it.
        read = getattr(response.raw, "read1", response.raw.read)
        body = bytearray()
        while piece := read(_PIECE_BYTES, decode_content=True):
            body += piece
            if len(body) > MAX_ANSWER_BYTES:
                message = f"{request.where} answered with more than the {MAX_ANSWER_BYTES:,} bytes that are read."
                raise PublishError(message)
            self._left_s(f"{request.where} is still being answered")
        return bytes(body)
