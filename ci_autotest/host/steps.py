"""The interpreter of programs: executes single steps in the framework of a binding.

It owns the meaning of each opcode. The binding says what placeholders, targets and constants are in its framework.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any, Final, Protocol

from ci_autotest.program.ir import (
    ARRAY,
    CALL_FUNCTION,
    CALL_METHOD,
    CALL_MODULE,
    GET_ATTR,
    HOOK,
    HOOKED,
    PLACEHOLDER,
    PLAIN_TYPES,
    READS_OF_MODULES,
    UNHOOKED,
    UNPACK,
    Copy,
    List,
    Mapping_,
    Ref,
    Slice,
)
from ci_autotest.program.refusal import ACCEPTED, Refusal, bare, refusal_of, refused_as
from ci_autotest.program.roles import OPERATORS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ci_autotest.program.ir import Argument, Opcode, Step


def _detached(value: Any) -> Any:
    """Return a tensor without its graph, because frameworks warn when one that requires grad becomes a number."""
    return value.detach() if hasattr(value, "detach") else value


#: Python's own functions that a step may name. Nothing else of ``builtins`` and ``operator`` is ever called, because a
#: program may come from outside.
PYTHON_TARGETS: Final[dict[str, Any]] = {
    UNPACK: operator.getitem,
    HOOKED: lambda value: value,
    UNHOOKED: lambda _: None,
    "builtins.getattr": getattr,
    "builtins.setattr": setattr,
    "builtins.len": len,
    "builtins.bool": lambda value: bool(_detached(value)),
    "builtins.int": lambda value: int(_detached(value)),
    "builtins.float": lambda value: float(_detached(value)),
    **{f"operator.{name}": getattr(operator, name) for name in OPERATORS},
}


class FrameworkBinding(Protocol):
    """A framework as the interpreter sees it."""

    def placeholder(self, step: Step) -> Any:
        """Return the tensor that a placeholder names."""

    def function(self, target: str) -> Callable[..., Any]:
        """Return the function that a target names."""

    def constant(self, argument: Argument) -> Any:
        """Return a dtype, device or constant in the framework."""

    def in_mode(self, step: Step, call: Callable[[], Any]) -> Any:
        """Call under the step's modes and seed."""

    def wait(self) -> None:
        """Wait until all calls have finished, because an asynchronous call may raise late."""

    def lacks(self, error: Exception) -> bool:
        """Whether an error means that the framework lacks a feature, rather than that it refuses the arguments."""


def execute_step(step: Step, values: Sequence[Any], binding: FrameworkBinding) -> Any:
    """Return the value of a step, given the values of the steps before it."""
    op, target, step_args, step_kwargs, _, modes, seed, _, _ = step
    if op == PLACEHOLDER:
        return binding.placeholder(step)
    if modes and HOOK[0] in modes:
        return None  # The step of a hook runs in the backward pass.
    if modes and (kind := refused_as(step)) is not None:
        return _tried(bare(step), kind, values, binding)
    args = []
    for arg in step_args:
        args.append(values[arg.index] if type(arg) is Ref else materialize(arg, values, binding.constant))
    kwargs = {key: materialize(value, values, binding.constant) for key, value in step_kwargs} if step_kwargs else {}
    if op == CALL_FUNCTION:
        call = PYTHON_TARGETS.get(target) or binding.function(target)
    else:
        call = _callee(op, target, args.pop(0))
    if modes or seed is not None:
        return binding.in_mode(step, lambda: call(*args, **kwargs))
    return call(*args, **kwargs)


def _tried(step: Step, kind: str, values: Sequence[Any], binding: FrameworkBinding) -> Refusal:
    """Try a step that the reference refused with an exception of class ``kind``, and return how it was refused."""
    try:
        execute_step(step, values, binding)
        binding.wait()
    except Exception as error:
        # A missing feature is no refusal, unless the reference itself refuses the step as not implemented.
        if kind != "NotImplementedError" and binding.lacks(error):
            raise
        return refusal_of(error)
    return ACCEPTED


def _callee(op: Opcode, target: str, receiver: Any) -> Callable[..., Any]:
    if op == CALL_METHOD:
        if target in READS_OF_MODULES and not hasattr(receiver, target):
            return lambda path: operator.attrgetter(path)(receiver)  # what every framework's modules have
        method: Callable[..., Any] = getattr(receiver, target)
        # Copied, because the array shares its memory with the tensor, and later steps may overwrite that.
        return method if target != ARRAY else lambda **kwargs: _copied(method(**kwargs))
    if op == CALL_MODULE:
        module: Callable[..., Any] = receiver
        return module
    if op == GET_ATTR:
        return lambda: getattr(receiver, target)
    message = f"opcode {op!r} computes nothing"
    raise ValueError(message)


def _copied(value: Any) -> Any:
    return value.copy() if hasattr(value, "copy") else value


def materialize(argument: Argument, values: Sequence[Any], constant: Callable[[Argument], Any]) -> Any:
    """Return an argument with references replaced by values and constants by the framework's."""
    kind = type(argument)
    if kind in PLAIN_TYPES:
        return argument
    if isinstance(argument, Ref):
        return values[argument.index]
    if isinstance(argument, tuple):
        return tuple(materialize(item, values, constant) for item in argument)
    if isinstance(argument, List):
        return [materialize(item, values, constant) for item in argument.items]
    if isinstance(argument, Slice):
        bounds = (argument.start, argument.stop, argument.step)
        return slice(*(materialize(bound, values, constant) for bound in bounds))
    if isinstance(argument, Copy):
        value = values[argument.ref.index]
        return value.clone() if hasattr(value, "clone") else value  # arrays of some frameworks are never written to
    if isinstance(argument, Mapping_):
        return {key: materialize(value, values, constant) for key, value in argument.items}
    return constant(argument)
