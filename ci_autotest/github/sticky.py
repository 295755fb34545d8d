"""Own which comments are ours, and what is to be done about them: pure decisions over the comments there are.

Ours is a comment of our own author whose first line is the marker of the check. The comment with the
lowest id is kept; every publisher decides so, hence publishers that meet end with one comment. A
section says which run wrote it, so that a run that started earlier and ends later overwrites nothing
that is newer.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from ci_autotest.github.body import FAULTY, Section, Turn, compose, plain, sections_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


class User(msgspec.Struct, frozen=True):
    """Name an account; the login of an app ends in ``[bot]``."""

    login: str


class Comment(msgspec.Struct, frozen=True):
    """Hold what is needed of a comment; a deleted account leaves no ``user``."""

    id: int
    html_url: str
    user: User | None
    body: str | None = None


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """Hold what the comment must say when a publisher is done.

    Attributes:
        marker: Its first line.
        turn: The run that publishes.
        sections: Of the publisher; the comment may have those of others.
        legs: How many legs publish to the comment in one run: when all have, what is older goes.
        may_create: Whether a comment is made where there is none.
    """

    marker: str
    turn: Turn
    sections: tuple[Section, ...]
    legs: int = 1
    may_create: bool = True


@dataclass(frozen=True)
class Create:
    """Ask for a new comment."""

    body: str


@dataclass(frozen=True)
class Update:
    """Ask for the comment ``id`` to be overwritten."""

    id: int
    body: str


@dataclass(frozen=True)
class Skip:
    """Say that there is no comment and none is wanted."""


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


Step: TypeAlias = Create | Update | Skip | Delete | Done


def ours(comments: Iterable[Comment], author: str, first_line: str) -> list[Comment]:
    """Return the comments that are ``author``'s and have the marker, the lowest id first."""
    mine = [comment for comment in comments if _is_ours(comment, author, first_line)]
    return sorted(mine, key=lambda comment: comment.id)


def turn_of(comment: Comment) -> Turn:
    """Return the latest run that wrote a comment; the earliest there can be when the comment does not say it."""
    return max((section.turn for section in sections_of(comment.body)), default=Turn(0, 0))


def seen(comments: Iterable[Comment], author: str, wanted: Wanted, before: Iterable[Section]) -> tuple[Section, ...]:
    """Return the latest section of each leg, of our comments and of what was seen ``before``."""
    return tuple(_united(ours(comments, author, wanted.marker), before).values())


def decide(
    comments: Iterable[Comment], author: str, wanted: Wanted, *, wrote: bool, remembered: Iterable[Section] = ()
) -> Step:
    """Return the next thing to do; what it needs is in the list, so it is asked again after each.

    Args:
        comments: All comments of the pull request.
        author: Login under which we write.
        wanted: What the comment must say.
        wrote: Whether that was written before; then another publisher of the same run and leg may
            have the last word, or two of them would overwrite each other for ever.
        remembered: Sections that were seen before, in case they were overwritten since.
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
    # The text is brought to the comment that stays before a duplicate that may hold it goes.
    if newer:
        body = compose(wanted.marker, there.values())
        return _without(duplicates, Done(kept, newer)) if _holds(kept, there) else Update(kept.id, body)
    if wrote and _has_turns(kept, wanted) and _holds(kept, there):
        return _without(duplicates, Done(kept))
    body = compose(wanted.marker, _merged(there, wanted))
    return _without(duplicates, Done(kept)) if plain(kept.body) == plain(body) else Update(kept.id, body)


def _united(mine: Iterable[Comment], remembered: Iterable[Section] = ()) -> dict[str, Section]:
    """Return the sections of all our comments: of one leg the latest, in the comment with the lowest id."""
    there: dict[str, Section] = {}
    for section in (*(section for comment in mine for section in sections_of(comment.body)), *remembered):
        if section.leg not in there or there[section.leg].turn < section.turn:
            there[section.leg] = section
    return there


def _newer_attempt(there: Mapping[str, Section], wanted: Wanted) -> Turn | None:
    """Return the later attempt of the same run that has our sections already, if one has them all."""
    turns = [there[section.leg].turn for section in wanted.sections if section.leg in there]
    is_later = len(turns) == len(wanted.sections) and all(turn > wanted.turn for turn in turns)
    return max(turns) if is_later else None


def _merged(there: Mapping[str, Section], wanted: Wanted) -> tuple[Section, ...]:
    """Return the sections that there are with ours in their places; those of earlier runs go when all legs are in."""
    merged = dict(there)
    for section in wanted.sections:
        before = there.get(section.leg)
        if before is None or before.turn <= section.turn:
            was_faulty = before is not None and before.text.startswith(FAULTY)
            merged[section.leg] = replace(section, text=section.again) if section.again and was_faulty else section
    of_run = [section for section in merged.values() if section.turn.run_id == wanted.turn.run_id]
    return tuple(of_run if len(of_run) >= wanted.legs else merged.values())


def _has_turns(kept: Comment, wanted: Wanted) -> bool:
    turns = {section.leg: section.turn for section in sections_of(kept.body)}
    return all(turns.get(section.leg) == section.turn for section in wanted.sections)


def _holds(kept: Comment, there: Mapping[str, Section]) -> bool:
    """Whether the comment that stays has all that is the latest of its leg."""
    turns = {section.leg: section.turn for section in sections_of(kept.body)}
    newest = max((turn.run_id for turn in turns.values()), default=0)
    return all(turns.get(leg) == part.turn for leg, part in there.items() if part.turn.run_id >= newest)


def _yield_to(newest: Turn, mine: Sequence[Comment]) -> Delete | Done:
    """Leave what a newer run wrote; its publisher moves it to the lowest id, so only older duplicates may go."""
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
    if comment.user is None or comment.user.login.casefold() != author.casefold():
        return False
    return plain(comment.body).split("\n", 1)[0] == first_line
