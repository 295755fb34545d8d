"""A call of an operator, as a mode of torch sees it: its arguments by name, and the same call with another one."""

from __future__ import annotations

from copy import deepcopy
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import torch

from ci_autotest.backends.nest import mapped
from ci_autotest.backends.operators.identity import public_name
from ci_autotest.backends.operators.signatures import GATHERED, Parameter, bound_to, forms, python_parameters
from ci_autotest.backends.operators.user_operators import UserOperator
from ci_autotest.backends.user_errors import FOREIGN, pass_interrupt
from ci_autotest.program.ir import CALL_FUNCTION, CALL_METHOD

if TYPE_CHECKING:
    from collections.abc import Callable

#: Parameters that say where or how a result is stored, and not what it is.
_STORAGE: Final = frozenset({
    "out", "inplace", "generator", "memory_format", "layout", "device", "pin_memory", "non_blocking", "copy",
    "requires_grad", "size_average", "reduce", "sparse", "as_tuple", "check_errors", "validate_indices", "out_dtype",
})  # fmt: skip
_TENSORS: Final = frozenset({"Tensor", "List[Tensor]"})


class Argument(NamedTuple):
    """An argument of a call.

    Attributes:
        parameter: The parameter that it is given to.
        place: Its position or keyword; ``None`` if it is left out.
        value: The value, or the default.
    """

    parameter: Parameter
    place: int | str | None
    value: Any


class OperatorCall(NamedTuple):
    """A call of an operator.

    Attributes:
        function: The function of torch or of the user.
        args: Positional arguments.
        kwargs: Keyword arguments.
    """

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def run(self) -> Any:
        """Return the result of the reference."""
        return self.function(*self.args, **self.kwargs)

    def arguments(self) -> dict[str, Argument]:
        """Return the arguments by the parameter's name, with the defaults of the others; empty if unknown."""
        for overload in _forms(self.function):
            bound = bound_to(overload, self.args, self.kwargs)
            if bound is None or not all(_fits(parameter, value) for parameter, _, value in bound):
                continue
            found = {parameter.name: Argument(parameter, place, value) for parameter, place, value in bound}
            for parameter in overload:
                if parameter.name not in found and parameter.has_default and parameter.kind != GATHERED:
                    found[parameter.name] = Argument(parameter, None, parameter.default)
            return {name: each for name, each in found.items() if name not in _STORAGE and not name.startswith("_")}
        return {}

    def tensors(self) -> list[tuple[int | str, torch.Tensor]]:
        """Return the tensors among the arguments, each with its place."""
        places: list[tuple[int | str, Any]] = [*enumerate(self.args), *self.kwargs.items()]
        return [(place, value) for place, value in places if isinstance(value, torch.Tensor)]

    def given(self, place: int | str, value: Any) -> OperatorCall:
        """Return the call with another value at a place."""
        if isinstance(place, int):
            return self._replace(args=(*self.args[:place], value, *self.args[place + 1 :]))
        return self._replace(kwargs={**self.kwargs, place: value})

    def changed(self, argument: Argument, value: Any) -> OperatorCall:
        """Return the call with another value of an argument, which it may have left out."""
        return self.given(argument.parameter.name if argument.place is None else argument.place, value)

    def mapped(self, change: Callable[[torch.Tensor], torch.Tensor]) -> OperatorCall:
        """Return the call with every tensor changed."""
        return self._replace(
            args=tuple(mapped(value, change) for value in self.args),
            kwargs={name: mapped(value, change) for name, value in self.kwargs.items()},
        )


class ModuleFunction:
    """The function of a call of a module.

    Args:
        module: The module.
        call: ``torch.nn.Module.__call__``, which a mode has taken over.
        is_copied: Whether each call has a copy of it, because the calls of a mutant must not change its state.
    """

    def __init__(self, module: torch.nn.Module, call: Callable[..., Any], *, is_copied: bool = False) -> None:
        self.module, self._call, self._is_copied = module, call, is_copied

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call it."""
        module = deepcopy(self.module) if self._is_copied else self.module
        return self._call(module, *args, **kwargs)

    def kept(self) -> ModuleFunction:
        """Return the call with the state that the module has now."""
        return ModuleFunction(deepcopy(self.module), self._call, is_copied=True)


def attempt_of(call: OperatorCall) -> Any:
    """Return the result of a call, or ``None`` if it raises."""
    try:
        return call.run()
    except FOREIGN as error:
        pass_interrupt(error)
        return None


@lru_cache(maxsize=2048)
def _forms(function: Callable[..., Any]) -> tuple[tuple[Parameter, ...], ...]:
    if isinstance(function, UserOperator):
        return (_form_of(function.body),)
    if isinstance(function, ModuleFunction):
        return (_form_of(function.module.forward),)
    name = public_name(function)
    if name is None:
        return ()
    if name.startswith("torch.Tensor."):
        return forms(name.removeprefix("torch.Tensor."), CALL_METHOD)
    return forms(name, CALL_FUNCTION)


def _form_of(function: Callable[..., Any]) -> tuple[Parameter, ...]:
    return tuple(
        Parameter(
            each.name, GATHERED if each.kind is each.VAR_POSITIONAL else "anything", None, is_optional=True,
            has_default=each.default is not each.empty, by_keyword=each.kind is each.KEYWORD_ONLY,
            default=None if each.default is each.empty else each.default,
        )
        for each in python_parameters(function) or ()
        if each.kind is not each.VAR_KEYWORD
    )  # fmt: skip


def _fits(parameter: Parameter, value: Any) -> bool:
    """Whether a value fits a parameter: a tensor where a tensor is expected, something else where not."""
    is_tensor = isinstance(value, torch.Tensor)
    if parameter.kind in {"Tensor", "Optional[Tensor]"}:
        return is_tensor or (value is None and parameter.is_optional)
    return not is_tensor or parameter.kind in {"anything", GATHERED}
