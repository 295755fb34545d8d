"""Rows of large tables, of which a run walks a part; ``make matrix`` walks the others."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def thinned(rows: Sequence[Any], step: int) -> list[Any]:
    """Return one row in some as it is, and the others marked for ``make matrix``."""
    return [row if at % step == 0 else pytest.param(row, marks=pytest.mark.matrix) for at, row in enumerate(rows)]


def crossed(left: Mapping[str, Any], right: Mapping[str, Any]) -> list[Any]:
    """Return parameters for each entry of one table with each of another; ``make matrix`` runs those that are left out.

    Args:
        left: The first parameter by its id.
        right: The second parameter by its id.
    """
    walked = {(index % len(left), index % len(right)) for index in range(max(len(left), len(right)))}
    return [
        pytest.param(first, second, id=f"{one}-{other}", marks=() if (at, to) in walked else pytest.mark.matrix)
        for (at, (one, first)), (to, (other, second)) in product(enumerate(left.items()), enumerate(right.items()))
    ]
