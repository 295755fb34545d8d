"""Fit blocks into a size limit: the most important first, and no block is cut.

A block has several forms, from the fullest to the shortest, each with a rank (0 for what a reader must see). Forms are
tried by rank; one that fits replaces the same block's form of an earlier rank. Blocks that do not fit are counted, and
the page says how many.
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
    """A part of the page.

    Args:
        name: Name that forms refer to.
        lead: Text before the region's blocks, if it has any.
        tail: Text after them.
        more: Text for the number of blocks that do not fit, with ``{count}``.
        beyond: Blocks that were not even made because there are too many; counted as not fitting.
    """

    name: str
    lead: str = ""
    tail: str = ""
    more: str = ""
    beyond: int = 0


@dataclass(frozen=True, slots=True)
class BlockForm:
    """One way to show a block; its text is made only when it is tried.

    Args:
        rank: Order in which forms are tried; 0 first.
        region: Region that shows the form.
        make: Returns its text with line ends.
    """

    rank: int
    region: str
    make: Callable[[], str]


@dataclass(frozen=True, slots=True)
class Block:
    """Something to show, in several forms.

    Args:
        home: Region that counts the block if no form fits.
        forms: The first of a rank that fits is taken, so the fullest comes first.
    """

    home: str
    forms: tuple[BlockForm, ...]


@dataclass(frozen=True, slots=True)
class ShownForm:
    """The form that was taken, with its text and its size."""

    form: BlockForm
    text: str
    size: int


def fixed(region: str, text: str, rank: int = 0) -> Block:
    """Return a block with a single form."""
    return Block(region, (BlockForm(rank, region, partial(str, text)),))


def page(regions: Sequence[Region], blocks: Sequence[Block], limit: int) -> str:
    """Return the regions in order, with as many blocks as fit into ``limit``.

    Args:
        regions: In the order of the page; blocks of one region keep their order.
        blocks: In the order of importance within a rank.
        limit: In UTF-8 bytes and in UTF-16 code units, at least 4,096.
    """
    shown = fill(blocks, limit - sum(_reserve(region, blocks) for region in regions))
    return "".join(_region_text(region, blocks, shown) for region in regions)


def fill(blocks: Sequence[Block], room: int) -> list[ShownForm | None]:
    """Return the form taken of each block, ``None`` if none fits into ``room``."""
    taken: list[ShownForm | None] = [None] * len(blocks)
    for index, form in _in_turn(blocks):
        before = taken[index]
        # The forms of a rank come fullest first, so a later one of the same rank would only shorten the block.
        if before is not None and before.form.rank == form.rank:
            continue
        text = form.make()
        # A fuller form takes the place of the earlier one, whose bytes are then free again.
        freed = before.size if before else 0
        if size(text) - freed <= room:
            taken[index] = ShownForm(form, text, size(text))
            room -= size(text) - freed
    return taken


def _in_turn(blocks: Sequence[Block]) -> Iterator[tuple[int, BlockForm]]:
    forms = [(form.rank, index, form) for index, block in enumerate(blocks) for form in block.forms]
    # Forms cannot be compared, so the key leaves them out; a stable sort keeps the order of a block's own forms.
    return ((index, form) for _, index, form in sorted(forms, key=lambda item: item[:2]))


def _reserve(region: Region, blocks: Sequence[Block]) -> int:
    """Return the size that a region may need besides its blocks."""
    if not region.beyond and not any(form.region == region.name for block in blocks for form in block.forms):
        return 0
    # How many blocks are hidden is known only after the others are chosen, so room for a long number is kept free.
    return size(region.lead) + size(region.tail) + size(region.more.format(count="1,000,000,000"))


def _region_text(region: Region, blocks: Sequence[Block], shown: Sequence[ShownForm | None]) -> str:
    texts = [item.text for item in shown if item is not None and item.form.region == region.name]
    pairs = zip(blocks, shown, strict=True)
    hidden = region.beyond + sum(block.home == region.name and item is None for block, item in pairs)
    body = f"{region.lead}{''.join(texts)}{region.tail}" if texts else ""
    return body + (region.more.format(count=f"{hidden:,}") if hidden else "")
