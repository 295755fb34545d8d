"""JAX as a framework: arrays that are never written to, gradients by ``jax.vjp`` of the program.

Each step is one XLA computation (``jax.jit`` around its function), and so is the backward pass. Compiling takes tens of
milliseconds for each shape, and JAX would compile every primitive of an uncompiled function. Functions whose shapes
depend on data cannot be compiled and run primitive by primitive.

Source: JAX 0.10, "Just-in-time compilation", "The autodiff cookbook" (complex numbers).
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ci_autotest.host.frameworks.jax_compiled import Computation, Computations
from ci_autotest.host.frameworks.jax_gradient import Gradient
from ci_autotest.host.frameworks.protocol import LackingError
from ci_autotest.host.frameworks.task import Functional, plan
from ci_autotest.program.ir import Device, DType

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ci_autotest.program.ir import Argument, Program, TensorSpec

#: Functions that are not compiled. Some may return their argument itself, which must stay the same array, so that an
#: output is differentiated once. Others return numbers, which ``jit`` would turn into arrays.
_AS_THEY_ARE: Final = frozenset({
    "jax.numpy.asarray", "jax.lax.stop_gradient", "adapters.floating", "adapters.size", "adapters.item",
    "adapters.dropout", "adapters.common_dtype", "adapters.common_float",
    "jax.numpy.ndim", "jax.numpy.size",
})  # fmt: skip
_ADAPTERS: Final = "adapters."


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
        found = self._computations.found(task.key, lambda: Gradient(self._jax, self, task))
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
