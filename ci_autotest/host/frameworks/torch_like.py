"""Any module with torch's names: another version of torch, OneFlow, or a module of the user's own."""

from __future__ import annotations

import importlib
from contextlib import ExitStack
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ci_autotest.host.frameworks.limitations import Limitation, reported_limitation
from ci_autotest.host.frameworks.protocol import LackingError
from ci_autotest.program.ir import OWN_DEVICE, Device, DType, FrameworkConstant, autocast_dtype
from ci_autotest.values.dtypes import DTYPES, FLOAT8

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager

    from ci_autotest.program.ir import Argument, Step, TensorSpec

#: Names under which some frameworks print their dtypes.
_DTYPES: Final = {"float": "float32", "double": "float64", "half": "float16", "long": "int64", "int": "int32"}
#: How torch 1.12 and later, and Python, report a missing kernel, gradient or argument.
_LIMITATIONS: Final = (
    Limitation(RuntimeError, r"(?:\"\w+\" )+not implemented for '\w+'"),
    Limitation(RuntimeError, r"(?:the )?derivative for \S+ is not implemented"),
    Limitation(RuntimeError, r"Please look up dimensions by name, got: name = None"),
    Limitation(TypeError, r"[\w.<>]+\(\) got an unexpected keyword argument '\w+'"),
    Limitation(TypeError, r"[\w.<>]+\(\) takes (?:from )?\d+ (?:to \d+ )?positional arguments? but"),
    Limitation(TypeError, r"[\w.]+\(\)(?: |: )received an invalid combination of arguments"),
)


