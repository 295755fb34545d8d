"""JAX as a framework: arrays that are never written to, gradients by ``jax.vjp`` of the program.

Each step is one XLA computation (``jax.jit`` around its function), and so is the backward pass: compiling takes tens of
milliseconds for each shape, and a function of JAX called by itself compiles every one of its primitives. What cannot be
compiled because its shape follows from data runs primitive by primitive.

Source: JAX 0.10, "Just-in-time compilation", "Autodiff cookbook" (complex numbers).
"""

from __future__ import annotations

import importlib
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ci_autotest.execute.frameworks.jax_gradient import Gradient, plan
from ci_autotest.execute.refusal import NoCounterpart
from ci_autotest.program.ir import NO_GRAD, Device, DType

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ci_autotest.program.ir import Argument, Program, Step, TensorSpec

#: Compiled steps and backward passes that are kept; what is older is forgotten.
_KEPT: Final = 256
#: New computations after which JAX's own caches are emptied: they hold what was traced for every shape.
_CLEARED_AFTER: Final = 2048
#: Functions that return their argument as it is: it must stay the same array, for an output is a root once.
_IDENTITIES: Final = frozenset({"jax.numpy.asarray", "jax.lax.stop_gradient", "adapters.floating"})
_ADAPTERS: Final = "adapters."


class JaxFramework:
    """Execute translated programs with JAX on the host's processor."""

    name = "jax"
    has_flags = False
    shows_steps = True

    def __init__(self) -> None:
        """Import JAX, with 64-bit types, products in full precision, and no work in the background."""
        self._jax: Any = importlib.import_module("jax")
        for key, value in (
            ("jax_platforms", "cpu"),
            ("jax_enable_x64", True),
            ("jax_default_matmul_precision", "highest"),
            ("jax_cpu_enable_async_dispatch", False),
        ):
            self._jax.config.update(key, value)
        self._adapters: Any = importlib.import_module("ci_autotest.execute.adapters.jax")
        self.version: str = self._jax.__version__
        self._array: Any = self._jax.Array
        self._functions: dict[str, Callable[..., Any]] = {}
        self._compiled: OrderedDict[object, Any] = OrderedDict()
        self._count = 0
        errors = self._jax.errors
        self._data_dependent = (
            errors.ConcretizationTypeError,
            errors.NonConcreteBooleanIndexError,
            errors.TracerArrayConversionError,
            errors.TracerIntegerConversionError,
        )

    def libraries(self) -> dict[str, str]:
        """Return the versions of what JAX computes with."""
        return {"jaxlib": importlib.import_module("jaxlib").__version__, "numpy": np.__version__}

    def tensor(self, array: np.ndarray[Any, Any], spec: TensorSpec) -> Any:  # noqa: ANN401 - an array of JAX
        """Return an array; bfloat16 comes as its bits."""
        given = array.view(self._jax.numpy.bfloat16) if spec.dtype == "bfloat16" else array
        return self._jax.device_put(given)

    def array(self, tensor: Any) -> np.ndarray[Any, Any]:  # noqa: ANN401 - an array of JAX
        """Return the elements in C order; no array of JAX ever changes."""
        found = np.ascontiguousarray(tensor).reshape(tensor.shape)
        return found.view(np.uint16) if tensor.dtype == self._jax.numpy.bfloat16 else found

    def is_tensor(self, value: Any) -> bool:  # noqa: ANN401 - whatever a step gave
        """Whether a value is an array of JAX, or one that is being traced."""
        return isinstance(value, self._array)

    def facts(self, tensor: Any) -> tuple[str, tuple[int, ...], bool, bool]:  # noqa: ANN401 - an array of JAX
        """Return dtype and shape; JAX's arrays know nothing of gradients."""
        return tensor.dtype.name, tuple(tensor.shape), False, False

    def function(self, target: str) -> Callable[..., Any]:
        """Return what a target names, compiled as one computation for each shape and constant.

        Raises:
            LookupError: JAX has no such function.
        """
        found = self._functions.get(target)
        if found is None:
            named = self._named(target)
            found = named if target in _IDENTITIES else _Computation(self, target, named)
            self._functions[target] = found
        return found

    def constant(self, argument: Argument) -> Any:  # noqa: ANN401 - a dtype or device
        """Return a dtype or device.

        Raises:
            NoCounterpart: A constant of torch that JAX has not.
        """
        if isinstance(argument, DType):
            return self._jax.numpy.dtype(argument.name)
        if isinstance(argument, Device):
            return self._jax.devices("cpu")[0]
        message = f"JAX has no constant {argument!r}"
        raise NoCounterpart(message)

    def in_mode(self, step: Step, call: Callable[[], Any]) -> Any:  # noqa: ANN401 - whatever the step gives
        """Call with gradients off; seeds mean nothing, for random operators are unsupported.

        Raises:
            NoCounterpart: Another mode than ``no_grad``.
        """
        if not step.modes:
            return call()
        if step.modes != NO_GRAD:
            message = f"mode {step.modes[0]!r}: JAX has none like it"
            raise NoCounterpart(message)
        return self._jax.tree.map(self._stopped, call())

    def gradients(
        self, outputs: Sequence[Any], weights: Sequence[Any], inputs: Sequence[Any]
    ) -> Sequence[Any | None]:
        """Refuse: arrays of JAX hold no graph; ``backward`` differentiates the program."""
        message = "arrays of JAX hold no graph: the program is differentiated, by `backward`"
        raise NotImplementedError(message)

    def backward(
        self, program: Program, values: Sequence[Any], weights: Mapping[int, Any], leaves: Sequence[int]
    ) -> list[Any | None]:
        """Return the gradients of leaves, by ``jax.vjp`` of the program as a function of them.

        Args:
            program: Translated.
            values: Of each step, from the forward run.
            weights: The gradient that is put into each output, by its position.
            leaves: Steps whose gradients are asked for.

        Returns:
            One for each leaf; ``None`` where no output depends on it by what can be differentiated. Complex gradients
            are the conjugates of JAX's, and so are the weights: PyTorch's is the direction of steepest ascent.
        """
        task = plan(self, program, values, weights, leaves)
        if not task.leaves or not task.roots:
            return [None] * len(leaves)
        found = self._compiled_or(task.key, lambda: Gradient(self._jax, self, task))
        try:
            return found.compiled(values, weights)
        except self._data_dependent:
            return found.stepwise(values, weights)

    def synchronize(self) -> None:
        """Do nothing: dispatch is synchronous."""

    def _stopped(self, value: Any) -> Any:  # noqa: ANN401 - an array or number
        return self._jax.lax.stop_gradient(value) if isinstance(value, self._jax.core.Tracer) else value

    def _named(self, target: str) -> Callable[..., Any]:
        if target.startswith(_ADAPTERS):
            found = getattr(self._adapters, target.removeprefix(_ADAPTERS), None)
        else:
            found = _attribute(target)
        if not callable(found):
            message = f"JAX {self.version} has no {target}"
            raise LookupError(message)
        return found  # type: ignore[no-any-return]

    def _compiled_or(self, key: object, make: Callable[[], Any]) -> Any:  # noqa: ANN401 - what `make` returns
        """Return what was compiled for a key, else make it; forget the oldest."""
        found = self._compiled.get(key)
        if found is not None:
            self._compiled.move_to_end(key)
            return found
        self._count += 1
        if self._count % _CLEARED_AFTER == 0:
            self._compiled.clear()
            self._jax.clear_caches()
        found = self._compiled[key] = make()
        if len(self._compiled) > _KEPT:
            self._compiled.popitem(last=False)
        return found


