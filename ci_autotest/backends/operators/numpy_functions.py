"""Functions of NumPy arrays as operators of torch: tensors become arrays, and arrays become tensors again.

A gradient comes from the user's formula or from central differences in float64; without either there is none.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import numpy as np
import torch

from ci_autotest.errors import AuthorError
from ci_autotest.values.dtypes import BITS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

#: Packages whose functions take and return arrays.
_PACKAGES: Final = frozenset({"numpy", "scipy"})
#: Most elements of one argument that are varied one by one.
ELEMENTS_AT_MOST: Final = 4096
#: Step of a central difference relative to the argument: the cube root of float64's resolution balances its two errors.
_STEP: Final = float(np.finfo(np.float64).eps ** (1 / 3))

#: Dtypes that NumPy has not.
_UNKNOWN: Final = frozenset(getattr(torch, name) for name in BITS)

Gradient: TypeAlias = "Callable[..., Any] | Literal['differences'] | None"


class NumpyFunction:
    """A function of arrays that takes and returns tensors.

    Args:
        function: Takes and returns NumPy arrays.
        gradient: ``gradient(cotangent, *args, **kwargs)`` returns an array for each tensor argument, in order;
            ``"differences"`` for central differences; ``None`` for none.
        is_standard: Whether it is what a candidate is held against, and not a candidate.
    """

    def __init__(self, function: Callable[..., Any], gradient: Gradient = None, *, is_standard: bool = False) -> None:
        functools.update_wrapper(self, function)
        self.function = function
        self.gradient = gradient
        self.is_standard = is_standard
        self._is_checked = False

    @property
    def lacks_gradient(self) -> bool:
        """Whether it has no gradient to compare."""
        return self.gradient is None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function on the arrays of its tensors."""
        keys, values = [*range(len(args)), *kwargs], [*args, *kwargs.values()]
        of_tensors = [key for key, value in zip(keys, values, strict=True) if isinstance(value, torch.Tensor)]
        tensors = [value for value in values if isinstance(value, torch.Tensor)]

        def call(function: Callable[..., Any], arrays: Sequence[Any], *first: Any) -> Any:
            given = dict(zip(keys, values, strict=True)) | dict(zip(of_tensors, arrays, strict=True))
            return function(*first, *(given[i] for i in range(len(args))), **{key: given[key] for key in kwargs})

        if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
            return _Applied.apply(self, call, *tensors)  # type: ignore[no-untyped-call]
        return self.values(call, tensors)

    def values(self, call: Callable[..., Any], tensors: Sequence[torch.Tensor]) -> Any:
        """Return the results as tensors."""
        found = call(self.function, list(map(array_of, tensors)))
        if isinstance(found, tuple | list):
            return tuple(self._result(item, tensors) for item in found)
        return self._result(found, tensors)

    def _result(self, value: Any, tensors: Sequence[torch.Tensor]) -> torch.Tensor:
        if np.asarray(value).dtype.kind not in "biufc":
            message = f"{self.function.__name__} returned {value!r:.80}, which is no array of numbers. Return arrays."
            # A standard that returns nothing is a wrong test; a candidate that does so is wrong itself.
            raise AuthorError(message) if self.is_standard else TypeError(message)
        return _tensor(value, tensors)

    def gradients(
        self, call: Callable[..., Any], tensors: Sequence[torch.Tensor], cotangents: Sequence[Any]
    ) -> list[torch.Tensor | None]:
        """Return the gradient for each tensor.

        Raises:
            NotImplementedError: There is none, or too many elements would be varied.
        """
        arrays = list(map(array_of, tensors))
        weights = [None if each is None else array_of(each) for each in cotangents]
        if self.gradient is None:
            message = f"{self.function.__name__} takes NumPy arrays, and its operator names no gradient"
            raise NotImplementedError(message)
        if self.gradient == "differences":
            found = [_differences(lambda given: call(self.function, given), arrays, i, weights)
                     for i in range(len(arrays))]  # fmt: skip
        else:
            returned = call(self.gradient, arrays, weights[0] if len(weights) == 1 else weights)
            found = list(returned) if isinstance(returned, tuple | list) else [returned]
            self._check(found, tensors)
        return [None if each is None else _tensor(each, [tensor]) for each, tensor in zip(found, tensors, strict=True)]

    def check(self, call: Callable[..., Any], tensors: Sequence[torch.Tensor], outputs: Any) -> None:
        """Call the user's formula once, so that a wrong one is an error of the test and no missing gradient."""
        if not callable(self.gradient) or self._is_checked:
            return
        try:
            self.gradients(call, tensors, outputs if isinstance(outputs, tuple) else (outputs,))
        except AuthorError:
            raise
        except Exception as error:
            message = (
                f"gradient= of {self.function.__name__} raised {type(error).__name__}: {error}. It is called with the "
                "cotangent and the arguments of the operator."
            )
            raise AuthorError(message) from error
        self._is_checked = True

    def _check(self, found: Sequence[Any], tensors: Sequence[torch.Tensor]) -> None:
        shapes = [None if each is None else np.shape(each) for each in found]
        wanted = [tuple(tensor.shape) for tensor in tensors]
        if len(shapes) != len(wanted) or any(
            one not in {None, other} for one, other in zip(shapes, wanted, strict=True)
        ):
            message = (
                f"gradient= of {self.function.__name__} returns {_shown(shapes)}; the tensor arguments have "
                f"{_shown(wanted)}. Return one array for each tensor argument, in order and of its shape, or None."
            )
            raise AuthorError(message)


