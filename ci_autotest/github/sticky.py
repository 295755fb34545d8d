"""Decide which comments are ours and what to do about them, from the list of comments alone.

A comment is ours if our login wrote it and its first line is the marker of the check. A run has one publisher, which
writes all sections. Publishers of several runs keep the comment with the lowest id, so that they end with one. It names
the run that wrote it, so that a run that started earlier and ends later overwrites nothing newer.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from ci_autotest.github.comment_sections import FAULTY, CommentSection, Turn, compose, plain, sections_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence


class User(msgspec.Struct, frozen=True):
    """An account; the login of an app ends in ``[bot]``."""

    login: str


class Comment(msgspec.Struct, frozen=True):
    """A comment; it has no ``user`` if the account was deleted."""

    id: int
    html_url: str
    user: User | None
    body: str | None = None


@dataclass(frozen=True, kw_only=True)
class WantedComment:
    """What the comment must say when a publisher is done.

    Attributes:
        marker: First line of the comment.
        turn: The run that publishes.
        sections: All sections of the comment.
        may_create: Whether a comment is created if there is none.
    """

    marker: str
    turn: Turn
    sections: tuple[CommentSection, ...]
    may_create: bool = True


@dataclass(frozen=True)
class Create:
    """Create a comment."""

    body: str


@dataclass(frozen=True)
class Update:
    """Overwrite the comment ``id``."""

    id: int
    body: str


@dataclass(frozen=True)
class Skip:
    """There is no comment, and none is wanted."""


@dataclass(frozen=True)
class Done:
    """Nothing is left to do; ``newer`` is a later run that has the comment, if there is one."""

    kept: Comment
    newer: Turn | None = None


@dataclass(frozen=True)
class Delete:
    """Delete our own duplicates; ``then`` is the state after that."""

    ids: tuple[int, ...]
    then: Done


Step: TypeAlias = Create | Update | Skip | Delete | Done


def ours(comments: Iterable[Comment], author: str, first_line: str) -> list[Comment]:
    """Return the comments by ``author`` that have the marker, the lowest id first."""
    mine = [comment for comment in comments if _is_ours(comment, author, first_line)]
    return sorted(mine, key=lambda comment: comment.id)


def turn_of(comment: Comment) -> Turn:
    """Return the latest run that wrote a comment; the lowest possible if the comment does not say."""
    return max((section.turn for section in sections_of(comment.body)), default=Turn(0, 0))


def decide(comments: Iterable[Comment], author: str, wanted: WantedComment, *, wrote: bool) -> Step:
    """Return the next step; it is called again with a fresh list after each step.

    Args:
        comments: All comments of the pull request.
        author: Our login.
        wanted: What the comment must say.
        wrote: Whether we wrote it before; then another publisher of the same run may have the last word, because two of
            them would overwrite each other forever.
    """
    mine = ours(comments, author, wanted.marker)
    if not mine:
        return Create(compose(wanted.marker, wanted.sections)) if wanted.may_create else Skip()
    kept, *duplicates = mine
    newest = max(map(turn_of, mine))
    if newest > wanted.turn:
        # Its publisher moves it to the lowest id, so only older duplicates are deleted here.
        is_in_place = turn_of(kept) == newest
        stale = [comment for comment in duplicates if is_in_place or turn_of(comment) < newest]
        return _without(stale, Done(kept, newest))
    if wrote and turn_of(kept) == wanted.turn:
        return _without(duplicates, Done(kept))
    body = compose(wanted.marker, _told_again(mine, wanted))
    # The kept comment gets the text first, because a duplicate that is deleted may be the only one that has it.
    return _without(duplicates, Done(kept)) if plain(kept.body) == plain(body) else Update(kept.id, body)


def _told_again(mine: Iterable[Comment], wanted: WantedComment) -> Iterator[CommentSection]:
    """Yield the sections; an aligned one says more where people have read before that the leg was not."""
    faulty = {
        section.leg for comment in mine for section in sections_of(comment.body)
        if section.turn <= wanted.turn and section.text.startswith(FAULTY)
    }  # fmt: skip
    for section in wanted.sections:
        yield replace(section, text=section.again) if section.again and section.leg in faulty else section


def _without(surplus: Sequence[Comment], done: Done) -> Delete | Done:
    return Delete(tuple(comment.id for comment in surplus), done) if surplus else done


def _is_ours(comment: Comment, author: str, first_line: str) -> bool:
    # Logins on GitHub are not case-sensitive.
    if comment.user is None or comment.user.login.casefold() != author.casefold():
        return False
    return plain(comment.body).split("\n", 1)[0] == first_line
