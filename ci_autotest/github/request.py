"""Requests and lists as values, and the rule which of them carry the token."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar

import requests

from ci_autotest.version import VERSION

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import BinaryIO

    import msgspec

MAX_ANSWER_BYTES: Final = 32 * 1024 * 1024  # a page of 100 comments of 65,536 characters of 4 bytes is 26 MB

_AGENT: Final = {"User-Agent": f"ci-autotest/{VERSION}"}
# The version is pinned: without it GitHub answers in the one that is the default by then.
_API: Final = {**_AGENT, "Accept": "application/vnd.github+json", "X-GitHub-Api-Version": "2022-11-28"}


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
