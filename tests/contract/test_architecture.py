"""The page of the architecture names files that exist, and asks its twenty questions."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/explanation/architecture.md").read_text("utf-8")
#: A path in the text of the page, outside of its picture.
PATHS = sorted(
    set(re.findall(r"`((?:[a-z_]+/)+(?:[a-z_]+\.(?:py|yml))?|[a-z_]+\.py)`", PAGE.partition("## A case")[2]))
)


def is_there(path: str) -> bool:
    return (ROOT / path).exists() or (ROOT / "ci_autotest" / path).exists() or path in {"factory.py", "repro.py"}


def test_page__paths_that_it_names__exist():
    assert len(PATHS) > 50
    assert [path for path in PATHS if not is_there(path)] == []
    assert not is_there("values/nothing.py")


def test_page__folders_of_its_picture__are_those_of_the_package():
    picture = PAGE.partition("```")[2].partition("```")[0]
    named = {word.strip("/") for line in picture.splitlines() for word in line[:37].split()}
    folders = {path.name for path in (ROOT / "ci_autotest").iterdir() if (path / "__init__.py").is_file()}
    assert folders - named == {"suite"}


def test_page__twenty_questions__have_an_answer_each():
    rows = re.findall(
        r"^\| [^|]+ \| `[^`]+` \|$", PAGE.partition("## Twenty questions")[2].partition("\n## ")[0], re.MULTILINE
    )
    assert len(rows) == 20
