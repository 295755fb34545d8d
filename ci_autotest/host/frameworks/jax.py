"""JAX as a framework: arrays that are never written to, gradients by ``jax.vjp`` of the program.

Each step is one XLA computation (``jax.jit`` around its function), and so is the backward pass. Compiling takes tens of
milliseconds for each shape, and JAX would compile every primitive of an uncompiled function. Functions whose shapes
depend on data cannot be compiled and run primitive by primitive.

JAX caches what it traced and compiled for every shape: one or two megabytes and a dozen memory mappings each (measured
on JAX 0.10.2, softmax). Cases keep drawing new shapes, and a process may have 65,530 mappings, so the cache of compiled
computations has a bound and empties JAX's own caches with it.

For complex numbers PyTorch's gradient is the direction of steepest ascent, which is the conjugate of JAX's. So weights
are conjugated before the backward pass, and gradients after it.

Source: JAX 0.10, "Just-in-time compilation", "The autodiff cookbook" (complex numbers); PyTorch 2.13, "Autograd
mechanics".
"""

from __future__ import annotations

import gc
import importlib
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ci_autotest.host.frameworks.protocol import LackingError
from ci_autotest.host.frameworks.task import Functional, plan
from ci_autotest.host.steps import execute_step
from ci_autotest.program.ir import Device, DType

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ci_autotest.host.frameworks.task import Differentiation
    from ci_autotest.program.ir import Argument, Program, TensorSpec

#: Functions that are not compiled. Some may return their argument itself, which must stay the same array, so that an
#: output is differentiated once. Others return numbers, which ``jit`` would turn into arrays.
_AS_THEY_ARE: Final = frozenset({
    "jax.numpy.asarray", "jax.lax.stop_gradient", "adapters.floating", "adapters.size", "adapters.item",
    "adapters.dropout", "adapters.common_dtype", "adapters.common_float",
    "jax.numpy.ndim", "jax.numpy.size",
})  # fmt: skip
_ADAPTERS: Final = "adapters."
#: Size of the cache: enough for the runs of one program while it is localized and shrunk.
_CACHE_SIZE: Final = 64


class Jax(Functional):
    """Execute translated programs with JAX on the host's processor.

    Args:
        module: ``jax``.
        device: ``cpu``.
    """

    name = "jax"
    has_flags = False
    undifferentiated = frozenset({
        "jax.lax.stop_gradient", "adapters.zeros_like", "adapters.ones_like", "adapters.full_like",
        "adapters.new_zeros", "adapters.new_ones",
    })  # fmt: skip

    def __init__(self, module: str = "jax", device: str = "cpu") -> None:
        """Import JAX with 64-bit types, matrix products in full precision, and synchronous dispatch.

        Raises:
            LackingError: Another device.
        """
        if device != "cpu":
            message = f"device {device} here: the adapter of JAX runs on cpu"
            raise LackingError(message)
        jax = self._jax = importlib.import_module(module)
        for key, value in (
            ("jax_platforms", "cpu"),
            ("jax_enable_x64", True),
            ("jax_default_matmul_precision", "highest"),
            ("jax_cpu_enable_async_dispatch", False),  # so that an error is raised at its own step
        ):
            jax.config.update(key, value)
        self._adapters = importlib.import_module("ci_autotest.host.adapters.jax")
        self.version: str = jax.__version__
        self._computations = Computations(jax)
        self._functions: dict[str, Callable[..., Any]] = {}

    def libraries(self) -> dict[str, str]:
        """Return the versions of what JAX computes with."""
        return {"jaxlib": importlib.import_module("jaxlib").__version__, "numpy": np.__version__}

    def devices(self) -> list[str]:
        """Return the platforms that JAX can use here."""
        return sorted({"cpu", *(device.platform for device in self._jax.devices())})

    def tensor(self, array: np.ndarray[Any, Any], spec: TensorSpec) -> Any:
        """Return an array."""
        # numpy has no bfloat16: the array has its bits.
        return self._jax.device_put(array.view(self._jax.numpy.bfloat16) if spec.dtype == "bfloat16" else array)

    def array(self, tensor: Any) -> np.ndarray[Any, Any]:
        """Return the elements in C order. They need no copy, because an array of JAX never changes."""
        found = np.ascontiguousarray(tensor).reshape(tensor.shape)
        return found.view(np.uint16) if tensor.dtype == self._jax.numpy.bfloat16 else found

    def is_tensor(self, value: Any) -> bool:
        """Whether a value is an array of JAX, or a tracer of one."""
        return isinstance(value, self._jax.Array)

    def is_inexact(self, tensor: Any) -> bool:
        """Whether an array can be differentiated; the dtypes that numpy lacks, bfloat16 among them, are of kind V."""
        return tensor.dtype.kind in "fcV"

    def facts(self, tensor: Any) -> tuple[str, tuple[int, ...], bool, bool]:
        """Return dtype and shape. JAX's arrays have no flags."""
        return tensor.dtype.name, tuple(tensor.shape), False, False

    def function(self, target: str) -> Callable[..., Any]:
        """Return the function that a target names, compiled once for each combination of shapes and constants.

        Raises:
            LackingError: JAX has no such function.
        """
        found = self._functions.get(target)
        if found is None:
            named = self.named(target)
            found = named if target in _AS_THEY_ARE else Computation(self._computations, target, named)
            self._functions[target] = found
        return found

    def named(self, target: str) -> Callable[..., Any]:
        """Return the function that a target names, uncompiled.

        Raises:
            LackingError: JAX has no such function.
        """
        if target.startswith(_ADAPTERS):
            found = getattr(self._adapters, target.removeprefix(_ADAPTERS), None)
        else:
            found = _attribute(target)
        if not callable(found):
            raise LackingError(target)
        return found  # type: ignore[no-any-return]

    def constant(self, argument: Argument) -> Any:
        """Return a dtype or device.

        Raises:
            LackingError: JAX has no such constant.
        """
        if isinstance(argument, DType):
            return self._jax.numpy.dtype(argument.name)
        if isinstance(argument, Device):
            return self._jax.devices("cpu")[0]
        message = f"constant {argument!r}"
        raise LackingError(message)

    def backward(
        self, program: Program, values: Sequence[Any], weights: Mapping[int, Any], leaves: Sequence[int]
    ) -> list[Any | None]:
        """Return the gradients of leaves, by ``jax.vjp`` of the program as a function of the leaves.

        Args:
            program: Translated.
            values: Value of each step, from the forward run.
            weights: Cotangent of each output, by its position.
            leaves: Steps whose gradients are requested.

        Returns:
            One gradient for each leaf; ``None`` if no output depends on it differentiably.
        """
        # Only what lies between leaves and outputs runs again.
        task = plan(self, program, values, weights, leaves)
        if not task.leaves or not task.roots:
            return [None] * len(leaves)
        found = self._computations.found(task.key, lambda: CompiledGradient(self._jax, self, task))
        try:
            return found.compiled(values, weights)  # type: ignore[no-any-return]
        except self._computations.data_dependent:
            return found.stepwise(values, weights)  # type: ignore[no-any-return]

    def lacking(self, error: BaseException) -> str:
        """Return the feature that JAX reports as not implemented."""
        return str(error).strip().partition("\n")[0] if isinstance(error, NotImplementedError) else ""

    def synchronize(self) -> None:
        """Do nothing, because dispatch is synchronous."""


