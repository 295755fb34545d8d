"""Types that a built-in function expects: from torch's operator schemas.

The rule (SEMANTICS, 18): the overloads that the other arguments match decide. Where they agree on the type, it is that
one; where none matches, or several disagree, it cannot be told, and the author is asked to write it.
"""

from __future__ import annotations

from types import EllipsisType
from typing import TYPE_CHECKING, Any, Final

import torch

from ci_autotest.backends.operators.overloads import bound_to, overloads
from ci_autotest.program.ir import Device
from ci_autotest.record.draw.generators import NOTHING, Generator
from ci_autotest.record.values import Value

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ci_autotest.backends.operators.overloads import Parameter

#: Stands for the tensor whose method is called.
RECEIVER: Final = object()
#: What a number can be drawn as, by the schema's type; a list of a known length takes one number for all.
_NUMBERS: Final[dict[str, object]] = {"int": int, "float": float, "bool": bool, "number": int | float}


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


def _wanted(
    overload: tuple[Parameter, ...], args: Sequence[Any], kwargs: Mapping[str, Any], key: int | str
) -> object | None:
    """Return the type that an overload asks for at ``key``, ``None`` where it does not match or takes no number."""
    bound = bound_to(overload, args, kwargs)
    if bound is None:
        return None
    asked = None
    for parameter, place, value in bound:
        if place == key:
            asked = _drawn_as(parameter)
        elif not _accepts(parameter, value):
            return None
    return asked


def _drawn_as(parameter: Parameter) -> object | None:
    if parameter.kind.startswith("List[") and parameter.length is not None:
        return _NUMBERS.get(parameter.kind[len("List[") : -1])
    return _NUMBERS.get(parameter.kind)


def _accepts(parameter: Parameter, value: Any) -> bool:
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


def _accepts_list(parameter: Parameter, value: Any) -> bool:
    item = parameter._replace(kind=parameter.kind[len("List[") : -1], is_optional=False)
    if item.kind.startswith("Optional["):
        item = item._replace(kind=item.kind[len("Optional[") : -1], is_optional=True)
    if isinstance(value, tuple | list):
        return all(not isinstance(part, EllipsisType) and _accepts(item, part) for part in value)
    return parameter.length is not None and _accepts(item, value)
