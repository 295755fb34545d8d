"""Own what came back for a request, as values: whole answers, refusals, and what is unclear."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec
import requests

from ci_autotest.errors import PublishError

if TYPE_CHECKING:
    from collections.abc import Mapping

T = TypeVar("T")

#: Statuses of a server that failed, not of a request that is wrong; 0 is no answer at all.
BROKEN: Final = frozenset({0, 500, 502, 503, 504})


@dataclass(frozen=True, kw_only=True)
class Reply:
    """Hold a whole answer.

    Attributes:
        status: 0 when no answer came.
        headers: Names in lower case.
        body: Decompressed.
        lost: Name of the reason for which no answer came.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes
    lost: str = ""

    @property
    def said(self) -> str:
        """The end of a sentence that begins with the request."""
        return f"answered {self.status}" if self.status else f"was not answered ({self.lost})"


@dataclass(frozen=True, kw_only=True)
class Forbidden:
    """Say that GitHub refused a request (403), or hides what it is about (404).

    Attributes:
        where: Method and address.
        reason: GitHub's own words, shortened.
        permissions: ``x-accepted-github-permissions``: what would have been enough; empty when not
            said.
    """

    status: int
    where: str
    reason: str
    permissions: str


@dataclass(frozen=True)
class Unclear:
    """Say that it is unknown whether a request that must not be repeated blindly was carried out."""

    reason: str


class _Reason(msgspec.Struct, frozen=True):
    field: str | None = None
    code: str | None = None
    message: str | None = None


class _Refusal(msgspec.Struct, frozen=True):
    message: str = ""
    errors: list[str | _Reason] = []


def is_broken(reply: Reply) -> bool:
    """Whether it is unknown what the request did: no answer came, or the server failed."""
    return reply.status in BROKEN


def decoded(where: str, reply: Reply, shape: msgspec.json.Decoder[T]) -> T:
    """Return the content of an answer.

    Raises:
        PublishError: It is not JSON, or lacks what GitHub always says.
    """
    try:
        return shape.decode(reply.body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        kind = reply.headers.get("content-type", "no content type").split(";")[0][:60]
        detail = error if isinstance(error, msgspec.ValidationError) else "it is not JSON"
        message = (
            f"{where} answered {reply.status} with {len(reply.body):,} bytes of {kind} that are not GitHub's: "
            f"{detail}. Check GITHUB_API_URL, and what stands between this machine and GitHub."
        )
        raise PublishError(message) from None


def reason_of(reply: Reply) -> str:
    """Return GitHub's own words for a refusal; empty when there are none."""
    try:
        said = msgspec.json.decode(reply.body, type=_Refusal)
        return ": ".join(part for part in (said.message, "; ".join(map(_reason, said.errors))) if part)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return ""


def _reason(error: str | _Reason) -> str:
    """Return what is wrong with one field of a request, which a 422 says beside its message."""
    if isinstance(error, str):
        return error
    return error.message or " ".join(part for part in (error.field, error.code) if part)


def has_next(reply: Reply) -> bool:
    """Whether a list says that it goes on."""
    links = requests.utils.parse_header_links(reply.headers.get("link", ""))
    return any(link.get("rel") == "next" for link in links)
