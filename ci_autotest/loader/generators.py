"""The random number generators that a dataset holds: found by walking its attributes, read and set by their kind.

The source line that makes one is an assignment to an attribute, a variable or a name of a module.
"""

from __future__ import annotations

import ast
import copy
import inspect
import random
import sys
import types
from collections import deque
from functools import lru_cache, partial
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import torch

from ci_autotest.program.python_names import FILE_MODULE

if TYPE_CHECKING:
    from collections.abc import Iterator


#: The classes of generators, with the names that users write.
_NAMES: Final = {
    np.random.Generator: "numpy.random.Generator",
    np.random.RandomState: "numpy.random.RandomState",
    random.Random: "random.Random",
    torch.Generator: "torch.Generator",
}
GENERATORS: Final = tuple(_NAMES)


class FoundGenerator(NamedTuple):
    """A generator at one place.

    Attributes:
        access: Python expression that finds it, given ``dataset``; also its key.
        generator: The object.
        place: Where it lives, in words.
        made: ``file:line`` of the statement that makes it; empty if unknown.
        is_global: Whether it is one that torch seeds in each worker.
    """

    access: str
    generator: Any
    place: str
    made: str = ""
    is_global: bool = False

    @property
    def kind(self) -> str:
        """Dotted name of its class as users write it."""
        return next(name for kind, name in _NAMES.items() if isinstance(self.generator, kind))


def global_generators() -> list[FoundGenerator]:
    """Return the generators that torch seeds in each worker: those of random, numpy and torch."""
    # `random` has no public name for its generator, but its functions are bound methods of that object.
    held: Any = random.random
    return [
        FoundGenerator("random", held.__self__, "the global generator of random", is_global=True),
        FoundGenerator("numpy.random", np.random.mtrand._rand, "the global generator of numpy.random", is_global=True),  # noqa: SLF001 - it has no public name
        FoundGenerator(
            "torch.default_generator", torch.default_generator, "the global generator of torch", is_global=True
        ),
    ]


def held_generators(**roots: Any) -> list[FoundGenerator]:
    """Return the generators that can be reached from some objects, each at its shortest path.

    Args:
        roots: The objects, by the name that the path starts with.
    """
    shared = {id(item.generator) for item in global_generators()}
    found: dict[int, FoundGenerator] = {}
    for reached in _walk(roots, GENERATORS):
        value = reached.value
        if isinstance(value, GENERATORS) and id(value) not in found and id(value) not in shared and _has_state(value):
            found[id(value)] = _found(reached, roots)
    return list(found.values())


def plain_numbers(**roots: Any) -> int:
    """Return a hash of the numbers and the container sizes that can be reached; generators do not count."""
    parts = []
    for reached in _walk(roots, GENERATORS):
        if isinstance(reached.value, int | float | bool):
            parts.append((reached.access, reached.value))
        elif isinstance(reached.value, list | tuple | dict | set | deque):
            parts.append((reached.access, len(reached.value)))
    return hash(tuple(parts))


def state_of(generator: Any) -> str:
    """Return a hash of a generator's state."""
    return blake2b(repr(_plain(_state(generator))).encode(), digest_size=8).hexdigest()


def first_numbers(generator: Any) -> tuple[str, ...]:
    """Return the next three numbers of a generator, without moving it."""
    if isinstance(generator, torch.Generator):
        # A generator must be on its own device: a state of CUDA does not fit one of the CPU.
        other = torch.Generator(generator.device)
        other.set_state(generator.get_state())
        return tuple(f"{number:.6g}" for number in torch.rand(3, generator=other).tolist())
    twin = copy.deepcopy(generator)
    return tuple(f"{float(twin.random()):.6g}" for _ in range(3))


def reseed(generator: Any, seed: int) -> None:
    """Put a generator into the state that a seed gives."""
    if isinstance(generator, torch.Generator):
        generator.manual_seed(seed)
    elif isinstance(generator, np.random.Generator):
        held: Any = generator.bit_generator
        held.state = type(held)(seed).state
    else:
        generator.seed(seed)


def dotted_name(cls: type) -> str:
    """Return the dotted name of a class; that of a test file's class begins with the name of the file."""
    module = cls.__module__
    if module.startswith(FILE_MODULE):
        module = Path(getattr(sys.modules.get(module), "__file__", None) or module).stem
    return f"{module}.{cls.__qualname__}"


