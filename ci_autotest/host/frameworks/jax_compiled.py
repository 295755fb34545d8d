"""What JAX has compiled: the newest computations are kept, and JAX's own caches are emptied with them.

JAX keeps what it traced and compiled for every shape, a megabyte or two and a dozen mappings of memory each, of which a
process may have 65,530 (measured on JAX 0.10.2, softmax); cases draw their shapes anew.
"""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable

#: Computations that are kept: enough to run a program again while it is localized and shrunk.
_KEPT: Final = 64


class Computations:
    """Keep compiled functions by what they were compiled for.

    Args:
        jax: The module.
    """

    def __init__(self, jax: Any) -> None:
        self.jax = jax
        self._kept: dict[object, Any] = {}
        errors = jax.errors
        #: What JAX raises while it traces a function whose shapes or branches follow from data.
        self.data_dependent = (
            errors.ConcretizationTypeError,
            errors.NonConcreteBooleanIndexError,
            errors.TracerArrayConversionError,
            errors.TracerIntegerConversionError,
        )

    def found(self, key: object, make: Callable[[], Any]) -> Any:
        """Return what is kept under a key, else make it."""
        kept = self._kept.get(key)
        if kept is not None:
            return kept
        if len(self._kept) >= _KEPT:
            self._kept.clear()
            self.jax.clear_caches()
            gc.collect()
        made = self._kept[key] = make()
        return made

    def replace(self, key: object, value: Any) -> None:
        """Keep something else under a key."""
        self._kept[key] = value


class Computation:
    """Call a function as one XLA computation: arrays are its arguments, everything else is constant.

    Args:
        computations: Where it is kept.
        name: What it is kept under, with the constants and shapes of a call.
        function: Of JAX, or an adapter.
    """

    def __init__(self, computations: Computations, name: str, function: Callable[..., Any]) -> None:
        self._computations = computations
        self._name = name
        self._function = function

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call it, step by step where its shape follows from data."""
        jax, function = self._computations.jax, self._function
        flat, structure = jax.tree.flatten((args, kwargs))
        is_array = [isinstance(value, jax.Array) for value in flat]
        constants = [None if array else value for value, array in zip(flat, is_array, strict=True)]
        arrays = [value for value, array in zip(flat, is_array, strict=True) if array]

        def computed(given: list[Any]) -> Any:
            taken = iter(given)
            merged = [next(taken) if array else value for value, array in zip(constants, is_array, strict=True)]
            again, named = jax.tree.unflatten(structure, merged)
            return function(*again, **named)

        shapes = tuple((value.shape, value.dtype.name) for value in arrays)
        key = (self._name, structure, tuple((type(value), repr(value)) for value in constants), shapes)
        try:
            return self._computations.found(key, lambda: jax.jit(computed))(arrays)
        except self._computations.data_dependent:
            self._computations.replace(key, computed)
            return computed(arrays)
