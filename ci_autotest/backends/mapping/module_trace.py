"""Trace a module's forward: write down the functions that it calls while torch runs it.

A function that the table answers is one step. Another one that is written in Python is entered, and what it calls is
written down instead: ``multi_head_attention_forward`` is projections, products and a softmax. What is built into torch
is a step whether the table has it or not, so that a refusal names it.
"""

from __future__ import annotations

from functools import lru_cache
from types import FunctionType
from typing import TYPE_CHECKING, Any, Final, NoReturn

import torch
from torch.overrides import TorchFunctionMode

from ci_autotest.backends.operators.identity import operator_of, public_name
from ci_autotest.errors import UnsupportedError
from ci_autotest.program.ir import (
    CALL_FUNCTION,
    CALL_METHOD,
    OWN_DEVICE,
    UNPACK,
    Constant,
    Device,
    DType,
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
#: What entering a function gives where it calls what is no operator.
_CLOSED: Final = object()
#: Where torch writes operators as calls of others.
_ENTERED: Final = frozenset({"torch.nn.functional", "torch.functional"})
_CHECKS: Final = ("has_torch_function", "has_torch_function_unary", "has_torch_function_variadic")


class Tracer(TorchFunctionMode):
    """Write down the calls made while it is in force.

    Args:
        steps: Where they are written to.
        is_answered: Whether the table answers an operator.
        modes: Modes of each step.
    """

    def __init__(self, steps: list[Step], is_answered: Callable[[str], bool]) -> None:
        super().__init__()
        self._steps = steps
        self._is_answered = is_answered
        #: What each tensor is in the program, by identity; the tensor is held so that it stays its own.
        self._known: dict[int, tuple[Any, Ref]] = {}
        #: Tensors that are a module's own bookkeeping: writing to them is no step.
        self._counters: set[int] = set()
        self.caller: Step | None = None

    def know(self, value: object, ref: Ref) -> None:
        """Note which step gave a tensor."""
        if isinstance(value, torch.Tensor):
            self._known[id(value)] = (value, ref)

    def count(self, counter: torch.Tensor) -> None:
        """Note a tensor that counts batches."""
        self._counters.add(id(counter))

    def ref(self, value: torch.Tensor) -> Ref | None:
        """Return the step that gave a tensor, ``None`` where none did."""
        found = self._known.get(id(value))
        return found[1] if found is not None else None

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Carry out a call, and write it down where it gives a tensor."""
        given = kwargs or {}
        name = (public_name(func) or "").replace("torch.functional.", "torch.")
        inner = _enterable(func) if not self._is_answered(operator_of(name)) else None
        if inner is not None:
            found = self._entered(inner, args, given)
            if found is not _CLOSED:
                return found
        result = func(*args, **given)
        if _has_tensor(result) and not (args and id(args[0]) in self._counters):
            self._write(name, args, given, result)
        return result

    def _entered(self, inner: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Write down what a function calls; nothing where that cannot be said, and it is one step after all."""
        count, known = len(self._steps), dict(self._known)
        versions = [value._version for value in args if isinstance(value, torch.Tensor)]
        try:
            with self:
                return inner(*args, **kwargs)
        except UnsupportedError:
            if versions != [value._version for value in args if isinstance(value, torch.Tensor)]:
                raise  # it wrote to an argument: carried out again it would do so twice
            del self._steps[count:]
            self._known = known
            return _CLOSED

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
        """Return opcode, target and arguments of a call as a program says them."""
        arguments = tuple(self._argument(value, name) for value in args)
        bare = name.rpartition(".")[2]
        if name.endswith(".__get__"):
            return CALL_FUNCTION, "builtins.getattr", (arguments[0], name.split(".")[-2])
        if bare in {"__getitem__", "__setitem__"}:
            return CALL_FUNCTION, f"operator.{bare.strip('_')}", arguments
        if name.startswith("torch.Tensor.") and is_member(bare):
            return CALL_METHOD, bare, arguments
        if not name.startswith("torch.") or not is_function(name):
            self._refuse(f"calls {name or 'a function without a public name'}, which is no operator of torch.")
        return CALL_FUNCTION, name, arguments

    def _argument(self, value: Any, name: str) -> Argument:
        kind = type(value)
        if kind in _PLAIN:
            return value  # type: ignore[no-any-return]
        if isinstance(value, torch.Tensor):
            found = self.ref(value)
            if found is None:
                self._refuse(f"gives {name} a tensor that is neither an input nor in its state.")
            return found
        if isinstance(value, list):
            return List(tuple(self._argument(item, name) for item in value))
        if isinstance(value, tuple):
            return tuple(self._argument(item, name) for item in value)
        if isinstance(value, slice):
            return Slice(*(self._argument(bound, name) for bound in (value.start, value.stop, value.step)))
        if isinstance(value, torch.dtype):
            return DType(str(value).removeprefix("torch."))
        if isinstance(value, torch.device):
            return Device(OWN_DEVICE)
        if not isinstance(value, torch.memory_format | torch.layout):
            self._refuse(f"gives {name} a {kind.__name__}, which is no argument of a program.")
        return Constant(str(value))

    def _refuse(self, what: str) -> NoReturn:
        target = self.caller.target if self.caller is not None else "a module"
        message = f"{target} cannot be lowered to functions: its forward {what}"
        raise UnsupportedError(message, target)


def _has_tensor(value: object) -> bool:
    if isinstance(value, tuple | list):
        return any(_has_tensor(item) for item in value)
    return isinstance(value, torch.Tensor)


def _nothing(*_: object) -> bool:
    """Say that no type of a call's arguments wants to answer for it."""
    return False


@lru_cache(maxsize=512)
def _enterable(func: Callable[..., Any]) -> Callable[..., Any] | None:
    """Return a function of torch's written in Python, as one that does not hand itself over to the mode again.

    Such a function asks first whether something else wants to answer for it; the copy is told that nothing does.
    """
    if not isinstance(func, FunctionType) or func.__module__ not in _ENTERED:
        return None
    unasked: dict[str, Any] = {name: _nothing for name in _CHECKS if name in func.__globals__}
    if not unasked:
        return None
    entered = FunctionType(
        func.__code__, {**func.__globals__, **unasked}, func.__name__, func.__defaults__, func.__closure__
    )
    entered.__kwdefaults__ = func.__kwdefaults__
    return entered
