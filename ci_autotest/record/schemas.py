"""The type that a built-in function asks for at a place: torch's operator schemas, one for each overload.

The rule (SEMANTICS, 18): the overloads that the other arguments match decide. Where they agree on the type, it is that
one; where none matches, or several disagree, it cannot be told, and the author is asked to write it.
"""

from __future__ import annotations

from functools import lru_cache
from types import EllipsisType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import torch

from ci_autotest.program.ir import Device
from ci_autotest.record.generators import NOTHING, Generator
from ci_autotest.record.values import Value

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

#: Stands for the tensor whose method is called.
RECEIVER: Final = object()
_NAMESPACES: Final = {
    "torch": "", "torch.nn.functional": "", "torch.Tensor": "", "torch.linalg": "linalg_", "torch.fft": "fft_",
    "torch.special": "special_", "": "",
}  # fmt: skip
#: Names that torch's parser of arguments takes for a schema's own, as numpy spells them.
_SPELLED: Final = {"input": "self", "axis": "dim", "keepdims": "keepdim", "x": "self", "x2": "other"}
#: What a number can be drawn as, by the schema's type; a list of a known length takes one number for all.
_NUMBERS: Final[dict[str, object]] = {"int": int, "float": float, "bool": bool, "number": int | float}


class Parameter(NamedTuple):
    """One argument of an overload.

    Attributes:
        name: As the schema spells it.
        kind: Its type without ``Optional``.
        length: Of a list of a fixed length, else ``None``.
        is_optional: Whether ``None`` is allowed.
        has_default: Whether it may be left out.
        by_keyword: Whether it can be given by name only.
    """

    name: str
    kind: str
    length: int | None
    is_optional: bool
    has_default: bool
    by_keyword: bool


class Deferred:
    """A type that is looked up only where a generator needs it: most know their own.

    Args:
        target: The function's dotted path, or the method's name.
        args: Positional arguments as the body wrote them, the receiver first for a method.
        kwargs: Keyword arguments as the body wrote them.
        key: Which one is asked for: a position in ``args``, or a name.
    """

    __slots__ = ("args", "key", "kwargs", "target")

    def __init__(self, target: str, args: Sequence[Any], kwargs: Mapping[str, Any], key: int | str) -> None:
        """Hold the call."""
        self.target, self.args, self.kwargs, self.key = target, args, kwargs, key

    def resolve(self) -> object:
        """Return the type that every matching overload asks for, ``None`` where it cannot be told."""
        found = self.candidates()
        return found[0] if len(found) == 1 else None

    def candidates(self) -> list[object]:
        """Return the types that the overloads matched by the other arguments ask for, once each."""
        found: list[object] = []
        for overload in overloads(self.target):
            wanted = _wanted(overload, self.args, self.kwargs, self.key)
            if wanted is not None and wanted not in found:
                found.append(wanted)
        return found


@lru_cache(maxsize=1024)
def overloads(target: str) -> tuple[tuple[Parameter, ...], ...]:
    """Return the overloads of a built-in function or method; empty where it has no schema.

    Those that write to ``out=`` take the same numbers as the others; those that return no tensor are TorchScript's own
    arithmetic of Python numbers.
    """
    namespace, _, name = target.rpartition(".")
    prefix = _NAMESPACES.get(namespace)
    if prefix is None:
        return ()
    get: Callable[[str], list[Any]] = torch._C._jit_get_schemas_for_operator
    return tuple(
        tuple(map(_parameter, schema.arguments))
        for schema in get(f"aten::{prefix}{name}")
        if not any(argument.is_out for argument in schema.arguments)
        and any("Tensor" in str(returned.type) for returned in schema.returns)
    )


def _parameter(argument: Any) -> Parameter:  # noqa: ANN401 - torch's own
    kind = str(argument.real_type)
    is_optional = kind.startswith("Optional[")
    return Parameter(
        argument.name,
        kind[len("Optional[") : -1] if is_optional else kind,
        argument.N,
        is_optional,
        argument.has_default_value(),
        argument.kwarg_only,
    )


def _wanted(
    overload: tuple[Parameter, ...], args: Sequence[Any], kwargs: Mapping[str, Any], key: int | str
) -> object | None:
    """Return the type that an overload asks for at ``key``, ``None`` where it does not match or takes no number."""
    bound = _bound(overload, args, kwargs)
    if bound is None:
        return None
    asked = None
    for parameter, place, value in bound:
        if place == key:
            asked = _drawn_as(parameter)
        elif not _accepts(parameter, value):
            return None
    return asked


def _bound(
    overload: tuple[Parameter, ...], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> list[tuple[Parameter, int | str, Any]] | None:
    """Return ``(parameter, place, value)`` of each argument given, ``None`` where the call has another form."""
    positional = [parameter for parameter in overload if not parameter.by_keyword]
    spread = _spread(positional, args)
    if spread is not None:
        return spread if not kwargs else None
    if len(args) > len(positional):
        return None
    bound: list[tuple[Parameter, int | str, Any]] = [(positional[i], i, value) for i, value in enumerate(args)]
    left = {parameter.name: parameter for parameter in overload[len(args) :]}
    for name, value in kwargs.items():
        parameter = left.pop(name, None) or left.pop(_SPELLED.get(name, ""), None)
        if parameter is None:
            return None
        bound.append((parameter, name, value))
    return bound if all(parameter.has_default for parameter in left.values()) else None


def _spread(positional: Sequence[Parameter], args: Sequence[Any]) -> list[tuple[Parameter, int | str, Any]] | None:
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


def _drawn_as(parameter: Parameter) -> object | None:
    if parameter.kind.startswith("List[") and parameter.length is not None:
        return _NUMBERS.get(parameter.kind[len("List[") : -1])
    return _NUMBERS.get(parameter.kind)


def _accepts(parameter: Parameter, value: Any) -> bool:  # noqa: ANN401 - whatever the body wrote
    if isinstance(value, Generator) or value is NOTHING:
        return True  # what it will be is not known; its own place is asked for by itself
    if value is None:
        return parameter.is_optional
    kind = parameter.kind
    if kind.startswith("List["):
        return _accepts_list(parameter, value)
    if value is RECEIVER:
        return kind == "Tensor"
    if isinstance(value, bool) and kind in {"int", "float"}:
        return False
    return isinstance(value, _ALLOWED.get(kind, (object,)))


_ALLOWED: Final[dict[str, tuple[type, ...]]] = {
    "Tensor": (Value, torch.Tensor),
    "int": (int,),
    "float": (int, float),
    "complex": (int, float, complex),
    "bool": (bool,),
    "number": (bool, int, float, complex),
    "str": (str,),
    "ScalarType": (torch.dtype,),
    "Device": (torch.device, Device, str),
    "Layout": (torch.layout,),
    "MemoryFormat": (torch.memory_format,),
    "Dimname": (str,),
}


def _accepts_list(parameter: Parameter, value: Any) -> bool:  # noqa: ANN401 - whatever the body wrote
    item = parameter._replace(kind=parameter.kind[len("List[") : -1], is_optional=False)
    if item.kind.startswith("Optional["):
        item = item._replace(kind=item.kind[len("Optional[") : -1], is_optional=True)
    if isinstance(value, tuple | list):
        return all(not isinstance(part, EllipsisType) and _accepts(item, part) for part in value)
    return parameter.length is not None and _accepts(item, value)
