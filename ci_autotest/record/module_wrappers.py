"""``DataParallel`` and ``DistributedDataParallel`` in a body are recorded as the module that they wrap.

A test runs in one process, where neither changes a result. The run says so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import torch

from ci_autotest.errors import AuthorError
from ci_autotest.record.context import CURRENT
from ci_autotest.record.function import Function
from ci_autotest.record.modules import RecordedModule

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ci_autotest.record.values import Value

#: The wrappers by the names under which torch has them.
WRAPPERS: Final = frozenset({
    "torch.nn.DataParallel", "torch.nn.parallel.DataParallel", "torch.nn.parallel.DistributedDataParallel",
})  # fmt: skip
#: What torch puts before each name of a wrapped module's state.
_PREFIX: Final = "module."


class WrapperClass(Function):
    """A wrapper of torch's."""

    __slots__ = ()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Return the wrapped module in a test; outside, call torch."""
        recorder = CURRENT.get()
        if recorder is None:
            return self.real(*args, **kwargs)
        module = kwargs.get("module", args[0] if args else None)
        recorder.notes.remarks.add(self.real.__name__)
        if isinstance(module, RecordedModule):
            return _Wrapped.of(module)
        if isinstance(module, torch.nn.Module):
            return _Plain(module)
        message = f"{self.target} wraps a module, and got a {type(module).__name__}."
        raise AuthorError(message)


class _Wrapped(RecordedModule):
    """A recorded module that is also its own attribute ``module``, as inside a wrapper."""

    __slots__ = ()

    @classmethod
    def of(cls, module: RecordedModule) -> _Wrapped:
        return cls(module.real, module.ref, module._steps, module.target, module._owner)

    @property
    def module(self) -> RecordedModule:
        """The module that was wrapped."""
        return RecordedModule(self.real, self.ref, self._steps, self.target, self._owner)

    def state_dict(self) -> dict[str, Value]:
        """Record a read of the state, whose names are those of the wrapper."""
        return {f"{_PREFIX}{name}": value for name, value in super().state_dict().items()}

    def load_state_dict(self, state: Mapping[str, Value], strict: bool = True) -> None:  # noqa: FBT001, FBT002 - torch's
        """Record the call."""
        super().load_state_dict({name.removeprefix(_PREFIX): value for name, value in state.items()}, strict)


class _Plain(torch.nn.Module):
    """A module of plain torch inside a wrapper; its calls are recorded."""

    def __init__(self, module: torch.nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.module(*args, **kwargs)
