"""Read the variables of a workflow step: each is checked where it is read, and no message contains the token."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from ci_autotest.errors import PublishError

if TYPE_CHECKING:
    from collections.abc import Mapping

PUBLIC_API_URL: Final = "https://api.github.com"
PUBLIC_SERVER_URL: Final = "https://github.com"
#: Of an artifact: safe in a request and as a folder, and allowed by GitHub.
ARTIFACT_NAME: Final = r"[A-Za-z0-9_-][A-Za-z0-9_. -]{0,99}"
COMMIT: Final = r"^[0-9a-f]{40}([0-9a-f]{24})?$"  # SHA-1, or SHA-256
REPOSITORY: Final = r"^[A-Za-z0-9_.-]{1,100}/[A-Za-z0-9_.-]{1,100}$"

_LOOPBACK: Final = frozenset({"127.0.0.1", "::1", "localhost"})


@dataclass(frozen=True, kw_only=True)
class Access:
    """What reading a repository needs.

    Attributes:
        branch: The branch to merge into, else the branch that was pushed to.
        sha: The commit that is tested; empty if the variable is not set.
    """

    repository: str
    api_url: str
    token: str = field(repr=False)
    branch: str
    sha: str
    run_id: int


def read_access(environ: Mapping[str, str]) -> Access:
    """Return the repository of a workflow step, whatever its event.

    Raises:
        PublishError: A variable is missing or ill-formed.
    """
    return Access(
        repository=matching(environ, "GITHUB_REPOSITORY", REPOSITORY, "owner/name"),
        api_url=url_of(environ, "GITHUB_API_URL", PUBLIC_API_URL),
        token=token_of(environ),
        branch=environ.get("GITHUB_BASE_REF", "") or required(environ, "GITHUB_REF_NAME"),
        sha=environ.get("GITHUB_SHA", ""),
        run_id=positive(environ, "GITHUB_RUN_ID"),
    )


def required(environ: Mapping[str, str], variable: str) -> str:
    """Return a variable that every step has."""
    value = environ.get(variable, "").strip()
    if not value:
        message = f"{variable} is not set. Run this in a step of a GitHub workflow, which sets it, or set it yourself."
        raise PublishError(message)
    return value


def matching(environ: Mapping[str, str], variable: str, pattern: str, shape: str) -> str:
    """Return a variable that matches a pattern; ``shape`` names the pattern in the message."""
    value = required(environ, variable)
    if re.fullmatch(pattern, value) is None:
        message = f"{variable} {value!r} is not {shape}. Leave it as GitHub sets it."
        raise PublishError(message)
    return value


def positive(environ: Mapping[str, str], variable: str) -> int:
    """Return a variable that is a whole number from 1."""
    return int(matching(environ, variable, r"^[1-9][0-9]{0,18}$", "a whole number from 1"))


def token_of(environ: Mapping[str, str]) -> str:
    """Return the token of the step."""
    # No message contains the value. An ill-formed one must not reach the HTTP library, whose error would quote it.
    value = environ.get("GITHUB_TOKEN", "").strip()
    if not value:
        message = (
            "GITHUB_TOKEN is not set: commenting needs a token. Give the step `GITHUB_TOKEN: ${{ github.token }}`."
        )
        raise PublishError(message)
    if re.fullmatch(r"[!-~]+", value) is None:
        message = "GITHUB_TOKEN has blanks or characters that no token has. Give the step a single token."
        raise PublishError(message)
    return value


def url_of(environ: Mapping[str, str], variable: str, default: str) -> str:
    """Return an address to which the token may be sent."""
    value = environ.get(variable, "").strip() or default
    if not is_safe_url(value):
        message = (
            f"{variable} is not an https address without user, query and fragment: "
            "the token would be sent where others read it. Leave it as GitHub sets it."
        )
        raise PublishError(message)
    return value.rstrip("/")


def is_safe_url(value: str) -> bool:
    """Whether an address is https, or this machine's own, and has no user, query or fragment."""
    try:
        # It raises for a broken IPv6 address.
        parts = urlsplit(value)
    except ValueError:
        return False
    # Printable ASCII without `@`, because what stands before that is a user.
    if re.fullmatch(r"[!-?A-~]+", value) is None or not parts.hostname or parts.query or parts.fragment:
        return False
    return parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in _LOOPBACK)
