from __future__ import annotations

import pytest

from ci_autotest.github.client import wait_s
from ci_autotest.github.http_messages import HttpReply

NOW = "Fri, 20 Nov 2026 10:00:00 GMT"
NOW_S = 1_795_168_800


def reply(status: int, body: bytes = b"{}", **headers: str) -> HttpReply:
    return HttpReply(status=status, headers={key.replace("_", "-"): text for key, text in headers.items()}, body=body)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        pytest.param(reply(200), None, id="fine"),
        pytest.param(reply(200, x_ratelimit_remaining="0"), None, id="fine, and the last one"),
        pytest.param(reply(403), None, id="no permission"),
        pytest.param(reply(403, x_ratelimit_remaining="4999"), None, id="no permission, with a count"),
        pytest.param(reply(404, retry_after="3"), None, id="not there"),
        pytest.param(reply(422), None, id="wrong request"),
        pytest.param(reply(501), None, id="not implemented"),
        pytest.param(reply(403, retry_after="3"), 3.0, id="told to wait"),
        pytest.param(reply(429, retry_after="0"), 0.0, id="told not to wait"),
        pytest.param(
            reply(403, retry_after="3", x_ratelimit_remaining="0", x_ratelimit_reset=str(NOW_S + 9), date=NOW),
            3.0,
            id="told to wait, before the reset",
        ),
        pytest.param(
            reply(403, x_ratelimit_remaining="0", x_ratelimit_reset=str(NOW_S + 9), date=NOW), 9.0, id="until the reset"
        ),
        pytest.param(
            reply(429, x_ratelimit_remaining="0", x_ratelimit_reset=str(NOW_S - 9), date=NOW), 1.0, id="reset is over"
        ),
        pytest.param(
            reply(429, x_ratelimit_remaining="5", x_ratelimit_reset=str(NOW_S + 9), date=NOW), 60.0, id="not spent"
        ),
        pytest.param(
            reply(403, x_ratelimit_remaining="0", x_ratelimit_reset=str(NOW_S + 9)), 60.0, id="reset without a date"
        ),
        pytest.param(
            reply(403, x_ratelimit_remaining="0", x_ratelimit_reset="soon", date=NOW), 60.0, id="reset is no number"
        ),
        pytest.param(reply(429, retry_after="-3"), 60.0, id="negative"),
        pytest.param(reply(429, retry_after="9" * 400), 60.0, id="beyond belief"),
        pytest.param(reply(429, retry_after="\N{SUPERSCRIPT TWO}"), 60.0, id="no digit"),
        pytest.param(reply(403, b'{"message": "You have exceeded a secondary rate limit."}'), 60.0, id="secondary"),
        pytest.param(reply(500), 1.0, id="server failed"),
        pytest.param(reply(503, retry_after="5"), 5.0, id="server failed and says how long"),
        pytest.param(reply(0), 1.0, id="no answer"),
    ],
)
def test_wait_s__first_failure(answer: HttpReply, expected: float | None) -> None:
    assert wait_s(answer, 0) == expected


def test_wait_s__failures_in_a_row__double() -> None:
    waits = [(wait_s(reply(429), failures), wait_s(reply(502), failures)) for failures in range(4)]

    assert waits == [(60.0, 1.0), (120.0, 2.0), (240.0, 4.0), (480.0, 8.0)]