class TorchLike:
    """Execute with a module that has torch's names.

    Args:
        module: Name of the module, such as ``torch`` or ``oneflow``.
        device: ``cpu`` or ``cuda``; the symbol ``device`` of a program is bound to it.
    """

    has_flags = True

    def __init__(self, module: str, device: str) -> None:
        """Import the framework.

        Raises:
            ImportError: It cannot be imported.
        """
        self.name = module
        self._module: Any = importlib.import_module(module)
        self.version = str(getattr(self._module, "__version__", "of unknown version"))
        self._device: Any = self._module.device(device)
        self._cpu: Any = self._module.device("cpu")
        self._tensor: Any = self._module.Tensor

    def libraries(self) -> dict[str, str]:
        """Return the version of numpy."""
        return {"numpy": np.__version__}

    def tensor(self, array: np.ndarray, spec: TensorSpec) -> Any:
        """Return a leaf."""
        return self._leaf(self._of_array(array, spec.dtype), spec)

    def strided(self, storage: np.ndarray, spec: TensorSpec) -> Any:
        """Return a leaf with the layout of ``spec``."""
        flat = self._of_array(storage, spec.dtype)
        return self._leaf(flat.as_strided(spec.shape, spec.strides, spec.offset), spec)

    def _of_array(self, array: np.ndarray, dtype: str) -> Any:
        module = self._module
        if not array.size:
            # ``from_numpy`` would take over the strides that numpy gives to an empty array.
            return module.zeros(array.shape, dtype=self._dtype(dtype))
        if dtype in FLOAT8:
            return module.from_numpy(array).view(self._dtype(dtype))
        if dtype != "bfloat16":
            return module.from_numpy(array)
        try:
            # A view of the bits if the framework has one, because a conversion may flip the sign of a NaN.
            found = module.from_numpy(array.view(np.int16)).view(self._dtype("bfloat16"))
            if name_of(found.dtype) == "bfloat16":
                return found
        except (TypeError, RuntimeError, ValueError):
            pass  # This framework's tensors have no such view.
        # In NumPy before 2, a plain 16 would turn a 0-dim array into 64 bits.
        wide = module.from_numpy(np.asarray(array.astype(np.uint32) << np.uint32(16)).view(np.float32))
        return wide.to(self._dtype("bfloat16"))

    def _leaf(self, tensor: Any, spec: TensorSpec) -> Any:
        if spec.device == OWN_DEVICE and self._device != self._cpu:
            tensor = tensor.to(self._device)
        return tensor.requires_grad_() if spec.requires_grad else tensor

    def array(self, tensor: Any) -> np.ndarray:
        """Return a tensor's elements in C order."""
        value = tensor.detach()
        for name in ("resolve_conj", "resolve_neg"):
            value = getattr(value, name)() if hasattr(value, name) else value
        value = value.cpu()
        if name_of(value.dtype) == "bfloat16":
            # A float32 holds every bfloat16 exactly, with the payload of a NaN: its bits are the upper half.
            bits = np.ascontiguousarray(value.to(self._dtype("float32")).numpy()).view(np.uint32)
            return np.asarray(bits >> 16, np.uint16).reshape(value.shape)
        if name_of(value.dtype) in FLOAT8:
            value = value.view(self._dtype("uint8"))
        if name_of(value.dtype) not in DTYPES:
            message = f"elements of {name_of(value.dtype)} that NumPy can hold"
            raise LackingError(message)
        return np.array(value.numpy(), order="C")

    def is_tensor(self, value: Any) -> bool:
        """Whether a value is a tensor."""
        return isinstance(value, self._tensor)

    def facts(self, tensor: Any) -> tuple[str, tuple[int, ...], bool, bool]:
        """Return dtype, shape, ``requires_grad`` and ``is_leaf``."""
        return name_of(tensor.dtype), tuple(tensor.shape), bool(tensor.requires_grad), bool(tensor.is_leaf)

    def function(self, target: str) -> Callable[..., Any]:
        """Return the function that a target names."""
        root, *parts = target.split(".")
        found: Any = self._module if root == self.name.partition(".")[0] else None
        for part in parts:
            found = getattr(found, part, None)
        if found is None or not callable(found):
            raise LackingError(target)
        if self._device != self._cpu and isinstance(found, type) and hasattr(found, "named_parameters"):
            module, device = found, self._device  # Recorded on the CPU, the program has no step that moves it.
            return lambda *args, **kwargs: module(*args, **kwargs).to(device)
        return found  # type: ignore[no-any-return]

    def has_member(self, target: str) -> bool:
        """Whether a target names a member of the tensor class, which ``function`` does not find if it is a property."""
        *owner, name = target.split(".")
        return owner == [self.name.partition(".")[0], "Tensor"] and hasattr(self._tensor, name)

    def devices(self) -> list[str]:
        """Return the kinds of devices that can be used here."""
        cuda = getattr(self._module, "cuda", None)
        return ["cpu", "cuda"] if cuda is not None and cuda.is_available() else ["cpu"]

    def constant(self, argument: Argument) -> Any:
        """Return a dtype, device or constant."""
        if isinstance(argument, DType):
            return self._dtype(argument.name)
        if isinstance(argument, Device):
            return self._device if argument.symbol == OWN_DEVICE else self._cpu
        name = (
            argument.target.rpartition(".")[2] if isinstance(argument, FrameworkConstant) else type(argument).__name__
        )
        if not hasattr(self._module, name):
            raise LackingError(name)
        return getattr(self._module, name)

    def _dtype(self, name: str) -> Any:
        if not hasattr(self._module, name):
            message = f"dtype {name}"
            raise LackingError(message)
        return getattr(self._module, name)

    def in_mode(self, step: Step, call: Callable[[], Any]) -> Any:
        """Call under the step's modes and seed."""
        if step.seed is not None:
            self._module.manual_seed(step.seed)
        with ExitStack() as stack:
            for mode in step.modes:
                stack.enter_context(self._mode(mode))
            return call()

    def _mode(self, mode: str) -> AbstractContextManager[object]:
        dtype = autocast_dtype(mode)
        if dtype is None:
            return self._module.no_grad()  # type: ignore[no-any-return]
        if not hasattr(self._module, "autocast"):
            message = "autocast"
            raise LackingError(message)
        kind = str(self._device).partition(":")[0]
        # Without the cache, because it would outlive the step.
        return self._module.autocast(kind, dtype=self._dtype(dtype), cache_enabled=False)  # type: ignore[no-any-return]

    def gradients(self, outputs: Sequence[Any], weights: Sequence[Any], inputs: Sequence[Any]) -> Sequence[Any]:
        """Return the gradient for each input; ``None`` for an input that no output depends on.

        Raises:
            LackingError: The framework has no ``autograd.grad``.
        """
        grad = getattr(getattr(self._module, "autograd", None), "grad", None)
        if grad is None:
            message = "autograd.grad"
            raise LackingError(message)
        # An input that no output depends on is no error: it has no gradient.
        return list(grad(list(outputs), list(inputs), list(weights), allow_unused=True))

    def lacking(self, error: BaseException) -> str:
        """Return the feature that the framework reports as missing: a kernel for a dtype, an argument of a function."""
        found = reported_limitation(error, str(error), _LIMITATIONS)
        return str(error).strip().splitlines()[0].rstrip(".") if found else ""

    def synchronize(self) -> None:
        """Wait for the device."""
        if self._device != self._cpu:
            self._module.cuda.synchronize()


@lru_cache(maxsize=64)
def name_of(dtype: object) -> str:
    """Return a dtype's name without the framework's."""
    name = str(dtype).rpartition(".")[2]
    return _DTYPES.get(name, name)
