"""The comment, published while GitHub fails, limits, or is not GitHub."""

from __future__ import annotations

import io
import logging
from typing import TYPE_CHECKING

import pytest

from ci_autotest.errors import PublishError
from tests.fakes.clock import FakeClock
from tests.fakes.github import BOT, NUMBER, SHA, TOKEN, FakeGithub, Fault
from tests.fakes.github_server import serving
from tests.publishing import LIST, POST, event_of, ours, published, refused, url

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def github() -> Iterator[FakeGithub]:
    with serving(FakeGithub(heads={NUMBER: ("octo/kernels", "softmax", SHA)})) as fake:
        yield fake


@pytest.mark.parametrize("status", [502, 500, 0], ids=["502", "500", "connection closed"])
def test_publish__fails_after_the_comment_was_created__does_not_post_twice(github: FakeGithub, status: int) -> None:
    github.plant(Fault(method="POST", status=status, applied=True, body=b"<html>Unicorn!</html>"))

    result = published(github)

    assert (result.action, result.url, github.calls()) == ("created", url(101), [POST])


@pytest.mark.parametrize("status", [502, 0], ids=["502", "connection closed"])
def test_publish__fails_before_the_comment_was_created__posts_again(github: FakeGithub, status: int) -> None:
    github.plant(Fault(method="POST", status=status))

    result = published(github)

    assert (result.action, github.bodies(), github.calls()) == ("created", {101: ours("2 misaligned")}, [POST, POST])


def test_publish__post_never_succeeds__says_so(github: FakeGithub) -> None:
    github.plant(Fault(method="POST", status=503, times=99))
    clock = FakeClock()

    message = (
        f"POST {github.base}{LIST} answered 503, so the next try must wait 64 s, but only 51 s are left of the 120 s that "
        "publishing may take. Run this job again later."
    )
    assert (refused(github, clock=clock), clock.slept_s) == (
        message,
        [wait for double in (1.0, 2.0, 4.0, 8.0, 16.0, 32.0) for wait in (double, 1.0)],
    )


@pytest.mark.parametrize("status", [500, 502, 503, 504, 0])
def test_publish__three_failures_then_fine__waits_and_goes_on(github: FakeGithub, status: int) -> None:
    github.plant(Fault(method="GET", path="comments", status=status, times=3))
    clock = FakeClock()

    result = published(github, clock=clock)

    assert (result.action, clock.slept_s) == ("created", [1.0, 2.0, 4.0, 1.0])


def test_publish__six_failures__gives_up(github: FakeGithub) -> None:
    github.plant(Fault(method="GET", path="comments", status=500, times=6))

    assert refused(github) == f"GET {github.base}{LIST} answered 500, 6 times in a row. Run this job again later."


@pytest.mark.parametrize(
    ("headers", "waits_s"),
    [
        pytest.param({"Retry-After": "7"}, [7.0], id="Retry-After"),
        pytest.param({"Retry-After": "7", "x-ratelimit-remaining": "0"}, [7.0], id="Retry-After before reset"),
        pytest.param({"x-ratelimit-remaining": "0"}, [60.0], id="no time said"),
    ],
)
def test_publish__rate_limited__waits_as_told(
    github: FakeGithub, headers: dict[str, str], waits_s: list[float]
) -> None:
    github.plant(Fault(method="POST", status=403, headers=headers, body=b'{"message": "Slow down"}'))
    clock = FakeClock()

    result = published(github, clock=clock)

    assert (result.action, clock.slept_s, github.calls()) == ("created", [*waits_s, 1.0, 1.0], [POST, POST])


def test_publish__asked_to_wait_beyond_the_deadline__ends_at_once(github: FakeGithub) -> None:
    github.plant(Fault(method="POST", status=429, headers={"Retry-After": "3600"}))
    clock = FakeClock()

    message = (
        f"POST {github.base}{LIST} answered 429, so the next try must wait 3,600 s, but only 120 s are left of the 120 s that "
        "publishing may take. Run this job again later."
    )
    assert (refused(github, clock=clock), clock.slept_s) == (message, [])


def test_publish__html_instead_of_json__gives_one_clear_message(github: FakeGithub) -> None:
    page = b"<html><title>Sign in to the guest network</title></html>"
    github.plant(Fault(method="GET", path="comments", status=200, headers={"Content-Type": "text/html"}, body=page))

    assert refused(github) == (
        f"GET {github.base}{LIST} answered 200 with 56 bytes of text/html that are not from GitHub: it is not JSON. "
        "Check GITHUB_API_URL, and any proxy between this machine and GitHub."
    )


@pytest.mark.parametrize(
    ("body", "detail"),
    [
        pytest.param(b"[{}]", "Object missing required field `id` - at `$[0]`", id="a field is missing"),
        pytest.param(b'{"id": 1}', "Expected `array`, got `object`", id="no list"),
        pytest.param(b'[{"id": NaN}]', "it is not JSON", id="NaN"),
        pytest.param(b"\xff\xfe", "it is not JSON", id="not UTF-8"),
        pytest.param(b'[{"more":' + b"[" * 100_000, "it is not JSON", id="nested deeply"),
    ],
)
def test_publish__answer_is_not_githubs__says_what(github: FakeGithub, body: bytes, detail: str) -> None:
    github.plant(Fault(method="GET", path="comments", status=200, body=body))

    assert f"that are not from GitHub: {detail}. Check GITHUB_API_URL" in refused(github)


