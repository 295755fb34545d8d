"""Reference pages show what the code has: their tables are committed, because GitHub shows the files as they are."""

from __future__ import annotations

import pytest

from docs.generated import PAGES, with_tables


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)
def test_page__committed__has_the_tables_of_the_code(page):
    text = page.read_text("utf-8")
    assert text == with_tables(text), "write them with `python -m docs.generated`"
    assert text.count("<!-- generated:") == text.count("<!-- end -->") > 0


def test_tables__page_of_before__are_written_anew():
    assert "| `mode` |" in with_tables("<!-- generated: action inputs -->\nold\n<!-- end -->")
