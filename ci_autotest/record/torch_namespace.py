"""The recording ``torch``: every name of it, looked up on first use."""

from __future__ import annotations

import types
from typing import Any, Final

import torch

from ci_autotest.record.arrays import MAKERS, ArrayFunction
from ci_autotest.record.function import Function

#: What keeps its own meaning inside a test: modes and types, not operators.
_PLAIN_NAMES: Final = frozenset({
    "torch.no_grad", "torch.enable_grad", "torch.set_grad_enabled", "torch.is_grad_enabled", "torch.device",
    "torch.Size", "torch.Tensor", "torch.is_tensor", "torch.finfo", "torch.iinfo", "torch.nn.Module",
    "torch.get_default_dtype",
})  # fmt: skip


class Namespace:
    """Stand for ``torch`` or a module below it."""

    def __init__(self, path: str, real: types.ModuleType) -> None:
        self._path = path
        self._real = real

    def __getattr__(self, name: str) -> Any:
        path = f"{self._path}.{name}"
        found = getattr(self._real, name)
        if isinstance(found, types.ModuleType):
            found = Namespace(path, found)
        elif _is_recorded(path, found):
            found = (ArrayFunction if path in MAKERS else Function)(path, found)
        setattr(self, name, found)
        return found

    def __dir__(self) -> list[str]:
        return dir(self._real)

    def __repr__(self) -> str:
        return f"<recording {self._path}>"


#: What says of a machine what it has.
_PLAIN_SPACES: Final = ("torch.cuda.", "torch.backends.", "torch.version.", "torch.mps.")
#: Modes that a step does not know: called inside a test they are refused.
_MODES: Final = frozenset({"torch.inference_mode"})


def _is_recorded(path: str, found: object) -> bool:
    if path in _MODES or path == "torch.nn.Parameter" or path.startswith("torch.optim."):
        return True
    if path in _PLAIN_NAMES or path.startswith(_PLAIN_SPACES) or not callable(found):
        return False
    return not isinstance(found, type) or issubclass(found, torch.nn.Module)