def test_publish__links_in_a_loop__ends(github: FakeGithub) -> None:
    github.add_comment("someone", "hello")
    github.link_loop = True

    assert (published(github).action, len(github.seen)) == ("created", 3 + 1 + 3)


@pytest.mark.parametrize("empty", [{1}, {2}, {1, 3}])
def test_publish__empty_page_in_the_middle__is_passed_over(github: FakeGithub, empty: set[int]) -> None:
    for index in range(250):
        github.add_comment("someone", f"remark {index}")
    kept = github.add_comment(BOT, ours("old", 499))
    github.empty_pages = frozenset(empty)

    assert (published(github).action, github.bodies(BOT)) == ("updated", {kept: ours("2 misaligned")})


def test_publish__list_lags_behind__does_not_post_again(github: FakeGithub) -> None:
    # The list is asked before and after writing; after it, it knows nothing of the comment yet.
    github.plant(Fault(method="GET", path="comments"))
    github.plant(Fault(method="GET", path="comments", status=200, body=b"[]"))

    assert (published(github).action, github.calls()) == ("created", [POST])


def test_publish__endless_pages__are_not_believed(github: FakeGithub) -> None:
    github.comments = [(NUMBER, index, "someone", "x") for index in range(10_001)]

    assert (
        refused(github) == f"GET {github.base}{LIST} goes on after 100 pages of 100, which is more than GitHub stores."
    )


def test_publish__answer_drips__ends_at_the_deadline(github: FakeGithub) -> None:
    github.plant(Fault(method="GET", path="comments", status=200, body=b"[" + b" " * 10_000, drip_s=0.005))

    message = refused(github, clock=FakeClock(tick_s=1.0), deadline_s=30.0)

    assert message == (
        f"GET {github.base}{LIST} is still being answered, and the 30 s that publishing may take are over. "
        "Run this job again."
    )


def test_publish__answer_is_huge__is_not_read_to_its_end(github: FakeGithub) -> None:
    github.plant(Fault(method="GET", path="comments", status=200, body=b"[" + b" " * (33 * 1024 * 1024)))

    assert refused(github) == f"GET {github.base}{LIST} answered with more than the 33,554,432 bytes that are read."


def test_publish__redirect__is_not_followed(github: FakeGithub) -> None:
    github.plant(
        Fault(method="GET", path="comments", status=302, headers={"Location": "https://example.com"}, body=b"{}")
    )

    assert refused(github) == (
        f"GET {github.base}{LIST} answered 302, where 200 to 204 were expected: no reason given."
    )


def test_publish__nobody_listens__says_so(github: FakeGithub) -> None:
    event = event_of(FakeGithub(base="http://127.0.0.1:9"))  # the discard port: nothing listens there

    assert refused(github, event=event) == (
        f"GET http://127.0.0.1:9{LIST} was not answered (ConnectionError), 6 times in a row. Run this job again later."
    )


def test_publish__text_is_too_long__leaves_its_first_line(github: FakeGithub) -> None:
    result = published(github, "2 misaligned\n\n" + "x" * 65_536, name="n" * 500)

    assert result.action == "created"
    assert github.bodies()[101].splitlines()[3:] == [
        "### ✗ 2 misaligned", "", "The rest is in the job's summary and the artifact."
    ]  # fmt: skip


def test_publish__longest_body__is_taken(github: FakeGithub) -> None:
    assert published(github, "\N{CHECK MARK}" * 21_500, name="n" * 500).action == "created"
    assert 64_500 < len(github.bodies()[101].encode()) <= 65_536


def test_publish__refused_as_unprocessable__gives_githubs_words(github: FakeGithub) -> None:
    github.plant(Fault(method="POST", status=422, body=b'{"message": "Validation\\n::error::Failed\\u001b[31m"}'))

    assert refused(github) == (
        f"POST {github.base}{LIST} answered 422, where 200 to 204 were expected: Validation ::error::Failed[31m."
    )


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(Fault(method="POST", status=422, body=f'{{"message": "bad {TOKEN}"}}'.encode()), id="422"),
        pytest.param(Fault(method="GET", status=401, body=f'{{"message": "bad {TOKEN}"}}'.encode()), id="401"),
        pytest.param(Fault(method="GET", path="comments", status=200, body=TOKEN.encode()), id="not JSON"),
        pytest.param(Fault(method="GET", path="comments", status=0, times=9), id="no answer"),
    ],
)
def test_publish__token_echoed__is_in_no_exception(github: FakeGithub, fault: Fault) -> None:
    github.plant(fault)

    with pytest.raises(PublishError) as caught:
        published(github)

    chain = [caught.value, caught.value.__cause__, caught.value.__context__]
    shown = [f"{error!r} {error}" for error in chain if error is not None]
    assert [text for text in shown if TOKEN in text] == []


@pytest.fixture
def root_log() -> Iterator[io.StringIO]:
    """Give all that is logged, by any library, at any level."""
    root, log = logging.getLogger(), io.StringIO()
    handler, level = logging.StreamHandler(log), root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    yield log
    root.removeHandler(handler)
    root.setLevel(level)


def test_publish__token_echoed_in_a_refusal__is_not_in_the_result(github: FakeGithub, root_log: io.StringIO) -> None:
    github.plant(Fault(method="POST", status=403, body=f'{{"message": "no, {TOKEN}"}}'.encode()))

    result = published(github)

    assert ("(no, ***)" in result.message, TOKEN in repr(result), TOKEN in root_log.getvalue()) == (True, False, False)
    assert TOKEN not in repr(event_of(github))
