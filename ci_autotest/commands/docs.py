"""``ci-autotest docs``: print a page of the documentation, which the package brings along as text."""

from __future__ import annotations

import re
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ci_autotest.errors import UsageError

if TYPE_CHECKING:
    from typing import TextIO

_PACKAGE: Final = Path(__file__).resolve().parents[1]
#: Where the pages are: in an installed package, else beside it in a checkout.
FOLDERS: Final = (_PACKAGE / "docs", _PACKAGE.parent / "docs")
_HEADING: Final = re.compile(r"^(#+) (.+)$")


def docs(page: str, stream: TextIO) -> int:
    """Print a page, ``tutorial``, or one of its sections, ``how-to/troubleshooting#flaky``; without one, the list.

    Raises:
        UsageError: There is no such page or section, or this package has no pages.
    """
    folder = next((found for found in FOLDERS if (found / "tutorial.md").is_file()), None)
    if folder is None:
        message = "this copy of ci-autotest has no documentation. Install the package, or read docs/ of its repository."
        raise UsageError(message)
    names = sorted(path.relative_to(folder).with_suffix("").as_posix() for path in folder.rglob("*.md"))
    if not page:
        for name in names:
            first = (folder / f"{name}.md").read_text("utf-8").partition("\n")[0]
            stream.write(f"{name:<34} {first.removeprefix('# ')}\n")
        return 0
    name, _, anchor = page.removesuffix(".md").replace(".md#", "#").partition("#")
    if name not in names:
        # `troubleshooting` is enough where only one page is called so.
        short = [each for each in names if each.rpartition("/")[2] == name]
        if len(short) != 1:
            raise UsageError(_unknown(f"page {name!r}", get_close_matches(name, names, 1)))
        name = short[0]
    stream.write(section((folder / f"{name}.md").read_text("utf-8"), anchor))
    return 0


def section(text: str, anchor: str) -> str:
    """Return the part of a page below a heading, with it, up to the next of its level; all of it without an anchor.

    Raises:
        UsageError: The page has no such heading.
    """
    if not anchor:
        return text
    level, lines, is_code, anchors = 0, [], False, []
    for line in text.splitlines(keepends=True):
        is_code ^= line.startswith("```")
        heading = None if is_code else _HEADING.match(line)
        if heading is not None:
            anchors.append(anchor_of(heading[2]))
            if anchors[-1] == anchor:
                level = len(heading[1])
            elif level and len(heading[1]) <= level:
                break
        if level:
            lines.append(line)
    if not level:
        raise UsageError(_unknown(f"section {anchor!r} on that page", get_close_matches(anchor, anchors, 1)))
    return "".join(lines)


def anchor_of(heading: str) -> str:
    """Return the anchor that GitHub gives to a heading."""
    return re.sub(r"[^\w -]", "", heading.lower()).strip().replace(" ", "-")


def _unknown(what: str, near: list[str]) -> str:
    meant = f" Did you mean {near[0]!r}?" if near else ""
    return f"the documentation has no {what}.{meant} `ci-autotest docs` lists the pages."
