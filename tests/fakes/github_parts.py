"""What is planted in the server on the loopback device, and what it answers and remembers, as values."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

REPOSITORY = "octo/kernels"


@dataclass(frozen=True, kw_only=True)
class Fault:
    """Plant an answer.

    Attributes:
        method: Of the requests that it befalls.
        path: Regular expression that is looked for in their path.
        times: How many requests it befalls.
        status: Of the answer; 0 closes the connection without one; ``None`` leaves the answer as it is.
        applied: The request is carried out before the fault answers.
        drip_s: Seconds between two bytes of the answer.
        then: Called after the request was carried out, before it is answered.
    """

    method: str
    path: str = ""
    times: int = 1
    status: int | None = None
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes | None = None
    applied: bool = False
    drip_s: float = 0.0
    then: Callable[[], None] | None = None


@dataclass(frozen=True, kw_only=True)
class Answer:
    """Hold what is sent back."""

    status: int
    content: Any = None
    headers: dict[str, str] = field(default_factory=dict)
    raw: bytes | None = None
    drip_s: float = 0.0

    @property
    def body(self) -> bytes:
        """The bytes of the answer before compression."""
        if self.raw is not None:
            return self.raw
        return b"" if self.content is None else json.dumps(self.content).encode()


@dataclass(frozen=True, kw_only=True)
class Seen:
    """Hold one request and what was answered; ``planted`` when that is a fault."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    content: Any
    answer: Answer
    planted: bool = False


@dataclass(frozen=True, kw_only=True)
class Stored:
    """Hold an artifact: of which run, what its head was, and its archive."""

    id: int
    name: str
    run_id: int
    data: bytes
    branch: str = "softmax"
    repository: str = REPOSITORY
    sha: str = "5f" * 20
    created_at: str = "2026-11-20T10:00:00Z"
    expired: bool = False


def forbidden(**headers: str) -> Answer:
    """Return what an installation without the permission is told; underscores in names of headers are hyphens."""
    content = {"message": "Resource not accessible by integration", "documentation_url": "https://docs.github.com/rest"}
    return Answer(status=403, content=content, headers={key.replace("_", "-"): text for key, text in headers.items()})


def refusal(method: str, path: str = "", times: int = 1, **headers: str) -> Fault:
    """Return a fault that refuses a request as for a missing permission, with more headers."""
    answer = forbidden(**headers)
    return Fault(method=method, path=path, times=times, status=403, headers=answer.headers, body=answer.body)


def missing() -> Answer:
    return Answer(status=404, content={"message": "Not Found", "documentation_url": "https://docs.github.com/rest"})


def unprocessable(content: Any) -> Answer | None:
    body = content.get("body") if isinstance(content, dict) else None
    if isinstance(body, str) and body.strip() and len(body) <= 65_536:
        return None
    said = "Body is too long (maximum is 65536 characters)" if body else "Body can't be blank"
    detail = {
        "message": "Validation Failed",
        "errors": [{"resource": "IssueComment", "code": "custom", "message": said}],
    }
    return Answer(status=422, content={**detail, "documentation_url": "https://docs.github.com/rest"})


def faulty(fault: Fault, answer: Answer) -> Answer:
    if fault.then is not None:
        fault.then()
    if fault.status is None and fault.body is None:
        return Answer(status=answer.status, content=answer.content, headers=answer.headers, drip_s=fault.drip_s)
    status = answer.status if fault.status is None else fault.status
    return Answer(status=status, headers=fault.headers, raw=fault.body or b"", drip_s=fault.drip_s)