class _Computation:
    """Call a function as one XLA computation: arrays are its arguments, everything else is constant."""

    def __init__(self, framework: JaxFramework, target: str, function: Callable[..., Any]) -> None:
        self._framework = framework
        self._target = target
        self._function = function
        self._tree: Any = framework._jax.tree
        self._depends_on_data = False

    def __call__(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - as the function
        framework, function = self._framework, self._function
        if self._depends_on_data:
            return function(*args, **kwargs)
        flat, structure = self._tree.flatten((args, kwargs))
        is_array = [framework.is_tensor(value) for value in flat]
        constants = [None if array else value for value, array in zip(flat, is_array, strict=True)]
        arrays = [value for value, array in zip(flat, is_array, strict=True) if array]
        shapes = tuple((value.shape, value.dtype.name) for value in arrays)
        key = (self._target, structure, tuple((type(value), repr(value)) for value in constants), shapes)

        def computed(given: list[Any]) -> Any:  # noqa: ANN401 - as the function
            taken = iter(given)
            merged = [next(taken) if array else value for value, array in zip(constants, is_array, strict=True)]
            again, named = self._tree.unflatten(structure, merged)
            return function(*again, **named)

        compiled = framework._compiled_or(key, lambda: framework._jax.jit(computed))
        try:
            return compiled(arrays)
        except framework._data_dependent:
            self._depends_on_data = True
            return function(*args, **kwargs)


def _attribute(target: str) -> Any:  # noqa: ANN401 - what the path names, or None
    """Return what a dotted path names, importing submodules on the way."""
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
