"""Decide when a request is sent again, from its answer and the number of failures so far.

The order is GitHub's: ``Retry-After``, then the reset of the rate limit, then a minute that doubles with each failure.
"""

from __future__ import annotations

from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Final

from ci_autotest.github.http_response import is_broken

if TYPE_CHECKING:
    from ci_autotest.github.http_response import Reply

RATE_LIMITED_S: Final = 60.0
BROKEN_S: Final = 1.0

_FORBIDDEN: Final = 403
_TOO_MANY: Final = 429
_LONGEST_DIGITS: Final = 12  # 30,000 years


def is_rate_limited(reply: Reply) -> bool:
    """Whether an answer asks to come back later; a 403 may also mean that a permission is missing.

    Source:
        GitHub REST API, "Rate limits for the REST API", "Exceeding the rate limit".
    """
    if reply.status == _TOO_MANY:
        return True
    # GitHub documents that a secondary limit may show in the answer's text alone.
    limited = "retry-after" in reply.headers or _is_spent(reply) or b"secondary rate limit" in reply.body.lower()
    return reply.status == _FORBIDDEN and limited


def wait_s(reply: Reply, failures: int) -> float | None:
    """Return how many seconds to wait before the request is sent again, or ``None`` if the answer is final.

    Args:
        reply: Answer to the last request.
        failures: Earlier failures of the same request.
    """
    if is_rate_limited(reply):
        return _first(_retry_after_s(reply), _until_reset_s(reply), RATE_LIMITED_S * 2.0**failures)
    if is_broken(reply):
        return _first(_retry_after_s(reply), BROKEN_S * 2.0**failures)
    return None


def _first(*waits: float | None) -> float | None:
    return next((wait for wait in waits if wait is not None), None)


def _is_spent(reply: Reply) -> bool:
    return reply.headers.get("x-ratelimit-remaining") == "0"


def _retry_after_s(reply: Reply) -> float | None:
    return _whole(reply.headers.get("retry-after", ""))


def _until_reset_s(reply: Reply) -> float | None:
    """Return the seconds to the reset by the server's clock, because this machine's may be wrong."""
    reset = _whole(reply.headers.get("x-ratelimit-reset", ""))
    if reset is None or not _is_spent(reply):
        return None
    try:
        now = parsedate_to_datetime(reply.headers.get("date", "")).timestamp()
    except ValueError:
        return None
    # The reset may have passed already, and a wait of 0 would send again at once.
    return max(1.0, reset - now)


def _whole(text: str) -> float | None:
    text = text.strip()
    return float(text) if text.isascii() and text.isdigit() and len(text) <= _LONGEST_DIGITS else None
