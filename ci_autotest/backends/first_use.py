"""What torch does at the first use of some functions, done before: a server of workers does it once for all of them."""

from __future__ import annotations

import sys
from functools import cache
from importlib.abc import MetaPathFinder
from itertools import chain
from types import CellType, FunctionType
from typing import TYPE_CHECKING

import torch
from torch._decomp import decomposition_table
from torch.overrides import resolve_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType

_DYNAMO = "torch._dynamo"


def prepare() -> None:
    """Build torch's table of the names of its functions, and hide its operators in Python from Dynamo."""
    resolve_name(torch.add)
    hide_references()


@cache
def hide_references() -> None:
    """Mark torch's operators in Python as already hidden from Dynamo, which is imported to hide one at its first call.

    That takes two seconds in each process, for example for a second derivative of ``lp_pool2d``. As long as Dynamo is
    not imported, there is nothing to hide; when it is, the marks go. If torch renames the mark, Dynamo is imported.
    """
    if _DYNAMO in sys.modules:
        return
    hidden = [*_hidden()]
    for function in hidden:
        function.__dynamo_disable = function  # type: ignore[attr-defined]
    sys.meta_path.insert(0, _Unmark(hidden))


def _hidden() -> Iterator[FunctionType]:
    """Yield the functions that torch wraps to hide them, below each operator that it has in Python."""
    references = (torch._refs, torch._refs.nn.functional, torch._refs.special, torch._refs.linalg, torch._refs.fft)
    waiting: list[object] = [*decomposition_table.values(), *chain(*(vars(module).values() for module in references))]
    seen = set()
    while waiting:
        function = waiting.pop()
        if not isinstance(function, FunctionType) or function in seen:
            continue
        seen.add(function)
        held = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
        values = {name: cell.cell_contents for name, cell in held.items() if cell != CellType()}
        waiting += values.values()
        is_wrapper = function.__code__.co_filename == torch._compile.__file__
        if is_wrapper and isinstance(found := values.get("fn"), FunctionType):
            yield found


class _Unmark(MetaPathFinder):
    """Finds nothing, and removes the marks just before Dynamo is imported."""

    def __init__(self, hidden: list[FunctionType]) -> None:
        self._hidden = hidden

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return no spec: the usual finders import the module."""
        del path, target
        if fullname == _DYNAMO:
            sys.meta_path.remove(self)
            for function in self._hidden:
                vars(function).pop("__dynamo_disable", None)
        return None
