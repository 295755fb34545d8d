"""Recording of the user's operators: a call inside a test is one step, whatever the function calls.

``@operator`` declares one. A row of ``replace`` declares the plain function or class of modules that it names, and
replaces the name in every module that has imported it.
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any, TypeVar, overload

import torch

from ci_autotest.backends.operators.numpy_functions import NumpyFunction
from ci_autotest.backends.operators.user_operators import UserOperator, path_of
from ci_autotest.errors import AuthorError, ConfigError, import_failure
from ci_autotest.program.targets import OPS, is_own
from ci_autotest.record.context import CURRENT, outside
from ci_autotest.record.function import Function

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ci_autotest.backends.operators.numpy_functions import Gradient
    from ci_autotest.kinds import AnyCandidate

    T = TypeVar("T")


class RecordedOperator(UserOperator):
    """A user's function whose calls are recorded."""

    def __init__(self, target: str, body: Callable[..., Any], ties: int | None = None) -> None:
        super().__init__(target, body, ties)
        self._function = Function(target, outside(body))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Record the call inside a test; outside, call the function."""
        if torch.compiler.is_compiling():
            return self.body(*args, **kwargs)
        recorder = CURRENT.get()
        if recorder is None:
            return super().__call__(*args, **kwargs)
        # A replay finds an operator by its name, so it would run the later definition.
        latest = getattr(sys.modules.get(self.__module__), self.target.rpartition(".")[2], self)
        if isinstance(latest, UserOperator) and latest is not self:
            message = f"{self.target} was defined again after this one was taken. Give one of the two another name."
            raise AuthorError(message)
        return recorder.call_function(self._function, args, kwargs)


class UserClass(Function):
    """A user's class of modules; each of its objects is one module of the program.

    Args:
        target: Its dotted path.
        user_class: The class as written.
    """

    __slots__ = ("user_class",)

    def __init__(self, target: str, user_class: type[torch.nn.Module]) -> None:
        super().__init__(target, outside(user_class))
        self.user_class = user_class
        self.is_module_class = True

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Record the construction inside a test; outside, construct the module."""
        recorder = CURRENT.get()
        if recorder is None:
            return self.user_class(*args, **kwargs)
        return recorder.call_function(self, args, kwargs)

    def __instancecheck__(self, instance: object) -> bool:
        # Inside a test the instance is a recorded module, which holds the real one.
        return isinstance(getattr(instance, "real", instance), self.user_class)

    def __mro_entries__(self, bases: tuple[object, ...]) -> tuple[type, ...]:
        # `class Own(Replaced)` must derive from the class as written, because an object cannot be a base class.
        return (self.user_class,)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.user_class, name)


@overload
def operator(function: T) -> T: ...
@overload
def operator(*, reference: str = "torch", gradient: Gradient = None, ties: int | None = None) -> Callable[[T], T]: ...
def operator(
    function: Any = None, *, reference: str = "torch", gradient: Gradient = None, ties: int | None = None
) -> Any:
    """Declare a function as an operator: its body is the reference, and a call of it is one step of a test.

    Args:
        function: The function, if the decorator is written without parentheses.
        reference: Library of the function's arguments and results: ``torch`` for tensors, ``numpy`` for arrays.
        gradient: For a function of arrays: ``gradient(cotangent, *args, **kwargs)`` returns an array for each tensor
            argument; ``"differences"`` for central differences in float64; ``None`` to compare no gradient.
        ties: The output, counted from 0, that holds indices into the last dimension of the first argument. Any of
            several equal elements may be picked, so the picked elements are compared instead of the indices.

    Raises:
        AuthorError: It is no function of a module, so no program can name it, or an option has no such value.
    """
    _refuse_wrong(reference, gradient, ties)
    if function is None:
        return lambda function: _operator(function, reference, gradient, ties)
    return _operator(function, reference, gradient, ties)


def _refuse_wrong(reference: str, gradient: Gradient, ties: object) -> None:
    if ties is not None and (isinstance(ties, bool) or not isinstance(ties, int) or ties < 0):
        message = f"@operator(ties={ties!r}): write the number of the output that holds indices, counted from 0."
        raise AuthorError(message)
    if reference not in {"torch", "numpy"}:
        message = f"@operator(reference={reference!r}): write 'torch' or 'numpy', which the function takes and returns."
        raise AuthorError(message)
    if gradient is not None and (reference == "torch" or not (callable(gradient) or gradient == "differences")):
        message = (
            f"@operator(gradient={gradient!r}): with reference='numpy', give a function or 'differences'. A function "
            "of tensors has the gradient of autograd."
        )
        raise AuthorError(message)


def _operator(function: Any, reference: str, gradient: Gradient, ties: int | None) -> RecordedOperator:
    target = path_of(function) if callable(function) and hasattr(function, "__qualname__") else ""
    if not target or not is_own(target) or isinstance(function, type):
        message = (
            f"@operator is on {getattr(function, '__qualname__', repr(function)[:80])}, which is no function of a "
            "module. Define the function at the top level of a module, and write @operator above it."
        )
        raise AuthorError(message)
    body = function if reference == "torch" else NumpyFunction(function, gradient, is_standard=True)
    return RecordedOperator(target, body, ties)


def declare_operators(candidates: Iterable[AnyCandidate]) -> None:
    """Declare the user's functions and classes that the rows of ``replace`` name as operators.

    Raises:
        ConfigError: There is no such function or class.
    """
    for candidate in candidates:
        for path in candidate.replaced:
            if is_own(path) and not path.startswith(OPS):
                _declare(path, f"candidate '{candidate.name}': replace: operator '{path}'")


def _declare(path: str, where: str) -> None:
    module_name, _, name = path.rpartition(".")
    try:
        module = importlib.import_module(module_name)
    except Exception as error:
        message = f"{where} is none of torch's, and cannot be imported: {import_failure(error, module_name)}"
        raise ConfigError(message) from error
    found = vars(module).get(name)
    # `@operator` or the row of another candidate has declared it already.
    if isinstance(found, UserOperator | UserClass):
        return
    if isinstance(found, type) and issubclass(found, torch.nn.Module):
        declared: object = UserClass(path, found)
    elif callable(found) and not isinstance(found, type):
        declared = RecordedOperator(path, found)
    else:
        message = f"{where}: module {module_name!r} has no function or torch.nn.Module {name!r}."
        raise ConfigError(message)
    for each in list(sys.modules.values()):
        _rename(each, found, declared)


def _rename(module: object, found: object, declared: object) -> None:
    """Replace an object in a module that has imported it."""
    for name, value in list(getattr(module, "__dict__", {}).items()):
        if value is found:
            setattr(module, name, declared)
