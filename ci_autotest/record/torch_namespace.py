"""The recording ``torch``: its names are wrapped when they are first used.

``DataParallel`` and ``DistributedDataParallel`` in a body are recorded as the module that they wrap: a test runs in one
process, where neither changes a result. The run says so.
"""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any, Final

import torch

from ci_autotest.errors import AuthorError
from ci_autotest.record.arrays import MAKERS, ArrayFunction
from ci_autotest.record.context import CURRENT
from ci_autotest.record.function import Function, RegisteredOperator
from ci_autotest.record.modules import RecordedModule
from ci_autotest.record.serialization import LoadFunction, SaveFunction

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ci_autotest.record.values import RecordedTensor

#: Names that are passed on unchanged, because they are modes, types or queries, or Python code that calls recorded
#: functions.
_PLAIN_NAMES: Final = frozenset({
    "torch.no_grad", "torch.enable_grad", "torch.set_grad_enabled", "torch.is_grad_enabled", "torch.device",
    "torch.Size", "torch.Tensor", "torch.is_tensor", "torch.finfo", "torch.iinfo", "torch.nn.Module",
    "torch.get_default_dtype", "torch.nn.utils.clip_grad_norm_", "torch.nn.utils.clip_grad_value_",
})  # fmt: skip
#: The wrappers by the names under which torch has them.
WRAPPERS: Final = frozenset({
    "torch.nn.DataParallel", "torch.nn.parallel.DataParallel", "torch.nn.parallel.DistributedDataParallel",
})  # fmt: skip
#: Prefix of each name in the state of a wrapped module.
_PREFIX: Final = "module."


class Namespace:
    """The recording counterpart of ``torch`` or of one of its modules."""

    def __init__(self, path: str, real: types.ModuleType) -> None:
        self._path = path
        self._real = real

    def __getattr__(self, name: str) -> Any:
        path = f"{self._path}.{name}"
        found = getattr(self._real, name)
        if isinstance(found, types.ModuleType):
            found = type(self)(path, found)
        elif _is_recorded(path, found):
            found = _kind(path, found)(path, found)
        setattr(self, name, found)
        return found

    def __dir__(self) -> list[str]:
        return dir(self._real)

    def __repr__(self) -> str:
        return f"<recording {self._path}>"


def _kind(path: str, found: object) -> Callable[[str, Any], Function]:
    if isinstance(found, torch._ops.OpOverloadPacket):
        return RegisteredOperator
    if path in {"torch.save", "torch.load"}:
        return SaveFunction if path == "torch.save" else LoadFunction
    if path in WRAPPERS:
        return WrapperClass
    return ArrayFunction if path in MAKERS else Function


#: Modules that describe the machine or the build, and the optimizers, which are Python code.
_PLAIN_SPACES: Final = ("torch.cuda.", "torch.backends.", "torch.version.", "torch.mps.", "torch.optim.")
#: Modes that a step cannot store; a call inside a test is refused.
_MODES: Final = frozenset({"torch.inference_mode"})


def _is_recorded(path: str, found: object) -> bool:
    if path in _MODES or path == "torch.nn.Parameter":
        return True
    if path in _PLAIN_NAMES or path.startswith(_PLAIN_SPACES) or not callable(found):
        return False
    return not isinstance(found, type) or issubclass(found, torch.nn.Module)


class WrapperClass(Function):
    """One of torch's wrappers of modules."""

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

    def state_dict(self) -> dict[str, RecordedTensor]:
        """Record a read of the state, with the names that the wrapper gives it."""
        return {f"{_PREFIX}{name}": value for name, value in super().state_dict().items()}

    def load_state_dict(self, state: Mapping[str, RecordedTensor], strict: bool = True) -> None:  # noqa: FBT001, FBT002 - torch's
        """Record the call."""
        super().load_state_dict({name.removeprefix(_PREFIX): value for name, value in state.items()}, strict)


class _Plain(torch.nn.Module):
    """A module of plain torch inside a wrapper; its calls are recorded."""

    def __init__(self, module: torch.nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.module(*args, **kwargs)
