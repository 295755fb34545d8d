"""Fit blocks into a size limit: the most important first, and no block is cut.

A block has several forms, from the fullest to the shortest, each of a rank (0 is what must be
seen). Forms are tried in the order of rank; one that fits takes the place of the same block's form
of an earlier rank. What found no room is counted, and the page says so.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from ci_autotest.report.markdown_text import size

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence


@dataclass(frozen=True, slots=True, kw_only=True)
class Region:
    """Name a part of the page.

    Args:
        name: What forms refer to.
        lead: Text before the region's blocks, where there are any.
        tail: Text after them.
        more: Text that tells how many blocks have no room, with ``{count}``.
        beyond: Blocks that were not even made, for there are too many; counted as having no room.
    """

    name: str
    lead: str = ""
    tail: str = ""
    more: str = ""
    beyond: int = 0


@dataclass(frozen=True, slots=True)
class Form:
    """Be one way to show a block: made only when its turn comes.

    Args:
        rank: When it is tried; 0 first.
        region: Where it is shown.
        make: Returns its text with its line ends.
    """

    rank: int
    region: str
    make: Callable[[], str]


@dataclass(frozen=True, slots=True)
class Block:
    """Hold a block's forms.

    Args:
        home: The region that counts the block where it has no room.
        forms: Of one rank the first that fits is taken, so the fullest stands first.
    """

    home: str
    forms: tuple[Form, ...]


@dataclass(frozen=True, slots=True)
class Shown:
    """Hold the form that was taken, with its text and its size."""

    form: Form
    text: str
    size: int


def fixed(region: str, text: str, rank: int = 0) -> Block:
    """Return a block of one form."""
    return Block(region, (Form(rank, region, partial(str, text)),))


def page(regions: Sequence[Region], blocks: Sequence[Block], limit: int) -> str:
    """Return the regions in order with as much of the blocks as ``limit`` holds.

    Args:
        regions: In the order in which they are shown; blocks of one region keep their order.
        blocks: In the order of importance within a rank.
        limit: The larger of UTF-8 bytes and UTF-16 code units, 4,096 at least.
    """
    shown = fill(blocks, limit - sum(_reserve(region, blocks) for region in regions))
    return "".join(_region_text(region, blocks, shown) for region in regions)


def fill(blocks: Sequence[Block], room: int) -> list[Shown | None]:
    """Return the form taken of each block, ``None`` where none fits into ``room``."""
    taken: list[Shown | None] = [None] * len(blocks)
    for index, form in _in_turn(blocks):
        before = taken[index]
        if before is not None and before.form.rank == form.rank:
            continue
        text = form.make()
        freed = before.size if before else 0
        if size(text) - freed <= room:
            taken[index] = Shown(form, text, size(text))
            room -= size(text) - freed
    return taken


def _in_turn(blocks: Sequence[Block]) -> Iterator[tuple[int, Form]]:
    forms = [(form.rank, index, form) for index, block in enumerate(blocks) for form in block.forms]
    return ((index, form) for _, index, form in sorted(forms, key=lambda item: item[:2]))


def _reserve(region: Region, blocks: Sequence[Block]) -> int:
    """Return the size of what a region may need beside its blocks."""
    if not region.beyond and not any(form.region == region.name for block in blocks for form in block.forms):
        return 0
    return size(region.lead) + size(region.tail) + size(region.more.format(count="1,000,000,000"))


def _region_text(region: Region, blocks: Sequence[Block], shown: Sequence[Shown | None]) -> str:
    texts = [item.text for item in shown if item is not None and item.form.region == region.name]
    pairs = zip(blocks, shown, strict=True)
    hidden = region.beyond + sum(block.home == region.name and item is None for block, item in pairs)
    body = f"{region.lead}{''.join(texts)}{region.tail}" if texts else ""
    return body + (region.more.format(count=f"{hidden:,}") if hidden else "")
