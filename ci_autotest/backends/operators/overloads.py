"""Torch's operator schemas: the overloads of a built-in function, and how a call's arguments fit them.

The recorder asks which type a number must have, the mapping which name an argument has.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_NAMESPACES: Final = {
    "torch": "", "torch.nn.functional": "", "torch.Tensor": "", "torch._C._nn": "", "torch.linalg": "linalg_",
    "torch.fft": "fft_", "torch.special": "special_", "": "",
}  # fmt: skip
#: Names that torch's parser of arguments takes for a schema's own, as numpy spells them.
SPELLED: Final = {"input": "self", "axis": "dim", "keepdims": "keepdim", "x": "self", "x2": "other"}


class Parameter(NamedTuple):
    """One argument of an overload.

    Attributes:
        name: As the schema spells it.
        kind: Its type without ``Optional``.
        length: Of a list of a fixed length, else ``None``.
        is_optional: Whether ``None`` is allowed.
        has_default: Whether it may be left out.
        by_keyword: Whether it can be given by name only.
        default: What it is when left out; a list of a fixed length may be given as one number.
    """

    name: str
    kind: str
    length: int | None
    is_optional: bool
    has_default: bool
    by_keyword: bool
    default: object = None


@lru_cache(maxsize=1024)
def overloads(target: str) -> tuple[tuple[Parameter, ...], ...]:
    """Return the overloads of a built-in function or method that give a tensor; empty where it has no schema.

    Those that write to ``out=`` take the same numbers as the others; those that return no tensor are TorchScript's own
    arithmetic of Python numbers.
    """
    return tuple(
        tuple(map(_parameter, schema.arguments))
        for schema in _schemas(target)
        if any("Tensor" in str(returned.type) for returned in schema.returns)
    )


@lru_cache(maxsize=1024)
def tensor_overloads(target: str) -> tuple[tuple[Parameter, ...], ...]:
    """Return the overloads that give a tensor or are called on one, ``x.size(0)``."""
    found = [tuple(map(_parameter, schema.arguments)) for schema in _schemas(target)]
    on_tensors = tuple(overload for overload in found if overload and overload[0].kind == "Tensor")
    return tuple(dict.fromkeys((*overloads(target), *on_tensors)))


def _schemas(target: str) -> list[Any]:
    namespace, _, name = target.rpartition(".")
    prefix = _NAMESPACES.get(namespace)
    if prefix is None:
        return []
    get: Callable[[str], list[Any]] = torch._C._jit_get_schemas_for_operator
    return [s for s in get(f"aten::{prefix}{name}") if not any(argument.is_out for argument in s.arguments)]


def _parameter(argument: Any) -> Parameter:
    kind = str(argument.real_type)
    is_optional = kind.startswith("Optional[")
    default = argument.default_value if argument.has_default_value() else None
    return Parameter(
        argument.name,
        kind[len("Optional[") : -1] if is_optional else kind,
        argument.N,
        is_optional,
        argument.has_default_value(),
        argument.kwarg_only,
        tuple(default) if isinstance(default, list) else default,
    )


def bound_to(
    overload: tuple[Parameter, ...], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> list[tuple[Parameter, int | str, Any]] | None:
    """Return ``(parameter, place, value)`` of each argument given, ``None`` where the call has another form."""
    positional = [parameter for parameter in overload if not parameter.by_keyword]
    in_a_row = spread(positional, args)
    if in_a_row is not None:
        return in_a_row if not kwargs else None
    if len(args) > len(positional):
        return None
    bound: list[tuple[Parameter, int | str, Any]] = [(positional[i], i, value) for i, value in enumerate(args)]
    left = {parameter.name: parameter for parameter in overload[len(args) :]}
    for name, value in kwargs.items():
        parameter = left.pop(name, None) or left.pop(SPELLED.get(name, ""), None)
        if parameter is None:
            return None
        bound.append((parameter, name, value))
    return bound if all(parameter.has_default for parameter in left.values()) else None


def spread(positional: Sequence[Parameter], args: Sequence[Any]) -> list[tuple[Parameter, int | str, Any]] | None:
    """Return the binding of ``x.view(2, 3)``: numbers in a row for the last list of the overload."""
    if not positional or positional[-1].kind != "List[int]" or positional[-1].length is not None:
        return None
    first = len(positional) - 1
    rest = args[first:]
    if not rest or any(isinstance(value, tuple | list) for value in rest):
        return None
    one = positional[-1]._replace(kind="int")
    head: list[tuple[Parameter, int | str, Any]] = [(positional[i], i, value) for i, value in enumerate(args[:first])]
    return head + [(one, first + i, value) for i, value in enumerate(rest)]
