"""Functions of the recording ``torch``: a call inside a test is recorded, any other call goes to torch directly."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import torch

from ci_autotest.backends.operators.identity import public_name
from ci_autotest.errors import AuthorError
from ci_autotest.program.random_calls import is_random
from ci_autotest.program.targets import PACKING, is_function, is_own
from ci_autotest.record.context import CURRENT
from ci_autotest.record.unsupported_uses import instead

if TYPE_CHECKING:
    from collections.abc import Callable


class Function:
    """A function or module class of torch whose calls are recorded."""

    __slots__ = ("hints", "is_autograd", "is_module_class", "is_operator", "is_random", "name", "real", "target")

    def __init__(self, target: str, real: Callable[..., Any]) -> None:
        self.target = target
        self.real = real
        self.name = target.rpartition(".")[2].strip("_")
        self.is_random = is_random(target)
        self.is_module_class = isinstance(real, type) and issubclass(real, torch.nn.Module)
        self.is_operator = (is_function(target) or is_own(target)) and instead(target) is None
        self.is_autograd = target.startswith("torch.autograd.")
        self.hints: dict[str, object] | None = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Record the call inside a test; outside, call torch."""
        # A compiler that traces a user's operator does not know context variables.
        recorder = None if torch.compiler.is_compiling() else CURRENT.get()
        if recorder is None:
            return self.real(*args, **kwargs)
        return recorder.call_function(self, args, kwargs)

    def __instancecheck__(self, instance: object) -> bool:
        """Support ``isinstance(module, torch.nn.Linear)`` for recorded modules."""
        return isinstance(self.real, type) and isinstance(getattr(instance, "real", instance), self.real)

    def __mro_entries__(self, bases: tuple[object, ...]) -> tuple[Callable[..., Any], ...]:
        """Let users subclass a module of torch."""
        return (self.real,)

    def __repr__(self) -> str:
        return f"<recording {self.target}>"


class RegisteredOperator(Function):
    """An entry of torch.ops; its overloads are recorded too."""

    __slots__ = ()

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.real, name)
        return Function(f"{self.target}.{name}", found) if isinstance(found, torch._ops.OpOverload) else found


#: Functions that reach ``__torch_function__`` and for which ``public_name`` has no name.
_UNRESOLVED: Final[dict[Any, str]] = {
    torch.autograd.grad: "torch.autograd.grad",
    torch.autograd.backward: "torch.autograd.backward",
    **{getattr(torch._VF, target.rpartition(".")[2]): target for target in PACKING},
}


@lru_cache(maxsize=2048)
def plain_function(func: Callable[..., Any]) -> tuple[str, Function]:
    """Return the kind of a plain torch function (``getattr``, ``method`` or ``function``) and its recording version.

    Raises:
        AuthorError: The function has no public name.
    """
    name = _UNRESOLVED.get(func) or public_name(func)
    if name is None:
        kind, own = type(func), getattr(func, "__name__", "")
        label = f"{func.__module__}.{own}" if own else f"a {kind.__module__}.{kind.__qualname__} without a name"
        why = ", because it is no operator of torch. Call the operators that it consists of."
        if (other := instead(label)) is not None:
            why = f": {other}."
        message = f"{label} is not recorded{why}"
        raise AuthorError(message)
    name = name.replace("torch.functional.", "torch.")
    if name.endswith(".__get__"):
        function = Function(name.removesuffix(".__get__"), func)
        function.name = function.target.rpartition(".")[2]
        return "getattr", function
    function = Function(name, func)
    if not name.startswith("torch.Tensor."):
        return "function", function
    function.name = name.rpartition(".")[2]
    return "method", function
