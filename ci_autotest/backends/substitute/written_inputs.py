"""Inputs that a kernel writes to by design: it gets a copy of each, so that the body keeps its own values.

What a kernel leaves in such an input is nowhere compared, and everything else is.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import torch

from ci_autotest.backends.operators.signatures import forms, python_parameters
from ci_autotest.backends.operators.user_operators import find
from ci_autotest.backends.sameness import is_same
from ci_autotest.errors import ConfigError, OutOfScopeError, ProgramError
from ci_autotest.program.targets import is_own

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping


class WrittenInputs:
    """The inputs that a candidate's row lists under ``writes``.

    Args:
        names: Parameters of operators.
    """

    def __init__(self, names: Collection[str]) -> None:
        self._names = frozenset(names)
        #: Place and name of each such parameter, by operator.
        self._places: dict[str, list[tuple[int, str]]] = {}

    def copied(
        self,
        operator: str,
        functions: tuple[Callable[..., Any], Callable[..., Any]],
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
    ) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
        """Return the arguments of a call with copies of the inputs that the kernel may write to.

        Args:
            operator: The operator.
            functions: The kernel, and the operator's own function, which must leave these inputs alone.
            args: Positional arguments.
            kwargs: Keyword arguments.

        Raises:
            OutOfScopeError: The operator itself writes to one of them.
        """
        if operator not in self._places:
            kernel, standard = functions
            names = enumerate(parameters(operator, standard, kernel))
            places = [(i, name) for i, name in names if name in self._names]
            _refuse_written(operator, standard, args, kwargs, places)
            self._places[operator] = places
        own, named = list(args), dict(kwargs)
        for i, name in self._places[operator]:
            if i < len(own):
                own[i] = _copy(own[i])
            elif name in named:
                named[name] = _copy(named[name])
        return tuple(own), named


def _refuse_written(
    operator: str,
    standard: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    places: Collection[tuple[int, str]],
) -> None:
    """Refuse an input that the operator writes to itself, because then what it holds means something."""
    own, named = [_copy(value) for value in args], {key: _copy(value) for key, value in kwargs.items()}
    values = {name: own[i] if i < len(own) else named.get(name) for i, name in places}
    tensors = {name: value for name, value in values.items() if isinstance(value, torch.Tensor)}
    # By values, because running statistics are updated without a new version.
    before = {name: value.clone() for name, value in tensors.items()}
    # What the operator refuses, it does not write to.
    with torch.no_grad(), suppress(Exception):
        standard(*own, **named)
    written = [name for name, value in before.items() if not is_same(tensors[name], value)]
    if written:
        message = (
            f"{operator} writes to {written[0]!r} itself, so what it then holds is compared. Remove it from `writes` "
            "of the candidate's row."
        )
        raise OutOfScopeError(message)


def _copy(value: Any) -> Any:
    return value.clone() if isinstance(value, torch.Tensor) else value


def parameters(operator: str, *functions: Callable[..., Any] | None) -> tuple[str, ...]:
    """Return the names of an operator's parameters in order.

    Args:
        operator: The operator. Torch's own have the names of torch's documentation.
        functions: For an operator of the user's: its function and its replacement, as far as they are known. The first
            that has a signature names the parameters.
    """
    if not is_own(operator):
        overload = next(iter(forms(operator, "")), ())
        return tuple("input" if parameter.name == "self" else parameter.name for parameter in overload)
    for function in functions:
        packet = getattr(function, "default", function)
        schema = getattr(packet, "_schema", None)
        if schema is not None:
            return tuple(argument.name for argument in schema.arguments)
        if function is not None and (found := python_parameters(function)):
            return tuple(parameter.name for parameter in found)
    return ()


def _standard(operator: str) -> Callable[..., Any] | None:
    """Return the function of an operator of the user's; ``None`` if its module has not been imported yet."""
    try:
        return find(operator) if is_own(operator) else None
    except ProgramError:
        return None


def check_names(names: Collection[str], kernels: Mapping[str, Callable[..., Any] | None], candidate: str) -> None:
    """Refuse a name under ``writes`` that is no parameter of any of the operators.

    Args:
        names: The names.
        kernels: The replacement of each operator; ``None`` if only another process has it.
        candidate: Name of the candidate.

    Raises:
        ConfigError: There is one.
    """
    found = {operator: parameters(operator, _standard(operator), kernel) for operator, kernel in kernels.items()}
    known = dict.fromkeys(name for own in found.values() for name in own)
    for name in names if all(found.values()) else ():
        if name not in known:
            message = (
                f"candidate {candidate!r} has writes: {name[:80]!r}, which is no parameter of {', '.join(found)}. "
                f"Write one of {', '.join(known)}."
            )
            raise ConfigError(message)
