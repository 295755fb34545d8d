"""Bind a framework to the interpreter of programs: targets, constants, and the data of one run."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ci_autotest.host.frameworks.protocol import LackingError
from ci_autotest.program.ir import TensorSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ci_autotest.host.frameworks.protocol import Framework
    from ci_autotest.program.ir import Argument, Step

#: numpy's dtype of a tensor's elements as they go over the wire: bfloat16 as its bits.
_BITS: Final = {"bfloat16": "uint16"}


class Binding:
    """A framework as the interpreter of programs asks for it, with the data of one run.

    Args:
        framework: Runs the steps.
        tensors: Storage of each placeholder by key.

    Attributes:
        memory: Leaves whose elements are in memory of NumPy's, with that memory.
    """

    def __init__(self, framework: Framework, tensors: Mapping[str, np.ndarray]) -> None:
        self._framework = framework
        self._tensors = tensors
        self._shares = getattr(framework, "shares", None)
        self.memory: list[tuple[Any, np.ndarray]] = []
        self.in_mode = framework.in_mode

    def wait(self) -> None:
        """Wait until what was called is done."""
        self._framework.synchronize()

    def lacks(self, error: Exception) -> bool:
        """Whether an error says that the framework has not what was asked for."""
        return isinstance(error, LackingError | NotImplementedError) or bool(self._framework.lacking(error))

    def placeholder(self, step: Step) -> Any:
        """Return a leaf of the data of one run."""
        spec = step.args[0]
        assert isinstance(spec, TensorSpec)  # noqa: S101 - checked when recorded
        storage = self._tensors[step.target].copy()
        found = leaf(self._framework, storage, spec)
        if self._shares is not None and storage.size and spec.is_contiguous and self._shares(spec):
            self.memory.append((found, storage.reshape(spec.shape)))
        return found

    def function(self, target: str) -> Callable[..., Any]:
        """Return what a target names.

        Raises:
            LackingError: The framework has no such thing.
        """
        try:
            if hasattr(self._framework, "backward"):  # it differentiates functions: its adapters are its own business
                return self._framework.function(target)
            return adapter(self._framework.name, target) or self._framework.function(target)
        except LookupError:
            raise LackingError(target) from None

    def constant(self, argument: Argument) -> Any:
        """Return a dtype, device or constant.

        Raises:
            LackingError: The framework has no such thing.
        """
        try:
            return self._framework.constant(argument)
        except LookupError as error:
            raise LackingError(str(error)) from None


def adapter(framework: str, target: str) -> Callable[..., Any] | None:
    """Return the function of ``host/adapters/<framework>.py`` that a target names, ``None`` for another target.

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
            raise  # what it imports is missing
        raise LookupError(target) from None
    if found is None:
        raise LookupError(target)
    return found  # type: ignore[no-any-return]


def has(framework: Framework, target: str) -> bool:
    """Whether a framework has what a target names: a function, an adapter of ours, or a member of its tensors."""
    try:
        return Binding(framework, {}).function(target) is not None
    except (LookupError, ImportError):
        member = getattr(framework, "has_member", None)
        return member is not None and bool(member(target))


def leaf(framework: Framework, storage: np.ndarray, spec: TensorSpec) -> Any:
    """Return a leaf of a storage's elements: in its own layout where the framework has layouts, else in C order."""
    if spec.is_contiguous:
        return framework.tensor(storage.reshape(spec.shape), spec)
    if hasattr(framework, "strided"):
        return framework.strided(storage, spec)
    return framework.tensor(elements(storage, spec), spec)


def elements(storage: np.ndarray, spec: TensorSpec) -> np.ndarray:
    """Return a storage's elements in the shape of ``spec``, in C order."""
    size = storage.itemsize
    strides = tuple(stride * size for stride in spec.strides)
    view = np.lib.stride_tricks.as_strided(storage[spec.offset :], spec.shape, strides)
    return np.array(view, order="C")


def storage_dtype(dtype: str) -> np.dtype:
    """Return numpy's dtype of a tensor's elements: bfloat16 as its bits in uint16."""
    return np.dtype(_BITS.get(dtype, dtype))


def storage_of(data: bytes | memoryview, dtype: str) -> np.ndarray:
    """Return the elements that bytes hold; bfloat16 as its bits in uint16."""
    return np.frombuffer(data, storage_dtype(dtype))
