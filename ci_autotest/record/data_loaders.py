"""Data loaders in a body: their batches become inputs of both sides, and the report says that nothing tested them."""

from __future__ import annotations

from functools import wraps
from typing import Any, Final

from torch.utils.data import DataLoader

from ci_autotest.record.context import CURRENT

_ITERATE: Final = DataLoader.__iter__


@wraps(_ITERATE)
def _iterate(loader: DataLoader[Any]) -> Any:
    recorder = CURRENT.get()
    if recorder is not None:
        recorder.notes.remarks.add("DataLoader")
    return _ITERATE(loader)


def notice_loaders() -> None:
    """Notice from now on which bodies iterate a data loader: torch has no hook for it."""
    if DataLoader.__iter__ is _ITERATE:
        DataLoader.__iter__ = _iterate  # type: ignore[method-assign]
