"""The recording ``torch``: its names are wrapped when they are first used."""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any, Final

import torch

from ci_autotest.record.arrays import MAKERS, ArrayFunction
from ci_autotest.record.function import Function, RegisteredOperator
from ci_autotest.record.module_wrappers import WRAPPERS, WrapperClass
from ci_autotest.record.serialization import LoadFunction, SaveFunction

if TYPE_CHECKING:
    from collections.abc import Callable

#: Names that are passed on unchanged, because they are modes, types or queries instead of operators.
_PLAIN_NAMES: Final = frozenset({
    "torch.no_grad", "torch.enable_grad", "torch.set_grad_enabled", "torch.is_grad_enabled", "torch.device",
    "torch.Size", "torch.Tensor", "torch.is_tensor", "torch.finfo", "torch.iinfo", "torch.nn.Module",
    "torch.get_default_dtype",
})  # fmt: skip


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


#: Modules that describe the machine or the build.
_PLAIN_SPACES: Final = ("torch.cuda.", "torch.backends.", "torch.version.", "torch.mps.")
#: Modes that a step cannot store; a call inside a test is refused.
_MODES: Final = frozenset({"torch.inference_mode"})


def _is_recorded(path: str, found: object) -> bool:
    if path in _MODES or path == "torch.nn.Parameter" or path.startswith("torch.optim."):
        return True
    if path in _PLAIN_NAMES or path.startswith(_PLAIN_SPACES) or not callable(found):
        return False
    return not isinstance(found, type) or issubclass(found, torch.nn.Module)
