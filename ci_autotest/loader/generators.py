"""The random number generators that a dataset holds: found by walking its attributes, read and set by their kind."""

from __future__ import annotations

import copy
import inspect
import random
import sys
import types
from collections import deque
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import torch

from ci_autotest.loader.object_graph import Reached, walk
from ci_autotest.loader.repro import FILE_MODULE
from ci_autotest.loader.source_lines import local_line, module_line, self_line

#: The classes of generators, with the names that users write.
_NAMES: Final = {
    np.random.Generator: "numpy.random.Generator",
    np.random.RandomState: "numpy.random.RandomState",
    random.Random: "random.Random",
    torch.Generator: "torch.Generator",
}
GENERATORS: Final = tuple(_NAMES)


class Found(NamedTuple):
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


def global_generators() -> list[Found]:
    """Return the generators that torch seeds in each worker: those of random, numpy and torch."""
    # `random` has no public name for its generator, but its functions are bound methods of that object.
    held: Any = random.random
    return [
        Found("random", held.__self__, "the global generator of random", is_global=True),
        Found("numpy.random", np.random.mtrand._rand, "the global generator of numpy.random", is_global=True),  # noqa: SLF001 - it has no public name
        Found("torch.default_generator", torch.default_generator, "the global generator of torch", is_global=True),
    ]


def held_generators(**roots: Any) -> list[Found]:
    """Return the generators that can be reached from some objects, each at its shortest path.

    Args:
        roots: The objects, by the name that the path starts with.
    """
    shared = {id(item.generator) for item in global_generators()}
    found: dict[int, Found] = {}
    for reached in walk(roots, GENERATORS):
        value = reached.value
        if isinstance(value, GENERATORS) and id(value) not in found and id(value) not in shared and _has_state(value):
            found[id(value)] = _found(reached, roots)
    return list(found.values())


def plain_numbers(**roots: Any) -> int:
    """Return a hash of the numbers and the container sizes that can be reached; generators do not count."""
    parts = []
    for reached in walk(roots, GENERATORS):
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


def _found(reached: Reached, roots: dict[str, Any]) -> Found:
    """Return a generator with its place in words and the line that makes it."""
    owner, name = reached.owner, reached.attribute
    if isinstance(owner, types.ModuleType):
        file = Path(owner.__file__ or owner.__name__).stem if owner.__name__.startswith(FILE_MODULE) else owner.__name__
        return Found(reached.access, reached.value, f"{file}.{name}", module_line(owner, name))
    if isinstance(owner, types.GeneratorType):
        return Found(reached.access, reached.value, f"{name} of {owner.__qualname__}", local_line(owner.gi_code, name))
    if inspect.isfunction(owner):
        return Found(reached.access, reached.value, f"{name} of {owner.__qualname__}", local_line(owner.__code__, name))
    if owner is None:
        return Found(reached.access, reached.value, reached.access)
    is_root = any(owner is root for root in roots.values())
    cls: Any = type(owner)
    of = "" if is_root else f" of {dotted_name(cls)}"
    return Found(reached.access, reached.value, f"self.{name}{of}", self_line(cls, name))
