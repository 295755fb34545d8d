"""Generators of OneFlow's AutoTest that a file makes or uses by itself: derived classes, and values at import."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ci_autotest.record.context import CURRENT
from ci_autotest.record.draw.draws import Drawer
from ci_autotest.record.draw.generators import Generator
from ci_autotest.record.draw.streams import Streams
from ci_autotest.record.values import RecordedTensor

if TYPE_CHECKING:
    from collections.abc import Iterable


class BaseGenerator(Generator):
    """``generator``, from which a file derives its own: its value is what ``_calc_value`` returns.

    Args:
        children: Generators that the value is made of.
    """

    def __init__(self, children: Iterable[object] = ()) -> None:
        self.children = list(children)

    def _calc_value(self) -> object:
        raise NotImplementedError

    def draw(self, drawer: Drawer, wanted: object, site: str) -> object:  # noqa: ARG002 - the file's own class draws
        """Return the value that the file's class computes."""
        return self._calc_value()

    def parts(self) -> tuple[object, ...]:
        """Return the generators that the value is made of."""
        return tuple(self.children)


class GeneratorValues:
    """What ``.value()`` gives in a file; outside of a test no case draws it, so it is the same in every run."""

    def __init__(self) -> None:
        self._drawer: Drawer | None = None

    def value(self, owner: Any) -> Any:
        """Return ``owner.value()``; a recorded tensor is its own value, because earlier versions drew tensors too."""
        if isinstance(owner, RecordedTensor):
            return owner
        if not isinstance(owner, Generator) or CURRENT.get() is not None:
            return owner.value()
        if self._drawer is None:
            self._drawer = Drawer(Streams(), (0, 0), {})
        return owner.value(self._drawer)
