"""The import hook: while a test file is imported, modules of another harness are answered by ours.

The rule of this module: an answer never outlives the import of the file. A candidate may be the real framework, in this
process, and must not get ours.
"""

from __future__ import annotations

import importlib.util
import sys
from contextlib import contextmanager
from importlib.abc import Loader, MetaPathFinder
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType


class _Answers(MetaPathFinder, Loader):
    """Finds and makes the answered modules.

    Args:
        answer: Returns the module of a dotted name; ``None`` if the name is not answered.
    """

    def __init__(self, answer: Callable[[str], ModuleType | None]) -> None:
        self._answer = answer

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of an answered module."""
        del path, target
        if self._answer(fullname) is None:
            return None
        return importlib.util.spec_from_loader(fullname, self, is_package=True)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """Return the answer."""
        return self._answer(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Run nothing: an answer is complete."""


@contextmanager
def answering(answer: Callable[[str], ModuleType | None]) -> Iterator[None]:
    """Answer imports, and forget the answers and restore the real modules afterwards.

    Args:
        answer: Returns the module of a dotted name, the same one each time; ``None`` if the name is not answered.
    """
    hidden = {name: sys.modules.pop(name) for name in list(sys.modules) if answer(name) is not None}
    finder = _Answers(answer)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        for name in [name for name in sys.modules if answer(name) is not None]:
            del sys.modules[name]
        sys.modules.update(hidden)
