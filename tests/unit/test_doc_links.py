import re
from pathlib import Path

import pytest

from ci_autotest.doc_links import ADDRESS, Page, link, more

_DOCS = Path(__file__).resolve().parents[2] / "docs"


def _anchors(page: str) -> set[str]:
    """The anchors that GitHub gives to a page's headings."""
    headings = re.findall(r"^#+ (.+)$", (_DOCS / page).read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", Page)
def test_page__has_its_file_and_heading(page: Page) -> None:
    file, _, anchor = page.value.partition("#")
    assert (_DOCS / file).is_file()
    # Two hyphens in a row are GitHub's, but not the site's: such a heading would have two addresses.
    assert not anchor or (anchor in _anchors(file) and "--" not in anchor)


def test_link__is_replaced_with_the_organisation() -> None:
    # docs/releasing.md replaces `org/ci-autotest` in every file.
    assert "/org/ci-autotest/" in ADDRESS
    assert link(Page.TUTORIAL) == f"{ADDRESS}tutorial.md"
    assert more(Page.FLAKY).endswith("troubleshooting.md#flaky")
