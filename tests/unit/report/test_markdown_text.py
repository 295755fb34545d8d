"""Hostile text is shown as those characters and as nothing else."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest
from markdown_it import MarkdownIt

from ci_autotest.report.document import Code, Link, Strong, Words, joined, one_line, plain, plain_line
from ci_autotest.report.markdown_text import fence, folded, head, markdown, row, size
from tests.report_samples import HOSTILE

MARKDOWN = MarkdownIt("commonmark").enable(["table", "strikethrough"])
#: Zero-width space: what breaks a mention or a link, and is not seen.
BREAK = "\u200b"
# Source: GitHub's documentation, "Autolinked references and URLs"; GFM 0.29, 6.9 (autolinks).
AUTOLINKS = re.compile(r"(?i)(?<!\w)@\w|#\d|\bgh-\d|://|\bwww\.|\w@\w")


def tokens(markdown):
    return [child for token in MARKDOWN.parse(markdown) for child in (token, *(token.children or ()))]


def shown(markdown):
    """Return the text that a reader sees."""
    return "".join(token.content for token in tokens(markdown) if token.type in {"text", "code_inline", "text_special"})


def types(markdown):
    return {token.type for token in tokens(markdown)}


PLAIN = {"paragraph_open", "paragraph_close", "inline", "text", "text_special"}


@pytest.mark.parametrize("name", HOSTILE)
def test_text__hostile__is_words_and_nothing_else(name):
    written = markdown(Words(HOSTILE[name]))

    assert types(written) <= PLAIN
    assert shown(written).replace(BREAK, "") == one_line(HOSTILE[name])
    assert not AUTOLINKS.search(shown(written))


@pytest.mark.parametrize("name", HOSTILE)
def test_markdown__hostile_words_taken_for_our_own__are_shown_within_their_line(name):
    written = markdown(("said: ", HOSTILE[name], "."))

    assert types(written) <= PLAIN
    assert "\n" not in written
    assert not AUTOLINKS.search(shown(written))


def test_plain_line__nodes__are_their_text():
    line = ("in ", Code("a  b"), ", ", Strong(Words("c\nd")), " of the ", Link("artifact", "https://host/1"))
    assert plain_line(joined("; ", ("", line, "end"))) == "in a b, c d of the artifact; end"


@pytest.mark.parametrize("name", HOSTILE)
def test_code__hostile__is_a_span_or_words(name):
    written = markdown(Code(HOSTILE[name]))

    assert types(written) <= {*PLAIN, "code_inline"}
    assert shown(written).replace(BREAK, "") == one_line(HOSTILE[name])
    assert "code_inline" in types(written) or not AUTOLINKS.search(shown(written))


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("show", [Words, Code])
def test_row__hostile_cells__stay_two_cells_with_that_text(name, show):
    table = head("a", "b") + row(show(HOSTILE[name]), show(HOSTILE[name]))

    cells = [token.content for token in MARKDOWN.parse(table) if token.type == "inline"]
    assert [shown(cell).replace(BREAK, "") for cell in cells] == ["a", "b", *[one_line(HOSTILE[name])] * 2]
    assert types(table).isdisjoint({"html_inline", "link_open", "image"})


class Summary(HTMLParser):
    """Collect the tags and the words of a page's HTML."""

    def __init__(self, written):
        super().__init__()
        self.tags, self.words = [], ""
        self.feed(written)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, attrs))

    def handle_data(self, data):
        self.words += data


@pytest.mark.parametrize("name", HOSTILE)
def test_title__hostile__is_words_of_the_summary_and_nothing_else(name):
    parsed = MARKDOWN.parse(folded(Words(HOSTILE[name]), "body"))
    html = [token.content for token in parsed if token.type == "html_block"]
    read = Summary(html[0])

    assert ([token.type for token in parsed], html[1]) == (
        ["html_block", "paragraph_open", "inline", "paragraph_close", "html_block"], "</details>",
    )  # fmt: skip
    assert read.tags == [("details", []), ("summary", [])]
    assert read.words.replace(BREAK, "").strip() == one_line(HOSTILE[name])
    assert not AUTOLINKS.search(read.words)


@pytest.mark.parametrize("name", HOSTILE)
def test_fence__hostile__is_one_block_with_that_content(name):
    parsed = MARKDOWN.parse(f"before\n\n{fence(HOSTILE[name], 'text')}\n\nafter\n")

    assert [(token.content, token.info) for token in parsed if token.type == "fence"] == [
        (f"{fence_content(HOSTILE[name])}\n", "text")
    ]
    assert [token.content for token in parsed if token.type == "inline"] == ["before", "after"]


def fence_content(value):
    return "".join(
        char if char.isprintable() or char in "\n\t" else char.encode("unicode_escape").decode() for char in value
    )


def test_text__untouched_by_the_tests_own_parser__would_be_seen():
    # The planted fault: without `text` each of these is something else than words.
    seen = {name: types(HOSTILE[name]) - PLAIN for name in ("html", "comment", "link", "heading", "list", "math")}

    assert all(seen.values())
    assert AUTOLINKS.search(HOSTILE["mention"])
    assert AUTOLINKS.search(HOSTILE["issue"])


@pytest.mark.parametrize(
    ("value", "written"),
    [
        ("torch.nn.functional.layer_norm", "torch.nn.functional.layer_norm"),
        ("__init__", "\\_\\_init\\_\\_"),
        ("-0.5", "-0.5"),
        ("- x", "\\- x"),
        ("3.5 GB", "3.5 GB"),
        ("3. x", "3\\. x"),
        ("---", "\\---"),
        ("float32[1, 2]", "float32\\[1, 2\\]"),
        ("a\n\tb", "a b"),
        ("\x1b[31mred\x1b[0m", "red"),
    ],
)
def test_text__ordinary__stays_readable(value, written):
    assert markdown(Words(value)) == written


def test_plain__controls__are_shown_as_escapes():
    assert plain("a\u202eb\x00c\x1b[1md\te\nf\udc80") == "a\\u202eb\\x00cd\te\nf\\udc80"


def test_line__too_long__ends_with_an_ellipsis():
    assert one_line("x" * 20, 10) == f"{'x' * 9}…"
    assert one_line("x" * 70_000, 10) == f"{'x' * 9}…"


@pytest.mark.parametrize("value", ["a", "é", "\N{FIRE}", "漢"])
def test_size__any__is_the_larger_of_both_units(value):
    assert size(value) == max(len(value.encode()), len(value.encode("utf-16-le")) // 2)