class _Applied(torch.autograd.Function):
    """A call with a gradient."""

    @staticmethod
    def forward(ctx: Any, function: NumpyFunction, call: Callable[..., Any], *tensors: torch.Tensor) -> Any:
        ctx.function, ctx.call = function, call
        ctx.save_for_backward(*tensors)
        found = function.values(call, tensors)
        function.check(call, tensors, found)
        return found

    @staticmethod
    def backward(ctx: Any, *cotangents: Any) -> Any:
        return None, None, *ctx.function.gradients(ctx.call, ctx.saved_tensors, cotangents)


def takes_arrays(function: Callable[..., Any], path: str) -> bool:
    """Whether a function of a library takes and returns arrays."""
    return isinstance(function, np.ufunc) or path.partition(".")[0] in _PACKAGES


def array_of(tensor: torch.Tensor) -> np.ndarray[Any, Any]:
    """Return a copy of a tensor's elements as an array."""
    plain = tensor.detach().resolve_conj().resolve_neg().cpu()
    # NumPy has no bfloat16 and no float8; float32 holds each of their values.
    plain = plain.float() if plain.dtype in _UNKNOWN else plain
    return plain.numpy().copy()


def _tensor(value: Any, given: Sequence[torch.Tensor]) -> torch.Tensor:
    """Return a result as a tensor; floats get the dtype of the arguments, because libraries return float64."""
    found = torch.from_numpy(np.array(value, copy=True))
    floats = [tensor.dtype for tensor in given if tensor.is_floating_point() or tensor.is_complex()]
    if floats and (found.is_floating_point() or found.is_complex()):
        dtype = functools.reduce(torch.promote_types, floats)
        found = found.to(torch.promote_types(dtype, torch.complex32) if found.is_complex() else dtype)
    return found.to(given[0].device) if given else found


def _differences(
    function: Callable[[list[Any]], Any], arrays: Sequence[Any], at: int, weights: Sequence[Any]
) -> np.ndarray[Any, Any] | None:
    """Return the gradient with respect to one argument by central differences in float64; ``None`` for integers."""
    wide = [array.astype(np.float64) if array.dtype.kind == "f" else array for array in arrays]
    if wide[at].dtype.kind != "f":
        return None
    if wide[at].size > ELEMENTS_AT_MOST or not all(
        np.isfinite(array).all() for array in wide if array.dtype.kind == "f"
    ):
        message = f"central differences need finite arguments of at most {ELEMENTS_AT_MOST} elements"
        raise NotImplementedError(message)
    found = np.zeros(wide[at].shape)
    for index in np.ndindex(*wide[at].shape):
        step = _STEP * max(1.0, abs(float(wide[at][index])))
        sides = []
        for moved in (step, -step):
            array = wide[at].copy()
            array[index] += moved
            results = function([*wide[:at], array, *wide[at + 1 :]])
            sides.append(results if isinstance(results, tuple | list) else [results])
        # Element by element, so that results that do not depend on this argument cancel exactly.
        found[index] = sum(
            float(np.sum((np.asarray(above) - np.asarray(below)) * weight)) / (2 * step)
            for above, below, weight in zip(*sides, weights, strict=True)
            if weight is not None
        )
    return found


def _shown(shapes: Sequence[Any]) -> str:
    return ", ".join("None" if shape is None else f"shape {list(shape)}" for shape in shapes) or "nothing"
