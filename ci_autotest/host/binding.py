"""What targets, constants and placeholders of a program are in one framework, with the data of one run."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

import numpy as np

from ci_autotest.host.frameworks.protocol import LackingError
from ci_autotest.values.dtypes import BITS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ci_autotest.host.frameworks.protocol import Framework
    from ci_autotest.program.ir import Argument, Step, TensorSpec


class Binding:
    """A framework with the data of one run, in the form that ``steps`` executes programs in.

    Args:
        tensors: Storage of each placeholder by key.

    Attributes:
        memory: Leaves that share their memory with a NumPy array, with that array.
    """

    def __init__(self, framework: Framework, tensors: Mapping[str, np.ndarray]) -> None:
        self._framework = framework
        self._tensors = tensors
        self._shares = getattr(framework, "shares", None)
        self.memory: list[tuple[Any, np.ndarray]] = []
        self.in_mode = framework.in_mode

    def wait(self) -> None:
        """Wait until all calls have finished."""
        self._framework.synchronize()

    def lacks(self, error: Exception) -> bool:
        """Whether an error means that the framework lacks a feature, rather than that it refuses the arguments."""
        return isinstance(error, LackingError | NotImplementedError) or bool(self._framework.lacking(error))

    def placeholder(self, step: Step) -> Any:
        """Return a leaf with the data of this run."""
        spec = step.spec
        assert spec is not None  # noqa: S101 - checked when recorded
        storage = self._tensors[step.target].copy()  # steps may write to the leaf, and the next run needs the data
        found = leaf(self._framework, storage, spec)
        if self._shares is not None and storage.size and spec.is_contiguous and self._shares(spec):
            self.memory.append((found, storage.reshape(spec.shape)))
        return found

    def function(self, target: str) -> Callable[..., Any]:
        """Return the function that a target names.

        Raises:
            LackingError: The framework has no such function.
        """
        try:
            if hasattr(self._framework, "backward"):  # it differentiates functions, and resolves adapters itself
                return self._framework.function(target)
            return adapter(self._framework.name, target) or self._framework.function(target)
        except LookupError:
            raise LackingError(target) from None

    def constant(self, argument: Argument) -> Any:
        """Return a dtype, device or constant of the framework.

        Raises:
            LackingError: The framework has no such constant.
        """
        try:
            return self._framework.constant(argument)
        except LookupError as error:
            raise LackingError(str(error)) from None


def adapter(framework: str, target: str) -> Callable[..., Any] | None:
    """Return the function of ``host/adapters/<framework>.py`` that a target names; ``None`` if it names none.

    Raises:
        LookupError: There is no such function.
    """
    namespace, _, name = target.partition(".")
    if namespace != "adapters":
        return None
    where = f"ci_autotest.host.adapters.{framework}"
    try:
        found = getattr(importlib.import_module(where), name, None)
    except ModuleNotFoundError as error:
        if error.name is None or not where.startswith(error.name):
            raise  # the adapters exist, and a module that they import is missing
        raise LookupError(target) from None
    # The file exists without the function, which is the same to the caller as no such file.
    if found is None:
        raise LookupError(target)
    return found  # type: ignore[no-any-return]


def has(framework: Framework, target: str) -> bool:
    """Whether a target names a function of the framework, one of our adapters, or a member of its tensors."""
    try:
        return Binding(framework, {}).function(target) is not None
    except (LookupError, ImportError):
        member = getattr(framework, "has_member", None)
        return member is not None and bool(member(target))


def leaf(framework: Framework, storage: np.ndarray, spec: TensorSpec) -> Any:
    """Return a leaf over a storage's elements, with the layout of ``spec`` if the framework can, else in C order."""
    if spec.is_contiguous:
        return framework.tensor(storage.reshape(spec.shape), spec)
    if hasattr(framework, "strided"):
        return framework.strided(storage, spec)
    return framework.tensor(elements(storage, spec), spec)


def elements(storage: np.ndarray, spec: TensorSpec) -> np.ndarray:
    """Return a storage's elements in the shape of ``spec``, in C order."""
    size = storage.itemsize
    # numpy counts strides in bytes, and a spec in elements.
    strides = tuple(stride * size for stride in spec.strides)
    view = np.lib.stride_tricks.as_strided(storage[spec.offset :], spec.shape, strides)
    return np.array(view, order="C")


def storage_dtype(dtype: str) -> np.dtype:
    """Return numpy's dtype of a tensor's elements: bfloat16 as its bits in uint16."""
    return np.dtype(BITS.get(dtype, dtype))


def storage_of(data: bytes | memoryview, dtype: str) -> np.ndarray:
    """Return bytes as an array of elements; bfloat16 as its bits in uint16."""
    return np.frombuffer(data, storage_dtype(dtype))
