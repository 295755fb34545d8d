"""Accusations that a person has read: rows of ``read.yml``, one for each cause."""

from __future__ import annotations

from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple

import yaml

READ = Path(__file__).with_name("read.yml")
#: Names that the program of a row may use.
PRELUDE = """
import torch
from torch import inf, nan, tensor
from torch._prims.context import TorchRefsMode
from torch.nn import functional as F

def by_refs(function):
    with TorchRefsMode(strict=False):
        return function()

def raised(function):
    try:
        function()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""

def last(image):
    return image.contiguous(memory_format=torch.channels_last)

torch.set_num_threads(1)
"""


class Row(NamedTuple):
    """The explanation of accusations with one cause.

    Attributes:
        what: Description of the accusation.
        verdict: ``a true finding`` or ``a false alarm``, and of which side.
        repro: A program in plain torch, after ``PRELUDE``, that ends with status 0 while the cause exists.
        where: Patterns by field of an accusation. Each field must match one of its patterns.
        dies: Whether the program shows the cause by dying of a signal.
    """

    what: str
    verdict: str
    repro: str
    where: dict[str, list[str]]
    dies: bool = False


def rows(path: Path = READ) -> tuple[Row, ...]:
    """Return the rows in their order."""
    found = yaml.safe_load(path.read_text()) if path.exists() else []
    return tuple(
        Row(**{**row, "where": {field: _listed(patterns) for field, patterns in row["where"].items()}}) for row in found
    )


def _listed(patterns: str | list[str]) -> list[str]:
    return [patterns] if isinstance(patterns, str) else patterns


def read(item: dict[str, Any], known: tuple[Row, ...]) -> Row | None:
    """Return the first row that explains an accusation; ``None`` if there is none."""
    return next((row for row in known if _is_of(item, row)), None)


def _is_of(item: dict[str, Any], row: Row) -> bool:
    return all(
        any(fnmatchcase(str(item[field]), pattern) for pattern in patterns) for field, patterns in row.where.items()
    )
