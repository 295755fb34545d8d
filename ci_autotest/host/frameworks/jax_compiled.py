"""Compiled computations of JAX, in a cache of bounded size that empties JAX's own caches with it.

JAX caches what it traced and compiled for every shape: one or two megabytes and a dozen memory mappings each (measured
on JAX 0.10.2, softmax). Cases keep drawing new shapes, and a process may have 65,530 mappings.
"""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable

#: Size of the cache: enough for the runs of one program while it is localized and shrunk.
_CACHE_SIZE: Final = 64


class Computations:
    """A cache of compiled functions."""

    def __init__(self, jax: Any) -> None:
        self.jax = jax
        self._cache: dict[object, Any] = {}
        errors = jax.errors
        #: Errors that JAX raises when it traces a function whose shapes or branches depend on data.
        self.data_dependent = (
            errors.ConcretizationTypeError,
            errors.NonConcreteBooleanIndexError,
            errors.TracerArrayConversionError,
            errors.TracerIntegerConversionError,
        )

    def found(self, key: object, make: Callable[[], Any]) -> Any:
        """Return the cached value of a key, or make and cache it."""
        cached = self._cache.get(key)
        if cached is not None:
            return cached
        if len(self._cache) >= _CACHE_SIZE:
            # Clearing ours alone would free nothing: JAX's own caches hold the compiled code, too.
            self._cache.clear()
            self.jax.clear_caches()
            gc.collect()
        made = self._cache[key] = make()
        return made

    def replace(self, key: object, value: Any) -> None:
        """Cache another value under a key."""
        self._cache[key] = value


class Computation:
    """A function as one XLA computation: arrays are its arguments, and everything else is a constant.

    Args:
        computations: The cache.
        name: Key in the cache, together with the constants and shapes of a call.
        function: A function of JAX, or an adapter.
    """

    def __init__(self, computations: Computations, name: str, function: Callable[..., Any]) -> None:
        self._computations = computations
        self._name = name
        self._function = function

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function, uncompiled if its shapes depend on data."""
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
        # As text with the type, because 1, 1.0 and True are equal as keys, and NaN is not equal to itself.
        key = (self._name, structure, tuple((type(value), repr(value)) for value in constants), shapes)
        try:
            return self._computations.found(key, lambda: jax.jit(computed))(arrays)
        except self._computations.data_dependent:
            # Remembered, so that the next call does not trace in vain.
            self._computations.replace(key, computed)
            return computed(arrays)
