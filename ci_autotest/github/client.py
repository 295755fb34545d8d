"""A client of GitHub's REST API: one deadline for everything, bounded answers, retries, and no token in any text.

A failure that the caller can handle is a value (``Forbidden``, ``Unclear``), any other is a ``PublishError``. Reads are
repeated here if GitHub fails. Writes never are, because the target may have changed during the wait: the caller reads
and decides again.

The wait before a request is sent again is GitHub's: ``Retry-After``, then the reset of the rate limit, then a minute
that doubles with each failure.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec
import requests
import urllib3

from ci_autotest.errors import PublishError
from ci_autotest.github.environ import is_safe_url
from ci_autotest.github.http_messages import (
    Bearer,
    Forbidden,
    HttpReply,
    HttpRequest,
    Item,
    Listing,
    Nobody,
    Page,
    Unclear,
    decoded,
    has_next,
    is_broken,
    reason_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from typing import BinaryIO


PER_PAGE: Final = 100  # the most that GitHub gives
MAX_PAGES: Final = 100
MAX_TRIES: Final = 6
CONNECT_S: Final = 10.0
READ_S: Final = 30.0

_REASON_CHARS: Final = 200
_PIECE_BYTES: Final = 65_536
#: Pages in a row without a new item, after which a list is considered to be at its end.
_BARREN_PAGES: Final = 2
_UNAUTHORIZED: Final = 401
_HIDDEN: Final = frozenset({403, 404, 410})
_GOOD: Final = range(200, 300)
_FOUND: Final = 302


_FORBIDDEN: Final = 403
_TOO_MANY: Final = 429
#: Seconds before a request is sent again where GitHub does not say, after the first failure.
RATE_LIMITED_S: Final = 60.0
BROKEN_S: Final = 1.0
#: Digits of the longest wait that is read: 30,000 years.
_LONGEST_DIGITS: Final = 12

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Client:
    """Send the requests of one publication.

    Attributes:
        api_url: Without a slash at the end, checked.
        clock: Returns seconds from any origin, never going backward.
        sleep: Waits for a number of seconds.
        deadline_s: Limit of all requests and waits together, from ``start_s`` on.
        start_s: Time of ``clock`` at the start.
        files: Closes the downloaded files.
    """

    session: requests.Session
    api_url: str
    token: str = field(repr=False)
    clock: Callable[[], float]
    sleep: Callable[[float], None]
    deadline_s: float
    start_s: float
    files: ExitStack = field(default_factory=ExitStack)

    def get(self, path: str, shape: msgspec.json.Decoder[T], params: Mapping[str, str | int]) -> T | Forbidden:
        """Return the content at ``path``; ``params`` are query parameters."""
        return self._content(HttpRequest(method="GET", url=self.api_url + path, params=params), shape)

    def pages(self, listing: Listing[Page, Item]) -> Iterator[Item] | Forbidden:
        """Return the items of a list, each once, in GitHub's order; pages are read lazily.

        Pages are counted here: the header ``Link`` only decides whether there is a next page, its address is not used.
        An empty page in the middle is skipped; a list without new items on several pages is at its end.

        Raises:
            PublishError: There are more than ``MAX_PAGES`` pages.
        """
        first = self._page(listing, 1)
        return first if isinstance(first, Forbidden) else self._items(listing, first)

    def _items(self, listing: Listing[Page, Item], first: tuple[Page, bool]) -> Iterator[Item]:
        seen: set[int] = set()
        barren, number = 0, 1
        page: tuple[Page, bool] | Forbidden = first
        while not isinstance(page, Forbidden):
            content, goes_on = page
            # An item moves to the next page when another one is added while the pages are read.
            fresh = {item.id: item for item in listing.items(content) if item.id not in seen}
            yield from fresh.values()
            seen |= fresh.keys()
            barren = 0 if fresh else barren + 1
            if not goes_on or barren == _BARREN_PAGES:
                return
            number += 1
            page = self._page(listing, number)
        message = f"{page.where} answered {page.status} on page {number} ({page.reason}). Run this job again later."
        raise PublishError(message)

    def _page(self, listing: Listing[Page, Item], number: int) -> tuple[Page, bool] | Forbidden:
        url = self.api_url + listing.path
        if number > MAX_PAGES:
            message = f"GET {url} goes on after {MAX_PAGES} pages of {PER_PAGE}, which is more than GitHub stores."
            raise PublishError(message)
        request = HttpRequest(method="GET", url=url, params={**listing.params, "per_page": PER_PAGE, "page": number})
        reply = self._judged(request, self._answered(request))
        if isinstance(reply, Forbidden):
            return reply
        return decoded(request.where, reply, listing.shape), has_next(reply)

    def file(self, path: str, most_bytes: int, into: BinaryIO) -> Forbidden | None:
        """Write the file to which ``path`` redirects; the storage server does not get the token.

        Raises:
            PublishError: It is larger than ``most_bytes``, or the redirect is not to an https address.
        """
        request = HttpRequest(method="GET", url=self.api_url + path, most_bytes=most_bytes, into=into)
        reply = self._answered(request)
        if reply.status != _FOUND:
            judged = self._judged(request, reply)
            return judged if isinstance(judged, Forbidden) else None
        place = reply.headers.get("location", "")
        if not is_safe_url(place.partition("?")[0]):
            message = f"{request.where} redirects to {self._plain(place)!r}, which is not an https address."
            raise PublishError(message)
        stored = HttpRequest(method="GET", url=place, most_bytes=most_bytes, is_api=False, into=into)
        judged = self._judged(stored, self._answered(stored))
        return judged if isinstance(judged, Forbidden) else None

    def post(
        self, path: str, shape: msgspec.json.Decoder[T], content: object, failures: int = 0
    ) -> T | Forbidden | Unclear:
        """Create something at ``path``, at most once; ``failures`` counts earlier failures."""
        return self._written("POST", path, shape, content, failures)

    def patch(
        self, path: str, shape: msgspec.json.Decoder[T], content: object, failures: int = 0
    ) -> T | Forbidden | Unclear:
        """Replace the content at ``path``, at most once; ``failures`` counts earlier failures."""
        return self._written("PATCH", path, shape, content, failures)

    def _written(
        self, method: str, path: str, shape: msgspec.json.Decoder[T], content: object, failures: int
    ) -> T | Forbidden | Unclear:
        """Send once; if it must be sent again, wait as GitHub asks and leave the retry to the caller."""
        request = HttpRequest(method=method, url=self.api_url + path, body=msgspec.json.encode(content))
        reply = self._exchange(request)
        seconds = wait_s(reply, failures)
        if seconds is not None:
            why = f"{request.where} {reply.predicate}"
            self.pause(seconds, why)
            return Unclear(why)
        judged = self._judged(request, reply)
        return judged if isinstance(judged, Forbidden) else decoded(request.where, judged, shape)

    def delete(self, path: str) -> Forbidden | None:
        """Delete the content at ``path``."""
        request = HttpRequest(method="DELETE", url=self.api_url + path)
        reply = self._judged(request, self._answered(request))
        return reply if isinstance(reply, Forbidden) else None

    def pause(self, seconds: float, why: str) -> None:
        """Wait, unless the deadline would pass during the wait.

        Raises:
            PublishError: There is not enough time left.
        """
        left_s = self._left_s(why)
        if seconds >= left_s:
            message = (
                f"{why}, so the next try must wait {seconds:,.0f} s, but only {left_s:,.0f} s are left "
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

    def _content(self, request: HttpRequest, shape: msgspec.json.Decoder[T]) -> T | Forbidden:
        reply = self._judged(request, self._answered(request))
        return reply if isinstance(reply, Forbidden) else decoded(request.where, reply, shape)

    def _answered(self, request: HttpRequest) -> HttpReply:
        """Send a request until its answer is final; only for requests that may be repeated."""
        failures = 0
        while True:
            reply = self._exchange(request)
            seconds = wait_s(reply, failures)
            if seconds is None:
                return reply
            failures += 1
            why = f"{request.where} {reply.predicate}"
            if failures == MAX_TRIES:
                message = f"{why}, {MAX_TRIES} times in a row. Run this job again later."
                raise PublishError(message)
            self.pause(seconds, why)

    def _judged(self, request: HttpRequest, reply: HttpReply) -> HttpReply | Forbidden:
        if reply.status in _GOOD:
            return reply
        reason = self._plain(reason_of(reply)) or "no reason given"
        if reply.status in _HIDDEN:
            permissions = self._plain(reply.headers.get("x-accepted-github-permissions", ""))
            return Forbidden(status=reply.status, where=request.where, reason=reason, permissions=permissions)
        # No value for the caller, because without a valid token nothing else would work either.
        if reply.status == _UNAUTHORIZED:
            message = (
                f"{request.where} answered 401: GitHub does not accept GITHUB_TOKEN ({reason}). Pass a valid token."
            )
            raise PublishError(message)
        message = f"{request.where} answered {reply.status}, where 200 to 204 were expected: {reason}."
        raise PublishError(message)

    def _plain(self, text: str) -> str:
        """Return foreign text for a message: short, printable, and without the token in case it is echoed."""
        text = " ".join(text.replace(self.token, "***").split())
        return "".join(filter(str.isprintable, text))[:_REASON_CHARS].rstrip(". ")

    def _exchange(self, request: HttpRequest) -> HttpReply:
        left_s = self._left_s(f"{request.where} was next")
        try:
            with self.session.request(
                request.method,
                request.url,
                params=request.params,
                data=request.body,
                headers=request.headers,
                auth=Bearer(self.token) if request.is_api else Nobody(),
                timeout=(min(CONNECT_S, left_s), min(READ_S, left_s)),
                allow_redirects=False,  # the token goes to one address only
                stream=True,
            ) as response:
                headers = {name.lower(): value for name, value in response.headers.items()}
                return HttpReply(status=response.status_code, headers=headers, body=self._read(request, response))
        except (requests.RequestException, urllib3.exceptions.HTTPError) as error:
            # Only the name, because the text may quote addresses and headers.
            return HttpReply(status=0, headers={}, body=b"", lost=type(error).__name__)

    def _read(self, request: HttpRequest, response: requests.Response) -> bytes:
        # `read1` returns what has arrived so far, so that a slow answer cannot outlast the deadline; an old urllib3
        # lacks it.
        read = getattr(response.raw, "read1", response.raw.read)
        body, size = bytearray(), 0
        into = request.into if response.status_code in _GOOD else None
        if into is not None:  # an earlier try may have left a part
            into.seek(0)
            into.truncate()
        while piece := read(_PIECE_BYTES, decode_content=True):
            if into is None:
                body += piece
            else:
                into.write(piece)
            size += len(piece)
            if size > request.most_bytes:
                message = f"{request.where} answered with more than the {request.most_bytes:,} bytes that are read."
                raise PublishError(message)
            self._left_s(f"{request.where} is still being answered")
        return bytes(body)


def is_rate_limited(reply: HttpReply) -> bool:
    """Whether an answer asks to come back later; a 403 may also mean that a permission is missing.

    Source:
        GitHub REST API, "Rate limits for the REST API", "Exceeding the rate limit".
    """
    if reply.status == _TOO_MANY:
        return True
    # GitHub documents that a secondary limit may show in the answer's text alone.
    limited = "retry-after" in reply.headers or _is_spent(reply) or b"secondary rate limit" in reply.body.lower()
    return reply.status == _FORBIDDEN and limited


def wait_s(reply: HttpReply, failures: int) -> float | None:
    """Return how many seconds to wait before the request is sent again, or ``None`` if the answer is final.

    Args:
        reply: Answer to the last request.
        failures: Earlier failures of the same request.
    """
    if is_rate_limited(reply):
        return _first_given(_retry_after_s(reply), _until_reset_s(reply), RATE_LIMITED_S * 2.0**failures)
    if is_broken(reply):
        return _first_given(_retry_after_s(reply), BROKEN_S * 2.0**failures)
    return None


def _first_given(*waits: float | None) -> float | None:
    return next((wait for wait in waits if wait is not None), None)


def _is_spent(reply: HttpReply) -> bool:
    return reply.headers.get("x-ratelimit-remaining") == "0"


def _retry_after_s(reply: HttpReply) -> float | None:
    return _whole_seconds(reply.headers.get("retry-after", ""))


def _until_reset_s(reply: HttpReply) -> float | None:
    """Return the seconds to the reset by the server's clock, because this machine's may be wrong."""
    reset = _whole_seconds(reply.headers.get("x-ratelimit-reset", ""))
    if reset is None or not _is_spent(reply):
        return None
    try:
        now = parsedate_to_datetime(reply.headers.get("date", "")).timestamp()
    except ValueError:
        return None
    # The reset may have passed already, and a wait of 0 would send again at once.
    return max(1.0, reset - now)


def _whole_seconds(text: str) -> float | None:
    text = text.strip()
    return float(text) if text.isascii() and text.isdigit() and len(text) <= _LONGEST_DIGITS else None