def _has_state(generator: Any) -> bool:
    """Whether a generator is seeded at all: ``random.SystemRandom`` is not."""
    try:
        _state(generator)
    except NotImplementedError:
        return False
    return True


def _state(generator: Any) -> Any:
    if isinstance(generator, np.random.Generator):
        return generator.bit_generator.state
    if isinstance(generator, random.Random):
        return generator.getstate()
    return generator.get_state()


def _plain(state: Any) -> Any:
    """Return a state with the bytes of its arrays, because the text of a long array leaves out its middle."""
    if isinstance(state, torch.Tensor):
        return state.numpy().tobytes()
    if isinstance(state, np.ndarray):
        return state.tobytes()
    if isinstance(state, dict):
        return [(key, _plain(value)) for key, value in sorted(state.items())]
    return [_plain(value) for value in state] if isinstance(state, tuple) else state


def _found(reached: _Reached, roots: dict[str, Any]) -> FoundGenerator:
    """Return a generator with its place in words and the line that makes it."""
    owner, name = reached.owner, reached.attribute
    if isinstance(owner, types.ModuleType):
        file = Path(owner.__file__ or owner.__name__).stem if owner.__name__.startswith(FILE_MODULE) else owner.__name__
        return FoundGenerator(reached.access, reached.value, f"{file}.{name}", module_line(owner, name))
    if isinstance(owner, types.GeneratorType):
        return FoundGenerator(
            reached.access, reached.value, f"{name} of {owner.__qualname__}", local_line(owner.gi_code, name)
        )
    if inspect.isfunction(owner):
        return FoundGenerator(
            reached.access, reached.value, f"{name} of {owner.__qualname__}", local_line(owner.__code__, name)
        )
    if owner is None:
        return FoundGenerator(reached.access, reached.value, reached.access)
    is_root = any(owner is root for root in roots.values())
    cls: Any = type(owner)
    of = "" if is_root else f" of {dotted_name(cls)}"
    return FoundGenerator(reached.access, reached.value, f"self.{name}{of}", self_line(cls, name))


@lru_cache(maxsize=256)
def self_line(cls: type, name: str) -> str:
    """Return ``file:line`` of the statement that sets ``self.name`` in a class or its bases; empty if there is none."""
    for owner in cls.__mro__:
        tree, file, first = _tree(owner)
        lines = _lines(tree, name, is_attribute=True)
        lines += [node.lineno for node in _class_body(tree) if _sets(node, name, is_attribute=False)]
        if lines:
            return f"{file}:{first + lines[-1] - 1}"
    return ""


@lru_cache(maxsize=256)
def module_line(module: types.ModuleType, name: str) -> str:
    """Return ``file:line`` of the statement that sets a name of a module; empty if there is none."""
    tree, file, _ = _tree(module)
    lines = [node.lineno for node in (tree.body if tree else ()) if _sets(node, name, is_attribute=False)]
    return f"{file}:{lines[-1]}" if lines else ""


@lru_cache(maxsize=256)
def local_line(code: types.CodeType, name: str) -> str:
    """Return ``file:line`` of the statement that sets a variable of a function, or the function's own line."""
    tree, file, first = _tree(code)
    lines = _lines(tree, name, is_attribute=False)
    return f"{file}:{first + lines[-1] - 1}" if lines else f"{code.co_filename}:{code.co_firstlineno}"


def _tree(source: Any) -> tuple[ast.Module | None, str, int]:
    """Return the syntax tree of a class, module or code, its file, and its first line."""
    try:
        lines, first = inspect.getsourcelines(source)
        # The parser refuses indented code; `cleandoc` measures all lines but the first, so that one is empty.
        text = inspect.cleandoc("\n" + "".join(lines))
        # `getsourcelines` says that a module begins at line 0.
        return ast.parse(text), inspect.getsourcefile(source) or "", max(first, 1)
    except (OSError, TypeError, SyntaxError, IndentationError):
        return None, "", 1


def _lines(tree: ast.Module | None, name: str, *, is_attribute: bool) -> list[int]:
    """Return the lines of a tree that set a name."""
    statements = (node for node in ast.walk(tree) if isinstance(node, ast.stmt)) if tree is not None else ()
    return [node.lineno for node in statements if _sets(node, name, is_attribute=is_attribute)]


def _class_body(tree: ast.Module | None) -> list[ast.stmt]:
    return tree.body[0].body if tree is not None and tree.body and isinstance(tree.body[0], ast.ClassDef) else []


