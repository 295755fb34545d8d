"""Arguments of an observed call: a key that is cheap to make, and their form in a program.

The key has everything but the elements and the floats, because a float may differ in every call (a learning rate).
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import torch

from ci_autotest.backends.torch_constants import argument_of
from ci_autotest.program.ir import DType, List, Mapping_, Ref, Slice, TensorSpec
from ci_autotest.values.dtypes import DTYPES

if TYPE_CHECKING:
    from ci_autotest.program.ir import Argument

_TENSOR: Final = torch.Tensor
_PARAMETER: Final = torch.nn.Parameter
_TENSORS: Final = frozenset(
    {torch.Tensor, torch.nn.Parameter} | ({torch.nn.Buffer} if hasattr(torch.nn, "Buffer") else set())
)
_HASHED: Final = frozenset({int, bool, str, complex, type(None), type(...), torch.dtype, torch.device})
_SEQUENCES: Final = frozenset({tuple, list, torch.Size})
#: Longest list of numbers that is an argument and no data.
_LONGEST: Final = 64
#: Whether a tensor is one of ``torch.func``, whose elements cannot be read. Torch has no public name for it.
_is_wrapped: Final = torch._C._functorch.is_functorch_wrapped_tensor  # noqa: SLF001


class UnsupportedArgumentError(Exception):
    """An argument cannot be written into a test; the message says what it is."""


def call_key(head: list[Any], args: tuple[Any, ...], kwargs: dict[str, Any] | None) -> tuple[Any, list[float]]:
    """Return what identifies a call, and its floats.

    This runs in every call of a captured program, so tensors and integers are handled here, without a further call.

    Args:
        head: The function and the modes in force.
        args: The arguments.
        kwargs: The keyword arguments.
    """
    floats: list[float] = []
    for value in args:
        kind = type(value)
        if kind is _TENSOR or kind is _PARAMETER:
            head += (value.shape, value.dtype, value.requires_grad, value.is_contiguous() or value.stride())
        elif kind is int:
            head.append(value)
        else:
            add_key(value, head, floats)
    if kwargs:
        for name, value in kwargs.items():
            head.append(name)
            add_key(value, head, floats)
    return tuple(head), floats


def add_key(value: Any, parts: list[Any], floats: list[float]) -> None:
    """Append what identifies an argument to ``parts``, and its floats to ``floats``."""
    kind = type(value)
    if kind in _TENSORS:
        # Sparse tensors have no strides.
        layout = (value.is_contiguous() or value.stride()) if value.layout is torch.strided else value.layout
        parts += (value.shape, value.dtype, value.requires_grad, layout)
    elif kind is float:
        parts.append(kind)
        floats.append(value)
    elif kind in _HASHED:
        # The kind too, because True equals 1.
        parts.append(value if kind is int else (kind, value))
    elif kind in _SEQUENCES:
        parts.append((kind, len(value)))
        if len(value) <= _LONGEST:
            for item in value:
                add_key(item, parts, floats)
    elif kind is slice:
        parts.append(kind)
        add_key((value.start, value.stop, value.step), parts, floats)
    elif kind in {torch.memory_format, torch.layout}:
        parts.append((kind, value))
    else:
        plain = _plain(value)
        if type(plain) is kind:
            parts.append(kind)
        else:
            add_key(plain, parts, floats)


_PLAIN: Final = frozenset({type(None), type(...), bool, int, float, complex, str})


def _plain(value: Any) -> Any:
    """Return a number of NumPy's as one of Python's, and a member of an enumeration as its value."""
    if isinstance(value, np.generic):
        return value.item()
    return value.value if isinstance(value, Enum) else value


def _of_python(value: Argument) -> Argument:
    """Return a plain value, unless its class is the author's own."""
    if type(value) in _PLAIN:
        return value
    message = f"a {type(value).__name__} as an argument"
    raise UnsupportedArgumentError(message)


def argument(value: Any, tensors: list[torch.Tensor], name: str = "") -> Argument:
    """Return an argument as a program has it; its tensors are appended to ``tensors``.

    Args:
        value: The argument.
        tensors: The tensors of the call so far.
        name: Its keyword.

    Raises:
        UnsupportedArgumentError: A test cannot have it.
    """
    if isinstance(value, torch.Tensor):
        _check_tensor(value)
        tensors.append(value)
        return Ref(len(tensors) - 1)
    # First, because numpy.float64 is a float, and members of an IntEnum are integers.
    plain = _plain(value)
    if type(plain) is not type(value):
        return argument(plain, tensors, name)
    if isinstance(value, str) and name == "device":
        value = torch.device(value)
    if value is None or value is ... or isinstance(value, bool | int | float | complex | str):
        return _of_python(value)
    constant = argument_of(value)
    if constant is not None and not (isinstance(constant, DType) and constant.name not in DTYPES):
        return constant
    if isinstance(value, slice):
        return Slice(*(argument(bound, tensors) for bound in (value.start, value.stop, value.step)))
    if isinstance(value, tuple | list):
        if len(value) > _LONGEST:
            message = f"a {type(value).__name__} of more than {_LONGEST} items as an argument"
            raise UnsupportedArgumentError(message)
        items = tuple(argument(item, tensors) for item in value)
        return List(items) if isinstance(value, list) else items
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return Mapping_(tuple((key, argument(item, tensors, key)) for key, item in value.items()))
    message = f"a {type(value).__name__} as an argument"
    raise UnsupportedArgumentError(message)


def _check_tensor(tensor: torch.Tensor) -> None:
    dtype = str(tensor.dtype).removeprefix("torch.")
    if type(tensor) not in _TENSORS:
        message = f"a {type(tensor).__name__}, a subclass of Tensor, as an argument"
    elif tensor.layout is not torch.strided:
        message = f"a tensor with layout {tensor.layout} as an argument"
    elif dtype not in DTYPES:
        message = f"a tensor of {dtype} as an argument"
    elif tensor.device.type == "meta" or _is_wrapped(tensor):
        message = "a tensor without elements of its own, of torch.func or on the meta device, as an argument"
    else:
        return
    raise UnsupportedArgumentError(message)


def spec_of(tensor: torch.Tensor, *, with_grad: bool) -> TensorSpec:
    """Return the spec of a tensor; its place in its storage is left out.

    Args:
        tensor: The tensor.
        with_grad: Whether gradients are on.
    """
    dtype = str(tensor.dtype).removeprefix("torch.")
    shape, strides = tuple(tensor.shape), tensor.stride()
    return TensorSpec(dtype, shape, strides, 0, tensor.numel(), requires_grad=with_grad and tensor.requires_grad)
