"""Requests to GitHub and their answers as values, and the rule which requests carry the token."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar

import msgspec
import requests

from ci_autotest.errors import PublishError
from ci_autotest.version import VERSION

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import BinaryIO

MAX_ANSWER_BYTES: Final = 32 * 1024 * 1024  # a page of 100 comments of 65,536 characters of 4 bytes is 26 MB

_AGENT: Final = {"User-Agent": f"ci-autotest/{VERSION}"}
# The version is pinned: without it GitHub answers in the one that is the default by then.
_API: Final = {**_AGENT, "Accept": "application/vnd.github+json", "X-GitHub-Api-Version": "2022-11-28"}
T = TypeVar("T")

#: Statuses of a server that failed, in contrast to a wrong request; 0 means no answer.
_BROKEN: Final = frozenset({0, 500, 502, 503, 504})


class Identified(Protocol):
    """Any item of a list from GitHub."""

    @property
    def id(self) -> int:
        """GitHub's number of the item."""


Page = TypeVar("Page")
Item = TypeVar("Item", bound=Identified)


@dataclass(frozen=True, kw_only=True)
class Listing(Generic[Page, Item]):
    """A list that comes in pages.

    Attributes:
        path: Path below the API's address.
        shape: Decodes a page.
        items: Returns the items of a page.
        params: Query parameters, without those for pages.
    """

    path: str
    shape: msgspec.json.Decoder[Page]
    items: Callable[[Page], Iterable[Item]]
    params: Mapping[str, str | int] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class HttpRequest:
    """One request.

    Attributes:
        most_bytes: Largest answer, decompressed.
        is_api: Whether it goes to the API; only the API gets the token.
        into: File for the content of a good answer, to save memory.
    """

    method: str
    url: str
    params: Mapping[str, str | int] = field(default_factory=dict)
    body: bytes | None = None
    most_bytes: int = MAX_ANSWER_BYTES
    is_api: bool = True
    into: BinaryIO | None = None

    @property
    def where(self) -> str:
        """Method and address. A redirect's query is left out, because it may grant access to anyone."""
        return f"{self.method} {self.url if self.is_api else self.url.partition('?')[0]}"

    @property
    def headers(self) -> Mapping[str, str]:
        """Headers except the token."""
        if not self.is_api:
            return _AGENT
        return _API if self.body is None else _API | {"Content-Type": "application/json"}


@dataclass(frozen=True)
class Bearer(requests.auth.AuthBase):
    """Send the token; passed as ``auth``, so that no ``.netrc`` replaces it."""

    token: str = field(repr=False)

    def __call__(self, r: requests.PreparedRequest) -> requests.PreparedRequest:
        """Return the request with the token."""
        r.headers["Authorization"] = f"Bearer {self.token}"
        return r


@dataclass(frozen=True)
class Nobody(requests.auth.AuthBase):
    """Send no credentials; passed as ``auth``, so that no ``.netrc`` adds any."""

    def __call__(self, r: requests.PreparedRequest) -> requests.PreparedRequest:
        """Return the request as it is."""
        return r


@dataclass(frozen=True, kw_only=True)
class HttpReply:
    """A complete answer.

    Attributes:
        status: 0 if no answer came.
        headers: Names in lower case.
        body: Decompressed.
        lost: Name of the error if no answer came.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes
    lost: str = ""

    @property
    def predicate(self) -> str:
        """The end of a sentence that begins with the request."""
        return f"answered {self.status}" if self.status else f"was not answered ({self.lost})"


@dataclass(frozen=True, kw_only=True)
class Forbidden:
    """GitHub refused a request (403) or hides its target (404).

    Attributes:
        where: Method and address.
        reason: GitHub's own words, shortened.
        permissions: Permissions that would suffice, from ``x-accepted-github-permissions``; empty if not given.
    """

    status: int
    where: str
    reason: str
    permissions: str


@dataclass(frozen=True)
class Unclear:
    """It is unknown whether a request took effect that must not simply be repeated."""

    reason: str


class _Reason(msgspec.Struct, frozen=True):
    field: str | None = None
    code: str | None = None
    message: str | None = None


class _Refusal(msgspec.Struct, frozen=True):
    message: str = ""
    errors: list[str | _Reason] = []


def is_broken(reply: HttpReply) -> bool:
    """Whether the effect of the request is unknown, because no answer came or the server failed."""
    return reply.status in _BROKEN


def decoded(where: str, reply: HttpReply, shape: msgspec.json.Decoder[T]) -> T:
    """Return the content of an answer.

    Raises:
        PublishError: It is not JSON, or lacks a field that GitHub always sends.
    """
    try:
        return shape.decode(reply.body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        # The type tells the page of a proxy from a damaged answer.
        kind = reply.headers.get("content-type", "no content type").split(";")[0][:60]
        detail = error if isinstance(error, msgspec.ValidationError) else "it is not JSON"
        message = (
            f"{where} answered {reply.status} with {len(reply.body):,} bytes of {kind} that are not from GitHub: "
            f"{detail}. Check GITHUB_API_URL, and any proxy between this machine and GitHub."
        )
        raise PublishError(message) from None


def reason_of(reply: HttpReply) -> str:
    """Return GitHub's own words for a refusal, or ""."""
    try:
        # The words are for a message only, so that an answer which is not GitHub's is no error here.
        refusal = msgspec.json.decode(reply.body, type=_Refusal)
        return ": ".join(part for part in (refusal.message, "; ".join(map(_reason, refusal.errors))) if part)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return ""


def _reason(error: str | _Reason) -> str:
    """Return what is wrong with one field of a request, as a 422 lists it."""
    if isinstance(error, str):
        return error
    return error.message or " ".join(part for part in (error.field, error.code) if part)


def has_next(reply: HttpReply) -> bool:
    """Whether a list has a next page."""
    links = requests.utils.parse_header_links(reply.headers.get("link", ""))
    return any(link.get("rel") == "next" for link in links)