def _sets(node: ast.AST, name: str, *, is_attribute: bool) -> bool:
    """Whether a statement sets a name to something other than ``None``."""
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    value = getattr(node, "value", None)
    # `self.rng = None` only declares the attribute; another statement makes the generator.
    if value is None or (isinstance(value, ast.Constant) and value.value is None):
        return False
    own = (target for each in targets for target in (each.elts if isinstance(each, ast.Tuple) else [each]))
    return any(
        (isinstance(target, ast.Attribute) and target.attr == name)
        if is_attribute
        else (isinstance(target, ast.Name) and target.id == name)
        for target in own
    )


# The objects that a dataset holds: a walk over attributes, elements, closures, and what its methods use.


#: Limits of the walk: a dataset may hold a million paths.
_OBJECTS: Final = 3000
_DEPTH: Final = 9
_ELEMENTS: Final = 64
#: Packages whose objects hold no generator of the user's.
_LIBRARIES: Final = ("torch.", "numpy.", "PIL.", "multiprocessing.", "threading.", "logging.", "ci_autotest.")
_LEAVES: Final = (str, bytes, int, float, complex, bool, type(None), torch.Tensor, np.ndarray, torch.dtype, range)


class _Reached(NamedTuple):
    """An object of the walk: how it is reached, and the attribute through which."""

    access: str
    value: Any
    owner: Any
    attribute: str
    depth: int


def _walk(roots: dict[str, Any], ends: tuple[type, ...]) -> Iterator[_Reached]:
    """Yield the objects that can be reached, nearest first, each once.

    Args:
        roots: The objects to start from, by the name that their paths start with.
        ends: Classes of objects that are not looked into, and that count if a module's function uses them.
    """
    waiting = deque(_Reached(name, value, None, "", 0) for name, value in roots.items())
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


def _children(reached: _Reached, ends: tuple[type, ...]) -> Iterator[_Reached]:
    """Yield what an object holds: elements, attributes, and what the methods of its class use of their module."""
    access, value, depth = reached.access, reached.value, reached.depth + 1
    parts = list(_parts(value))
    for way, item in parts:
        yield _Reached(f"{access}{way}", item, reached.owner, reached.attribute, depth)
    if isinstance(value, types.MethodType) and isinstance(value.__func__, types.FunctionType):
        yield from _of_function(f"{access}.__func__", value.__func__, depth, ends)
    elif isinstance(value, types.FunctionType):
        yield from _of_function(access, value, depth, ends)
    elif isinstance(value, types.GeneratorType):
        for name, item in (value.gi_frame.f_locals if value.gi_frame is not None else {}).items():
            yield _Reached(f"{access}.gi_frame.f_locals[{name!r}]", item, value, name, depth)
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


def _of_object(reached: _Reached, depth: int, ends: tuple[type, ...]) -> Iterator[_Reached]:
    access, value = reached.access, reached.value
    for name, item in list(getattr(value, "__dict__", {}).items()):
        yield _Reached(
            f"{access}.{name}" if name.isidentifier() else f"vars({access})[{name!r}]", item, value, name, depth
        )
    for cls in type(value).__mro__:
        if _is_of_library(cls.__module__):
            continue
        for name in _slots(cls):
            if hasattr(value, name):
                yield _Reached(f"{access}.{name}", getattr(value, name), value, name, depth)
        for name, item in list(vars(cls).items()):
            if isinstance(item, ends):
                yield _Reached(f"{access}.{name}", item, value, name, depth)
            elif isinstance(item, types.FunctionType):
                yield from _of_function("", inspect.unwrap(item), depth, ends)  # the recorder wraps some


def _of_function(access: str, function: types.FunctionType, depth: int, ends: tuple[type, ...]) -> Iterator[_Reached]:
    """Yield what a function closes over, and the generators of modules that it uses."""
    if _is_of_library(function.__module__ or ""):
        return
    for number, cell in enumerate(function.__closure__ or ()) if access else ():
        held = next(iter(_contents(cell)), None)
        name = function.__code__.co_freevars[number]
        yield _Reached(f"{access}.__closure__[{number}].cell_contents", held, function, name, depth)
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


def _of_module(module: str, name: str, value: Any, depth: int) -> _Reached:
    return _Reached(f"sys.modules[{module!r}].{name}", value, sys.modules.get(module), name, depth)


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
