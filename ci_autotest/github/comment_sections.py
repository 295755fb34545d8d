"""Sections of a posted comment: two hidden lines, then one section for each leg of a matrix.

The second line lists run, attempt, length and leg of each section. Sections are cut by these lengths from the end of
the text, so that text inside a section, which strangers may have written, cannot pose as another section.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import quote, unquote

from ci_autotest.errors import PublishError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

#: Source: GitHub's answer 422 to a longer body, "body is too long (maximum is 65536 characters)".
MAX_CHARS: Final = 65_536
#: Most characters of the two hidden lines and of the line about the legs, for a single leg.
HEADER_CHARS: Final = 1_024
#: Longest name of a leg.
LEG_CHARS: Final = 60
#: Begin of a section that is not aligned. Source: ``report.verdict_line.verdict``.
FAULTY: Final = "### ✗"

_NAME_CHARS: Final = 64
_INDEX_LINE: Final = re.compile(r"<!-- sections((?: [0-9]{1,19}\.[0-9]{1,19}\.[0-9]{1,6}\.[^ <>]*)*) -->")
_BETWEEN: Final = "\n\n"


class Turn(NamedTuple):
    """The run that a section is from; a later run is greater, because ids grow with time."""

    run_id: int
    attempt: int


@dataclass(frozen=True, kw_only=True)
class CommentSection:
    """The part of one leg.

    Attributes:
        leg: Name of the leg; empty without a matrix.
        turn: The run that wrote it.
        text: Markdown that begins with a heading of one line.
        again: Replaces ``text`` if the section says so far that the leg is not aligned.
    """

    leg: str
    turn: Turn
    text: str
    again: str = ""

    @property
    def headline(self) -> str:
        """The first line, which remains if the rest does not fit."""
        return self.text.partition("\n")[0]


def marker(name: str) -> str:
    """Return the hidden first line of the comment of check ``name``; no name can end it early.

    A name that has to be changed gets a part of its hash, so that ``gpu 8.0`` and ``gpu 80`` have two comments.

    Raises:
        UsageError: The name has no letter and no digit.
    """
    plain = re.sub(r"[^A-Za-z0-9]+", "-", name).strip("-")
    if not plain:
        message = f"check name {name!r} has no letter and no digit (A to Z, 0 to 9). Give it one."
        raise UsageError(message)
    if plain != name or len(plain) > _NAME_CHARS:
        plain = f"{plain[:_NAME_CHARS]}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"
    return f"<!-- ci-autotest:{plain} -->"


def plain(body: str | None) -> str:
    """Return a comment with LF line ends, because one that was edited in a browser has CRLF."""
    return (body or "").replace("\r\n", "\n").rstrip()


def compose(first_line: str, sections: Iterable[CommentSection]) -> str:
    """Return the comment; until it fits, the longest section is cut to its first line.

    Raises:
        PublishError: Not even the first lines fit.
    """
    placed = sorted(sections, key=lambda section: section.leg)
    while _size(body := _composed(first_line, placed)) > MAX_CHARS:
        longest = max(placed, key=lambda section: _size(section.text))
        shorter = f"{longest.headline}{_BETWEEN}The rest is in the job's summary and the artifact."
        if _size(shorter) >= _size(longest.text):
            message = (
                f"the comment has {_size(body):,} characters, and {MAX_CHARS:,} are allowed: "
                f"{len(placed)} legs do not fit into one. Publish some of them under another `artifact-name`."
            )
            raise PublishError(message)
        placed[placed.index(longest)] = replace(longest, text=shorter)
    return body


def sections_of(body: str | None) -> tuple[CommentSection, ...]:
    """Return the sections of a comment that ``compose`` wrote; none if somebody edited it."""
    lines = plain(body).split("\n", 2)
    found = _INDEX_LINE.fullmatch(lines[1].strip()) if len(lines) > 2 else None  # noqa: PLR2004
    if found is None:
        return ()
    rest, sections = lines[2], []
    for entry in reversed(found[1].split()):
        run_id, attempt, length, leg = entry.split(".", 3)
        text = rest[-int(length) :] if int(length) else ""
        # A section begins with a heading: somebody has edited this text.
        if len(text) != int(length) or not text.startswith("#"):
            return ()
        sections.append(CommentSection(leg=unquote(leg), turn=Turn(int(run_id), int(attempt)), text=text))
        rest = rest[: -int(length)].removesuffix(_BETWEEN)
    return tuple(reversed(sections))


def _composed(first_line: str, placed: Sequence[CommentSection]) -> str:
    texts = [section.text.strip() for section in placed]
    index = "".join(
        f" {section.turn.run_id}.{section.turn.attempt}.{len(text)}.{quote(section.leg, safe='')}"
        for section, text in zip(placed, texts, strict=True)
    )
    return _BETWEEN.join([f"{first_line}\n<!-- sections{index} -->\n{_overview(placed)}".rstrip("\n"), *texts])


def _overview(placed: Sequence[CommentSection]) -> str:
    """Return a line about all legs if there are several, so that nobody takes the first for the whole."""
    if len(placed) < 2:  # noqa: PLR2004
        return ""
    faulty = sum(section.text.startswith(FAULTY) for section in placed)
    return f"**{faulty} of {len(placed)} legs not aligned**"


def _size(text: str) -> int:
    """Return the size in UTF-8 bytes, an upper bound of characters and UTF-16 units; GitHub does not name its unit."""
    return len(text.encode(errors="surrogatepass"))