def _attribute(target: str) -> Any:
    """Return the object at a dotted path, importing submodules on the way; ``None`` if there is none."""
    first, *names = target.split(".")
    found: Any = importlib.import_module(first)
    path = first
    for name in names:
        path = f"{path}.{name}"
        if not hasattr(found, name):
            try:
                importlib.import_module(path)
            except ImportError:
                return None
        found = getattr(found, name, None)
    return found


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


class CompiledGradient:
    """The backward pass of one task, compiled as one computation."""

    def __init__(self, jax: Any, framework: Any, task: Differentiation) -> None:
        self._jax = jax
        self._framework = framework
        self._task = task
        self._jitted = jax.jit(self._pulled_back)

    def compiled(self, values: Sequence[Any], weights: Mapping[int, Any]) -> list[Any | None]:
        """Return the gradient of each requested leaf."""
        return self._in_order(self._jitted(*self._arguments(values, weights)))

    def stepwise(self, values: Sequence[Any], weights: Mapping[int, Any]) -> list[Any | None]:
        """Return the same without compiling the pass, for steps whose shapes depend on data."""
        return self._in_order(self._pulled_back(*self._arguments(values, weights)))

    def _arguments(self, values: Sequence[Any], weights: Mapping[int, Any]) -> tuple[list[Any], list[Any], list[Any]]:
        task = self._task
        return (
            [values[i] for i in task.leaves],
            [values[i] for i in task.given],
            [weights[position] for _, position in task.roots],
        )

    def _pulled_back(self, leaves: list[Any], given: list[Any], weights: list[Any]) -> list[Any]:
        """Return the vector-Jacobian product in PyTorch's convention for complex numbers."""
        jnp = self._jax.numpy
        # The other arrays are arguments of the compiled pass and not of the differentiated function: they get no
        # gradient.
        outputs, pull = self._jax.vjp(lambda *arrays: self._forward(arrays, given), *leaves)
        # JAX refuses a weight in another dtype than its output's.
        conjugated = [jnp.conj(weight.astype(output.dtype)) for weight, output in zip(weights, outputs, strict=True)]
        return [jnp.conj(gradient) for gradient in pull(tuple(conjugated))]

    def _forward(self, leaves: Sequence[Any], given: Sequence[Any]) -> tuple[Any, ...]:
        """Run the dependent steps again, on tracers of the leaves."""
        task = self._task
        values: list[Any] = [None] * len(task.steps)
        for indices, found in ((task.leaves, leaves), (task.given, given), (task.fixed, task.fixed.values())):
            for index, value in zip(indices, found, strict=True):
                values[index] = value
        for index in task.again:
            values[index] = execute_step(task.steps[index], values, self._framework)
        return tuple(values[index] for index, _ in task.roots)

    def _in_order(self, found: Sequence[Any]) -> list[Any | None]:
        gradients = dict(zip(self._task.leaves, found, strict=True))
        return [gradients.get(index) for index in self._task.asked]
