import io
import re
from pathlib import Path

import pytest

from ci_autotest import doc_links
from ci_autotest.commands.docs import anchor_of, docs
from ci_autotest.doc_links import ADDRESS, Page, link, more
from ci_autotest.errors import UsageError

_DOCS = Path(__file__).resolve().parents[2] / "docs"


def _anchors(page: str) -> set[str]:
    return {anchor_of(heading) for heading in re.findall(r"^#+ (.+)$", (_DOCS / page).read_text(), re.MULTILINE)}


@pytest.mark.parametrize("page", Page)
def test_page__has_its_file_and_heading(page: Page) -> None:
    file, _, anchor = page.value.partition("#")
    assert (_DOCS / file).is_file()
    # Two hyphens in a row are GitHub's, but not the site's: such a heading would have two addresses.
    assert not anchor or (anchor in _anchors(file) and "--" not in anchor)


@pytest.mark.parametrize("page", Page)
def test_link__before_a_release__is_a_command_that_prints_the_page(page: Page) -> None:
    # docs/releasing.md replaces `org/ci-autotest` in every file.
    assert "/org/ci-autotest/" in ADDRESS
    command = link(page)
    assert more(page) == f" More: {command}"
    printed = io.StringIO()
    assert docs(command.removeprefix("ci-autotest docs "), printed) == 0
    assert printed.getvalue().startswith("#")


def test_link__of_a_release__is_its_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doc_links, "ADDRESS", ADDRESS.replace("/org/", "/acme/"))
    assert link(Page.FLAKY) == "https://github.com/acme/ci-autotest/blob/v1/docs/how-to/troubleshooting.md#flaky"


def test_docs__section__ends_before_the_next_of_its_level() -> None:
    printed = io.StringIO()
    docs("troubleshooting#flaky", printed)
    assert [line for line in printed.getvalue().splitlines() if line.startswith("#")] == ["## flaky"]


def test_docs__no_page__lists_them() -> None:
    printed = io.StringIO()
    docs("", printed)
    assert len(printed.getvalue().splitlines()) == len(list(_DOCS.rglob("*.md")))
    assert "how-to/troubleshooting" in printed.getvalue()


@pytest.mark.parametrize(
    ("page", "message"),
    [
        ("tutorail", r"has no page 'tutorail'\. Did you mean 'tutorial'\?"),
        ("index", None),
        ("tutorial#nothing-like-it", r"has no section 'nothing-like-it' on that page\."),
        ("../README", r"has no page '\.\./README'\."),
    ],
)
def test_docs__unknown__says_what_there_is(page: str, message: str | None) -> None:
    if message is None:
        docs(page, io.StringIO())
        return
    with pytest.raises(UsageError, match=message):
        docs(page, io.StringIO())
