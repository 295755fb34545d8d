"""Trace a module's forward: record the functions that it calls while torch runs it.

A function with a row in the table is one step. If a function has no row and is written in Python, the calls inside it
are recorded instead: ``multi_head_attention_forward``, for example, becomes projections, products and a softmax. A
function built into torch is always a step, so that the message names it if the table has no row.
"""

from __future__ import annotations

from functools import lru_cache
from types import FunctionType
from typing import TYPE_CHECKING, Any, Final, NoReturn

import torch
from torch.overrides import TorchFunctionMode

from ci_autotest.backends.operators.identity import operator_of, public_name
from ci_autotest.backends.torch_constants import argument_of
from ci_autotest.errors import UnsupportedError
from ci_autotest.program.ir import (
    CALL_FUNCTION,
    CALL_METHOD,
    OWN_DEVICE,
    UNPACK,
    Device,
    List,
    Ref,
    Slice,
    Step,
)
from ci_autotest.program.targets import is_function, is_member

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ci_autotest.program.ir import Argument

_PLAIN: Final = frozenset({int, float, bool, str, type(None), complex, type(...)})
#: Result of tracing the inside of a function that calls something that is not an operator.
_OPAQUE: Final = object()
#: Modules in which torch writes operators as calls of other operators.
_ENTERED: Final = frozenset({"torch.nn.functional", "torch.functional"})
_CHECKS: Final = ("has_torch_function", "has_torch_function_unary", "has_torch_function_variadic")


class ModuleTracer(TorchFunctionMode):
    """Record the calls that torch makes while this mode is active.

    Args:
        steps: The list that they are appended to.
        is_answered: Whether the table has a row for an operator.

    Attributes:
        caller: The step whose forward is traced; the recorded steps get its name, modes and seed.
    """

    def __init__(self, steps: list[Step], is_answered: Callable[[str], bool]) -> None:
        super().__init__()
        self._steps = steps
        self._is_answered = is_answered
        # The step of each tensor, by `id`. The tensor is kept too, so that no other one gets its id.
        self._known: dict[int, tuple[Any, Ref]] = {}
        # Batch counters of modules. Writing to one is not recorded, because no output depends on it.
        self._counters: set[int] = set()
        self.caller: Step | None = None

    def know(self, value: object, ref: Ref) -> None:
        """Note which step returned a tensor."""
        if isinstance(value, torch.Tensor):
            self._known[id(value)] = (value, ref)

    def count(self, counter: torch.Tensor) -> None:
        """Note that a tensor is a batch counter."""
        self._counters.add(id(counter))

    def ref(self, value: torch.Tensor) -> Ref | None:
        """Return the step that returned a tensor; ``None`` if none did."""
        found = self._known.get(id(value))
        return found[1] if found is not None else None

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Execute a call, and record it if it returns a tensor."""
        given = kwargs or {}
        name = (public_name(func) or "").replace("torch.functional.", "torch.")
        inner = _enterable(func) if not self._is_answered(operator_of(name)) else None
        if inner is not None:
            found = self._entered(inner, args, given)
            if found is not _OPAQUE:
                return found
        result = func(*args, **given)
        if _has_tensor(result) and not (args and id(args[0]) in self._counters):
            self._write(name, args, given, result)
        return result

    def _entered(self, inner: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Record the calls inside a function; if that fails, record nothing, and the function is one step after all."""
        count, known = len(self._steps), dict(self._known)
        versions = [value._version for value in args if isinstance(value, torch.Tensor)]
        try:
            with self:
                return inner(*args, **kwargs)
        except UnsupportedError:
            if versions != [value._version for value in args if isinstance(value, torch.Tensor)]:
                raise  # It wrote to an argument, and would do so again if it were executed again.
            del self._steps[count:]
            self._known = known
            return _OPAQUE

    def _write(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
        op, target, arguments = self._spelled(name, args)
        caller = self.caller
        assert caller is not None  # noqa: S101 - set before a forward is entered
        written = tuple((key, self._argument(value, name)) for key, value in kwargs.items())
        self._steps.append(
            Step(op, target, arguments, written, caller.name, caller.modes, caller.seed, in_setup=False)  # type: ignore[arg-type]
        )
        self._keep(result, len(self._steps) - 1, caller)

    def _keep(self, result: Any, index: int, caller: Step) -> None:
        if isinstance(result, torch.Tensor):
            self.know(result, Ref(index))
        elif isinstance(result, tuple | list):
            for position, item in enumerate(result):
                if _has_tensor(item):
                    taken = Step(CALL_FUNCTION, UNPACK, (Ref(index), position), (), caller.name)
                    self._steps.append(taken)
                    self._keep(item, len(self._steps) - 1, caller)

    def _spelled(self, name: str, args: tuple[Any, ...]) -> tuple[str, str, tuple[Argument, ...]]:
        """Return the opcode, target and arguments of a call in a program."""
        arguments = tuple(self._argument(value, name) for value in args)
        bare = name.rpartition(".")[2]
        if name.endswith(".__get__"):
            return CALL_FUNCTION, "builtins.getattr", (arguments[0], name.split(".")[-2])
        if bare in {"__getitem__", "__setitem__"}:
            return CALL_FUNCTION, f"operator.{bare.strip('_')}", arguments
        if name.startswith("torch.Tensor.") and is_member(bare):
            return CALL_METHOD, bare, arguments
        if not name.startswith("torch.") or not is_function(name):
            self._refuse(f"calls {name or 'a function without a public name'}, which is not an operator of torch.")
        return CALL_FUNCTION, name, arguments

    def _argument(self, value: Any, name: str) -> Argument:
        kind = type(value)
        if kind in _PLAIN:
            return value  # type: ignore[no-any-return]
        if isinstance(value, torch.Tensor):
            found = self.ref(value)
            if found is None:
                self._refuse(f"passes {name} a tensor that is neither an input nor part of its state.")
            return found
        if isinstance(value, list):
            return List(tuple(self._argument(item, name) for item in value))
        if isinstance(value, tuple):
            return tuple(self._argument(item, name) for item in value)
        if isinstance(value, slice):
            return Slice(*(self._argument(bound, name) for bound in (value.start, value.stop, value.step)))
        constant = argument_of(value)
        if constant is None:
            self._refuse(f"passes {name} a {kind.__name__}, which cannot be an argument in a program.")
        # A module's forward names the device that its tensors lie on.
        return Device(OWN_DEVICE) if isinstance(constant, Device) else constant

    def _refuse(self, fault: str) -> NoReturn:
        target = self.caller.target if self.caller is not None else "a module"
        message = f"{target} cannot be lowered to functions: its forward {fault}"
        raise UnsupportedError(message, target)


def _has_tensor(value: object) -> bool:
    if isinstance(value, tuple | list):
        return any(_has_tensor(item) for item in value)
    return isinstance(value, torch.Tensor)


def _has_no_override(*_: object) -> bool:
    return False


@lru_cache(maxsize=512)
def _enterable(func: Callable[..., Any]) -> Callable[..., Any] | None:
    """Return a copy of one of torch's Python functions that does not dispatch itself to the mode again.

    Such a function first calls ``has_torch_function``; in the copy, that returns ``False``.
    """
    if not isinstance(func, FunctionType) or func.__module__ not in _ENTERED:
        return None
    patched: dict[str, Any] = {name: _has_no_override for name in _CHECKS if name in func.__globals__}
    if not patched:
        return None
    entered = FunctionType(
        func.__code__, {**func.__globals__, **patched}, func.__name__, func.__defaults__, func.__closure__
    )
    entered.__kwdefaults__ = func.__kwdefaults__
    return entered
