"""Names of another framework that torch does not have: a file that has them imports, a test that uses them says so."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from ci_autotest.errors import UnsupportedReason
from ci_autotest.record.context import CURRENT
from ci_autotest.record.skips import Unavailable, unsupported

if TYPE_CHECKING:
    from collections.abc import Iterator


class MissingName(Unavailable):
    """A name that torch lacks. Used in a test, it makes the case unsupported; at import, it stands for itself.

    Args:
        path: The dotted name, as in the file.
        reason: Why a test that uses it is unsupported.
        lack: The same in words, after "it uses ``path``, ".
    """

    def __init__(
        self,
        path: str,
        reason: UnsupportedReason = UnsupportedReason.OTHER_API,
        lack: str = "which torch does not have",
    ) -> None:
        self._path, self._reason, self._lack = path, reason, lack

    def __getattr__(self, name: str) -> MissingName:
        if name.startswith("__"):
            raise AttributeError(name)
        return MissingName(f"{self._path}.{name}", self._reason, self._lack)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """End the case of a test; outside of a test return what is decorated, else another missing name."""
        self.refuse()
        is_decorated = len(args) == 1 and not kwargs and (inspect.isfunction(args[0]) or inspect.isclass(args[0]))
        return args[0] if is_decorated else self

    def __mro_entries__(self, bases: tuple[object, ...]) -> tuple[type, ...]:
        """Let a file derive classes; making an object of one in a test makes the case unsupported."""

        def refuse(*_: object, **__: object) -> None:
            self.refuse()

        return (type(self._path.rpartition(".")[2], (), {"__init__": refuse}),)

    def __iter__(self) -> Iterator[Any]:
        self.refuse()
        return iter(())

    def __getitem__(self, key: object) -> MissingName:
        self.refuse()
        return self

    def _operand(self, *_others: object) -> MissingName:
        self.refuse()
        return self

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = _operand
    __neg__ = __or__ = __ror__ = __and__ = __rand__ = _operand

    def __len__(self) -> int:
        return len(list(iter(self)))

    def __bool__(self) -> bool:
        self.refuse()
        return True

    def __index__(self) -> int:
        self.refuse()
        return 0

    def __instancecheck__(self, instance: object) -> bool:
        self.refuse()
        return False

    def __eq__(self, other: object) -> bool:
        self.refuse()
        return self is other

    def __lt__(self, other: object) -> bool:
        self.refuse()
        return False

    __le__ = __gt__ = __ge__ = __lt__

    def __hash__(self) -> int:
        self.refuse()
        return id(self)

    def __repr__(self) -> str:
        return f"<{self._path}, {self._lack}>"

    def refuse(self) -> None:
        """End the case of a test; outside of a test do nothing."""
        if CURRENT.get() is None:
            return
        if self._reason is UnsupportedReason.RANKS:
            unsupported(self._reason, f"{self._path} is what one rank has: a case is recorded with whole tensors")
        unsupported(self._reason, f"it uses {self._path}, {self._lack}")
