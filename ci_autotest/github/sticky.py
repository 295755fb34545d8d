"""Decide which comments are ours and what to do about them, from the list of comments alone.

A comment is ours if our login wrote it and its first line is the marker of the check. Every publisher keeps the one
with the lowest id, so that publishers at the same time end with one comment. A section names the run that wrote it, so
that a run that started earlier and ends later overwrites nothing newer.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from ci_autotest.github.comment_sections import FAULTY, CommentSection, Turn, compose, plain, sections_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


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
        sections: Sections of this publisher; the comment may have others.
        legs: Number of legs that publish to the comment in one run; when all have, older sections are removed.
        may_create: Whether a comment is created if there is none.
    """

    marker: str
    turn: Turn
    sections: tuple[CommentSection, ...]
    legs: int = 1
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


def seen(
    comments: Iterable[Comment], author: str, wanted: WantedComment, before: Iterable[CommentSection]
) -> tuple[CommentSection, ...]:
    """Return the latest section of each leg, from our comments and from those seen ``before``."""
    return tuple(_united(ours(comments, author, wanted.marker), before).values())


def decide(
    comments: Iterable[Comment],
    author: str,
    wanted: WantedComment,
    *,
    wrote: bool,
    remembered: Iterable[CommentSection] = (),
) -> Step:
    """Return the next step; it is called again with a fresh list after each step.

    Args:
        comments: All comments of the pull request.
        author: Our login.
        wanted: What the comment must say.
        wrote: Whether we wrote it before; then another publisher of the same run and leg may have the last word,
            because two of them would overwrite each other forever.
        remembered: Sections that were seen before, in case they have been overwritten.
    """
    mine = ours(comments, author, wanted.marker)
    if not mine:
        return Create(compose(wanted.marker, wanted.sections)) if wanted.may_create else Skip()
    newest = max(map(turn_of, mine))
    if newest.run_id > wanted.turn.run_id:
        return _yield_to(newest, mine)
    kept, *duplicates = mine
    there = _united(mine, remembered)
    newer = _newer_attempt(there, wanted)
    # The kept comment gets the text first, because a duplicate that is deleted may be the only one that has it.
    if newer:
        body = compose(wanted.marker, there.values())
        return _without(duplicates, Done(kept, newer)) if _holds(kept, there) else Update(kept.id, body)
    if wrote and _has_turns(kept, wanted) and _holds(kept, there):
        return _without(duplicates, Done(kept))
    body = compose(wanted.marker, _merged(there, wanted))
    return _without(duplicates, Done(kept)) if plain(kept.body) == plain(body) else Update(kept.id, body)


def _united(mine: Iterable[Comment], remembered: Iterable[CommentSection] = ()) -> dict[str, CommentSection]:
    """Return the latest section of each leg in all our comments."""
    there: dict[str, CommentSection] = {}
    for section in (*(section for comment in mine for section in sections_of(comment.body)), *remembered):
        if section.leg not in there or there[section.leg].turn < section.turn:
            there[section.leg] = section
    return there


def _newer_attempt(there: Mapping[str, CommentSection], wanted: WantedComment) -> Turn | None:
    """Return a later attempt of the same run that already wrote all our sections, if there is one."""
    turns = [there[section.leg].turn for section in wanted.sections if section.leg in there]
    is_later = len(turns) == len(wanted.sections) and all(turn > wanted.turn for turn in turns)
    return max(turns) if is_later else None


def _merged(there: Mapping[str, CommentSection], wanted: WantedComment) -> tuple[CommentSection, ...]:
    """Return the existing sections with ours in place; those of earlier runs are dropped when all legs are in."""
    merged = dict(there)
    for section in wanted.sections:
        before = there.get(section.leg)
        if before is None or before.turn <= section.turn:
            # An aligned section says more where people have read before that the leg was not.
            was_faulty = before is not None and before.text.startswith(FAULTY)
            merged[section.leg] = replace(section, text=section.again) if section.again and was_faulty else section
    of_run = [section for section in merged.values() if section.turn.run_id == wanted.turn.run_id]
    # Until all legs of this run are in, a section of an earlier run is the last that is known of its leg.
    return tuple(of_run if len(of_run) >= wanted.legs else merged.values())


def _has_turns(kept: Comment, wanted: WantedComment) -> bool:
    turns = {section.leg: section.turn for section in sections_of(kept.body)}
    return all(turns.get(section.leg) == section.turn for section in wanted.sections)


def _holds(kept: Comment, there: Mapping[str, CommentSection]) -> bool:
    """Whether the kept comment has the latest section of every leg."""
    turns = {section.leg: section.turn for section in sections_of(kept.body)}
    newest = max((turn.run_id for turn in turns.values()), default=0)
    # Sections of runs before the comment's newest may have been removed on purpose.
    return all(turns.get(leg) == part.turn for leg, part in there.items() if part.turn.run_id >= newest)


def _yield_to(newest: Turn, mine: Sequence[Comment]) -> Delete | Done:
    """Keep what a newer run wrote; its publisher moves it to the lowest id, so we only delete older duplicates."""
    kept, *duplicates = mine
    is_in_place = turn_of(kept) == newest
    stale = [
        comment
        for comment in duplicates
        if (_holds(kept, _united([kept, comment])) if is_in_place else turn_of(comment).run_id < newest.run_id)
    ]
    return _without(stale, Done(kept, newest))


def _without(surplus: Sequence[Comment], done: Done) -> Delete | Done:
    return Delete(tuple(comment.id for comment in surplus), done) if surplus else done


def _is_ours(comment: Comment, author: str, first_line: str) -> bool:
    # Logins on GitHub are not case-sensitive.
    if comment.user is None or comment.user.login.casefold() != author.casefold():
        return False
    return plain(comment.body).split("\n", 1)[0] == first_line
