"""The objects that a dataset holds: a walk over attributes, elements, closures, and what its methods use."""

from __future__ import annotations

import inspect
import sys
import types
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import torch

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Limits of the walk: a dataset may hold a million paths.
_OBJECTS: Final = 3000
_DEPTH: Final = 9
_ELEMENTS: Final = 64
#: Packages whose objects hold no generator of the user's.
_LIBRARIES: Final = ("torch.", "numpy.", "PIL.", "multiprocessing.", "threading.", "logging.", "ci_autotest.")
_LEAVES: Final = (str, bytes, int, float, complex, bool, type(None), torch.Tensor, np.ndarray, torch.dtype, range)


class Reached(NamedTuple):
    """An object of the walk: how it is reached, and the attribute through which."""

    access: str
    value: Any
    owner: Any
    attribute: str
    depth: int


def walk(roots: dict[str, Any], ends: tuple[type, ...]) -> Iterator[Reached]:
    """Yield the objects that can be reached, nearest first, each once.

    Args:
        roots: The objects to start from, by the name that their paths start with.
        ends: Classes of objects that are not looked into, and that count if a module's function uses them.
    """
    waiting = deque(Reached(name, value, None, "", 0) for name, value in roots.items())
    seen: set[int] = set()
    while waiting and len(seen) < _OBJECTS:
        reached = waiting.popleft()
        is_leaf = isinstance(reached.value, _LEAVES)
        # A small number is one object wherever it is held, so leaves are yielded at each place.
        if not is_leaf and id(reached.value) in seen:
            continue
        seen.add(id(reached.value))
        yield reached
        if not is_leaf and reached.depth < _DEPTH and not isinstance(reached.value, ends):
            waiting.extend(_children(reached, ends))


def _children(reached: Reached, ends: tuple[type, ...]) -> Iterator[Reached]:
    """Yield what an object holds: elements, attributes, and what the methods of its class use of their module."""
    access, value, depth = reached.access, reached.value, reached.depth + 1
    parts = list(_parts(value))
    for way, item in parts:
        yield Reached(f"{access}{way}", item, reached.owner, reached.attribute, depth)
    if isinstance(value, types.MethodType) and isinstance(value.__func__, types.FunctionType):
        yield from _of_function(f"{access}.__func__", value.__func__, depth, ends)
    elif isinstance(value, types.FunctionType):
        yield from _of_function(access, value, depth, ends)
    elif isinstance(value, types.GeneratorType):
        for name, item in (value.gi_frame.f_locals if value.gi_frame is not None else {}).items():
            yield Reached(f"{access}.gi_frame.f_locals[{name!r}]", item, value, name, depth)
    elif not parts and not isinstance(value, type | types.ModuleType):
        yield from _of_object(reached, depth, ends)


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the elements of a container and the parts of a bound function, with the text that follows its path."""
    if isinstance(value, list | tuple | deque):
        yield from ((f"[{number}]", item) for number, item in zip(range(_ELEMENTS), value, strict=False))
    elif isinstance(value, dict):
        yield from ((f"[{key!r}]", item) for key, item in list(value.items())[:_ELEMENTS])
    elif isinstance(value, partial):
        yield from ((f".{name}", getattr(value, name)) for name in ("func", "args", "keywords"))
    elif isinstance(value, types.MethodType):
        yield ".__self__", value.__self__


def _of_object(reached: Reached, depth: int, ends: tuple[type, ...]) -> Iterator[Reached]:
    access, value = reached.access, reached.value
    for name, item in list(getattr(value, "__dict__", {}).items()):
        yield Reached(
            f"{access}.{name}" if name.isidentifier() else f"vars({access})[{name!r}]", item, value, name, depth
        )
    for cls in type(value).__mro__:
        if _is_of_library(cls.__module__):
            continue
        for name in _slots(cls):
            if hasattr(value, name):
                yield Reached(f"{access}.{name}", getattr(value, name), value, name, depth)
        for name, item in list(vars(cls).items()):
            if isinstance(item, ends):
                yield Reached(f"{access}.{name}", item, value, name, depth)
            elif isinstance(item, types.FunctionType):
                yield from _of_function("", inspect.unwrap(item), depth, ends)  # the recorder wraps some


def _of_function(access: str, function: types.FunctionType, depth: int, ends: tuple[type, ...]) -> Iterator[Reached]:
    """Yield what a function closes over, and the generators of modules that it uses."""
    if _is_of_library(function.__module__ or ""):
        return
    for number, cell in enumerate(function.__closure__ or ()) if access else ():
        held = next(iter(_contents(cell)), None)
        name = function.__code__.co_freevars[number]
        yield Reached(f"{access}.__closure__[{number}].cell_contents", held, function, name, depth)
    names = list(_names(function.__code__))
    for name in names:
        value = function.__globals__.get(name)
        module = function.__globals__.get("__name__", "")
        if isinstance(value, types.ModuleType) and not _is_of_library(f"{value.__name__}."):
            for inner in names:
                if isinstance(getattr(value, inner, None), ends):
                    yield _of_module(value.__name__, inner, getattr(value, inner), depth)
        elif value is not None and not isinstance(value, type | types.ModuleType | types.FunctionType):
            yield _of_module(module, name, value, depth)


def _of_module(module: str, name: str, value: Any, depth: int) -> Reached:
    return Reached(f"sys.modules[{module!r}].{name}", value, sys.modules.get(module), name, depth)


def _contents(cell: Any) -> list[Any]:
    try:
        return [cell.cell_contents]
    except ValueError:  # an empty cell
        return []


def _names(code: types.CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names(constant)


def _slots(cls: type) -> tuple[str, ...]:
    slots = vars(cls).get("__slots__", ())
    return (slots,) if isinstance(slots, str) else tuple(slots)


def _is_of_library(module: str) -> bool:
    return f"{module}.".startswith(_LIBRARIES) or module.partition(".")[0] in sys.stdlib_module_names
