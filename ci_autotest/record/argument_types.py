"""Argument types of built-in functions, taken from torch's operator schemas.

The rule (SEMANTICS, 18): the overloads that match the other arguments decide. If they agree on a type, that is the type
of the argument. If none matches, or if they disagree, the type is unknown and the author has to write it.
"""

from __future__ import annotations

from types import EllipsisType
from typing import TYPE_CHECKING, Any, Final

import torch

from ci_autotest.backends.operators.signatures import bound_to, overloads
from ci_autotest.program.ir import Device
from ci_autotest.record.draw.generators import NOTHING, Generator
from ci_autotest.record.values import RecordedTensor

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ci_autotest.backends.operators.signatures import Parameter

#: Placeholder for the tensor whose method is called.
RECEIVER: Final = object()
#: The type of a drawn number by the schema's type; a list of known length takes one number for all of its elements.
_NUMBERS: Final[dict[str, object]] = {"int": int, "float": float, "bool": bool, "number": int | float}


class Deferred:
    """The type of an argument, looked up only if a generator needs it, because most generators know their own type.

    Args:
        target: The function's dotted path, or the method's name.
        args: Positional arguments of the call, for a method with the receiver first.
        kwargs: Keyword arguments of the call.
        key: The argument: a position in ``args``, or a name.
    """

    __slots__ = ("args", "key", "kwargs", "target")

    def __init__(self, target: str, args: Sequence[Any], kwargs: Mapping[str, Any], key: int | str) -> None:
        self.target, self.args, self.kwargs, self.key = target, args, kwargs, key

    def resolve(self) -> object:
        """Return the type on which all matching overloads agree; ``None`` if there is none."""
        found = self.candidates()
        return found[0] if len(found) == 1 else None

    def candidates(self) -> list[object]:
        """Return the types of the argument in all matching overloads, without repeats."""
        found: list[object] = []
        for overload in overloads(self.target):
            wanted = _wanted(overload, self.args, self.kwargs, self.key)
            if wanted is not None and wanted not in found:
                found.append(wanted)
        return found


def _wanted(
    overload: tuple[Parameter, ...], args: Sequence[Any], kwargs: Mapping[str, Any], key: int | str
) -> object | None:
    """Return the type of ``key`` in an overload; ``None`` if the overload does not match or takes no number there."""
    bound = bound_to(overload, args, kwargs)
    if bound is None:
        return None
    found = None
    for parameter, place, value in bound:
        if place == key:
            found = _drawn_as(parameter)
        elif not _accepts(parameter, value):
            return None
    return found


def _drawn_as(parameter: Parameter) -> object | None:
    if parameter.kind.startswith("List[") and parameter.length is not None:
        return _NUMBERS.get(parameter.kind[len("List[") : -1])
    return _NUMBERS.get(parameter.kind)


def _accepts(parameter: Parameter, value: Any) -> bool:
    if isinstance(value, Generator) or value is NOTHING:
        return True  # its type is still unknown; it has a lookup of its own
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
    "Tensor": (RecordedTensor, torch.Tensor),
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


def _accepts_list(parameter: Parameter, value: Any) -> bool:
    item = parameter._replace(kind=parameter.kind[len("List[") : -1], is_optional=False)
    if item.kind.startswith("Optional["):
        item = item._replace(kind=item.kind[len("Optional[") : -1], is_optional=True)
    if isinstance(value, tuple | list):
        return all(not isinstance(part, EllipsisType) and _accepts(item, part) for part in value)
    return parameter.length is not None and _accepts(item, value)
