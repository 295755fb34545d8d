"""The recording ``torch``: every name of it, where a call made inside a test is recorded and any other is torch's own."""

from __future__ import annotations

import types
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import torch
from torch.overrides import resolve_name

from ci_autotest.backends.operators import is_random
from ci_autotest.errors import AuthorError
from ci_autotest.record.recorder import CURRENT
from ci_autotest.record.values import Value

if TYPE_CHECKING:
    from collections.abc import Callable


class Function:
    """Record calls of one function or the construction of one module class."""

    __slots__ = ("hints", "is_module_class", "is_random", "name", "real", "target")

    def __init__(self, target: str, real: Callable[..., Any]) -> None:
        """Hold the dotted path as spelled and what it names."""
        self.target = target
        self.real = real
        self.name = target.rpartition(".")[2].strip("_")
        self.is_random = is_random(target)
        self.is_module_class = isinstance(real, type) and issubclass(real, torch.nn.Module)
        self.hints: dict[str, object] | None = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - as torch's own
        """Record the call inside a test; outside, call torch."""
        recorder = CURRENT.get()
        if recorder is None:
            return self.real(*args, **kwargs)
        return recorder.call_function(self, args, kwargs)

    def __repr__(self) -> str:
        return f"<recording {self.target}>"


class Namespace:
    """Stand for ``torch`` or a module below it; names are looked up when they are first used."""

    def __init__(self, path: str, real: types.ModuleType) -> None:
        """Hold the dotted path and the module."""
        self._path = path
        self._real = real

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever torch has there
        path = f"{self._path}.{name}"
        found = getattr(self._real, name)
        if isinstance(found, types.ModuleType):
            found = Namespace(path, found)
        elif _is_recorded(path, found):
            found = Function(path, found)
        setattr(self, name, found)
        return found

    def __repr__(self) -> str:
        return f"<recording {self._path}>"


#: What keeps its own meaning inside a test: modes and types, not operators.
_PLAIN_NAMES = frozenset({
    "torch.no_grad", "torch.enable_grad", "torch.set_grad_enabled", "torch.is_grad_enabled", "torch.device",
    "torch.Size", "torch.Tensor", "torch.is_tensor", "torch.finfo", "torch.iinfo", "torch.nn.Module",
    "torch.nn.Parameter", "torch.get_default_dtype",
})  # fmt: skip


def _is_recorded(path: str, found: object) -> bool:
    if path in _PLAIN_NAMES or not callable(found):
        return False
    return not isinstance(found, type) or issubclass(found, torch.nn.Module)


def record_plain(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:  # noqa: ANN401
    """Record a call that reached a value through ``__torch_function__``."""
    recorder = CURRENT.get()
    if recorder is None:
        message = "a recorded tensor was used after its test had ended. Use it inside the test's body only."
        raise AuthorError(message)
    op, function = _plain(func)
    if op == "getattr":
        return getattr(args[0], function.name)
    if op == "method" and isinstance(args[0], Value):
        return recorder.call_method(args[0], function.name, args[1:], kwargs)
    return recorder.call_function(function, args, kwargs)


@lru_cache(maxsize=2048)
def _plain(func: Callable[..., Any]) -> tuple[str, Function]:
    name = resolve_name(func)
    if name is None:
        message = f"{getattr(func, '__name__', func)} has no public name in torch and cannot be recorded."
        raise AuthorError(message)
    if name.endswith(".__get__"):
        return "getattr", Function(name.removesuffix(".__get__"), func)
    if name.startswith("torch.Tensor."):
        function = Function(name, func)
        function.name = name.rpartition(".")[2]
        return "method", function
    return "function", Function(name, func)
