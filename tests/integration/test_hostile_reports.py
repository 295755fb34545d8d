"""Reports that somebody has written to do harm: each is refused in one sentence, or shown as harmless text."""

from __future__ import annotations

import json
import math
import re
from typing import TYPE_CHECKING

import pytest
from markdown_it import MarkdownIt

from tests import report_samples as samples
from tests.archives import report_bytes, zipped
from tests.fakes.github import FakeGithub
from tests.fakes.github_server import serving
from tests.objections import archive_of, published_archive

if TYPE_CHECKING:
    from collections.abc import Iterator

MARKDOWN = MarkdownIt("commonmark").enable("table")
OWN_HTML = re.compile(
    r"<!-- [^>]* -->|<a name=\"[\w-]+\">|</a>|</?details>|<summary>(?:(?:<a name=\"[\w-]+\"></a>)?<b>[^<>]*</b>|[^<>]*)</summary>|</?sub>"
)


@pytest.fixture
def github() -> Iterator[FakeGithub]:
    with serving(FakeGithub()) as fake:
        yield fake


def damaged(change) -> bytes:
    document = json.loads(report_bytes(samples.misaligned()))
    change(document)
    return json.dumps(document).encode()


TEN_MB = "x" * 10_000_000


@pytest.mark.parametrize(
    ("report", "said"),
    [
        pytest.param(b"", "is not a report", id="empty"),
        pytest.param(report_bytes(samples.run(), schema="ci-autotest/report/2"), "this version reads", id="wrong version"),
        pytest.param(report_bytes(samples.run(), seed="1"), "Expected `int`", id="wrong type"),
        pytest.param(report_bytes(samples.run(), findings={}), "Expected `array`", id="wrong type of a list"),
        pytest.param(damaged(lambda d: d.update(duration_s=math.nan)), "is not a report", id="NaN"),
        pytest.param(damaged(lambda d: d["findings"][0].update(greatest_absolute_difference=math.inf)), "is not", id="Infinity"),
        pytest.param(report_bytes(samples.run()).replace(b"1729", b"9" * 5_000), "is not a report", id="huge number"),
        pytest.param(report_bytes(samples.run())[:-1] + b', "seed": 2}', "the key 'seed' twice", id="key twice"),
        pytest.param(
            report_bytes(samples.misaligned()).replace(b'"id": ', b'"id": "a-1", "id": ', 1), "the key 'id' twice", id="inner key twice"
        ),
        pytest.param(b'{"schema":' * 100_000, "is not a report", id="deep"),
        pytest.param(report_bytes(samples.run())[:-1] + b', "x": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "is not", id="deep and unknown"),
        pytest.param(report_bytes(samples.run()).replace(b'"notes": []', b'"notes": ["\\ud800"]'), "is not a report", id="lone surrogate"),
        pytest.param(b"\xff\xfe" + report_bytes(samples.run()), "is not a report", id="UTF-16"),
        pytest.param(damaged(lambda d: d["findings"][0].update(id="../../x")), "not a finding id", id="id that leads out"),
        pytest.param(b" " * (65 << 20), "and 67,108,864 are allowed", id="too large"),
    ],
)  # fmt: skip
def test_comment__hostile_report__is_refused_in_one_sentence(github, tmp_path, report: bytes, said: str) -> None:
    status, told, body = published_archive(github, tmp_path, zipped({"report.json": report}))

    assert (status, said in told, told.count("\n"), body) == (2, True, 0, "")
    assert len(told) < 600


@pytest.mark.parametrize("field", ["headline", "message", "program", "operator", "detail", "oracle", "test", "profile"])
def test_comment__strings_of_10_mb__are_shortened(github, tmp_path, field: str) -> None:
    found = samples.finding(**{field: TEN_MB})

    status, _, body = published_archive(
        github, tmp_path, zipped({"report.json": report_bytes(samples.misaligned(findings=(found,)))})
    )

    assert (status, 200 < len(body.encode()) <= 65_536) == (0, True)


@pytest.mark.parametrize("name", samples.HOSTILE)
def test_comment__hostile_name__is_shown_as_those_characters(github, tmp_path, name: str) -> None:
    value = samples.HOSTILE[name].encode("utf-8", "backslashreplace").decode()
    found = samples.finding(
        operator=value, target=value, candidate=value, test=f"a.py::{value}", where=value, headline=value, oracle=value,
        detail=value, profile=value, candidate_seen=value, reference_seen=value, message=value, program=value, replay=value,
    )  # fmt: skip
    result = samples.misaligned(
        findings=(found,), notes=(value,), broken=(samples.broken(test=value, message=value, traceback=value),)
    )

    status, _, body = published_archive(github, tmp_path, archive_of(result))

    tokens = [child for token in MARKDOWN.parse(body) for child in (token, *(token.children or ()))]
    html = [OWN_HTML.sub("", token.content).strip() for token in tokens if token.type in {"html_inline", "html_block"}]
    assert status == 0
    assert [text for text in html if text] == []
    assert not set(body) & set("\x00\x1b\x07\u202e\u2066")
    comments = "".join(token.content for token in tokens if token.type == "html_block" and "<!--" in token.content)
    assert comments.splitlines() == body.splitlines()[:2]
    hrefs = [str(token.attrs.get("href")) for token in tokens if token.type == "link_open"]
    own = r"https://github\.com/octo/kernels/|#user-content-[\w-]+$"
    assert [href for href in hrefs if not re.match(own, href)] == []
