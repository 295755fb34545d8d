"""Own what makes a comment ours, and what is to be done about the comments there are: pure decisions.

Ours is a comment of our own author whose first line is the marker of the check. Its second line
names the run that wrote it, so that a run that started earlier and ends later does not overwrite a
newer one. The comment with the lowest id is kept; every publisher decides so, hence publishers that
meet end with one comment.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

import msgspec

from ci_autotest.errors import PublishError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

#: Source: GitHub's answer 422 to a longer body, "body is too long (maximum is 65536 characters)".
MAX_CHARS: Final = 65_536
#: Room that a body leaves for the two hidden lines.
HEADER_CHARS: Final = 256

_NAME_CHARS: Final = 64
_TURN_LINE: Final = re.compile(r"<!-- run ([0-9]{1,19}) attempt ([0-9]{1,19}) -->")


class User(msgspec.Struct, frozen=True):
    """Name an account; the login of an app ends in ``[bot]``."""

    login: str


class Comment(msgspec.Struct, frozen=True):
    """Hold what is needed of a comment; a deleted account leaves no ``user``."""

    id: int
    html_url: str
    user: User | None
    body: str | None = None


class Turn(NamedTuple):
    """Say which run a comment is from; a later one is greater. Ids of runs grow with time."""

    run_id: int
    attempt: int


@dataclass(frozen=True, kw_only=True)
class Sticky:
    """Hold the comment as it should be: the first line, the run, and what is shown."""

    marker: str
    turn: Turn
    text: str

    @property
    def body(self) -> str:
        """The whole text, with the two hidden lines."""
        return f"{self.marker}\n<!-- run {self.turn.run_id} attempt {self.turn.attempt} -->\n{self.text}"


@dataclass(frozen=True)
class Create:
    """Ask for a new comment."""


@dataclass(frozen=True)
class Update:
    """Ask for the comment ``id`` to be overwritten."""

    id: int


@dataclass(frozen=True)
class Done:
    """Say that nothing is left to do; ``newer`` is the later run that has the comment, if one has."""

    kept: Comment
    newer: Turn | None = None


@dataclass(frozen=True)
class Delete:
    """Ask for our own duplicates to be deleted; ``then`` holds when they are gone."""

    ids: tuple[int, ...]
    then: Done


Step: TypeAlias = Create | Update | Delete | Done


def marker(name: str) -> str:
    """Return the first line of the comment of check ``name``, which no name can end early.

    What is left out of a name comes back as a part of its hash, so that ``gpu 8.0`` and ``gpu 80``
    have two comments.

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


def sticky(name: str, turn: Turn, text: str) -> Sticky:
    """Return the comment of check ``name`` as it should be.

    Raises:
        PublishError: ``text`` is longer than GitHub takes.
        UsageError: The name cannot be used.
    """
    allowed = MAX_CHARS - HEADER_CHARS
    if len(text) > allowed:
        message = (
            f"the comment of check {name!r} has {len(text):,} characters, and {allowed:,} are allowed. Shorten it."
        )
        raise PublishError(message)
    return Sticky(marker=marker(name), turn=turn, text=text)


def turn_of(comment: Comment) -> Turn:
    """Return the run that wrote a comment; the earliest there can be when the comment does not say it."""
    lines = _plain(comment.body).split("\n", 2)
    found = _TURN_LINE.fullmatch(lines[1].strip()) if len(lines) > 1 else None
    return Turn(int(found[1]), int(found[2])) if found else Turn(0, 0)


def ours(comments: Iterable[Comment], author: str, first_line: str) -> list[Comment]:
    """Return the comments that are ``author``'s and have the marker, the lowest id first."""
    mine = [comment for comment in comments if _is_ours(comment, author, first_line)]
    return sorted(mine, key=lambda comment: comment.id)


def decide(comments: Iterable[Comment], author: str, wanted: Sticky, *, wrote: bool) -> Step:
    """Return the next thing to do; what it needs is in the list, so it is asked again after each.

    Args:
        comments: All comments of the pull request.
        author: Login under which we write.
        wanted: The comment as it should be.
        wrote: Whether ``wanted`` was written before; then another publisher of the same run may
            have the last word, or two of them would overwrite each other for ever.
    """
    mine = ours(comments, author, wanted.marker)
    if not mine:
        return Create()
    newest = max(map(turn_of, mine))
    if newest > wanted.turn:
        return _yield_to(newest, mine)
    kept, *duplicates = mine
    is_settled = _plain(kept.body) == _plain(wanted.body) or (wrote and turn_of(kept) == wanted.turn)
    # The text is brought to the comment that stays before a duplicate that may hold it goes.
    if not is_settled:
        return Update(kept.id)
    return _without(duplicates, Done(kept))


def _yield_to(newest: Turn, mine: Sequence[Comment]) -> Delete | Done:
    """Leave what a newer run wrote; its publisher moves it to the lowest id, so only older duplicates may go."""
    kept, *duplicates = mine
    is_in_place = turn_of(kept) == newest
    stale = [comment for comment in duplicates if is_in_place or turn_of(comment) < newest]
    return _without(stale, Done(kept, newest))


def _without(surplus: Sequence[Comment], done: Done) -> Delete | Done:
    return Delete(tuple(comment.id for comment in surplus), done) if surplus else done


def _is_ours(comment: Comment, author: str, first_line: str) -> bool:
    if comment.user is None or comment.user.login.casefold() != author.casefold():
        return False
    return _plain(comment.body).split("\n", 1)[0] == first_line


def _plain(body: str | None) -> str:
    # A comment edited in a browser comes back with CRLF.
    return (body or "").replace("\r\n", "\n").rstrip()
