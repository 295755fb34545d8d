"""Arguments of an observed call: a key that is cheap to make, and their form in a program.

The key has everything but the elements and the floats, because a float may differ in every call (a learning rate).
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import torch

from ci_autotest.backends.sameness import byte_view
from ci_autotest.backends.torch_constants import DTYPE_NAMES, argument_of
from ci_autotest.call_capture.observation import Elements
from ci_autotest.program.ir import PLAIN_TYPES, DType, List, Mapping_, Ref, Slice, TensorSpec
from ci_autotest.values.dtypes import DTYPES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ci_autotest.call_capture.observation import Property
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


def _plain(value: Any) -> Any:
    """Return a number of NumPy's as one of Python's, and a member of an enumeration as its value."""
    if isinstance(value, np.generic):
        return value.item()
    return value.value if isinstance(value, Enum) else value


def _of_python(value: Argument) -> Argument:
    """Return a plain value, unless its class is the author's own."""
    if type(value) in PLAIN_TYPES:
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
    dtype = DTYPE_NAMES[tensor.dtype]
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
    dtype = DTYPE_NAMES[tensor.dtype]
    shape, strides = tuple(tensor.shape), tensor.stride()
    return TensorSpec(dtype, shape, strides, 0, tensor.numel(), requires_grad=with_grad and tensor.requires_grad)


# What is seen of a tensor's elements when it is an argument: their range, and what a draw has to keep.
#
# The rule of this module: nothing here changes the tensor, the program's random generators or its autograd graph.


#: Up to this many distinct elements are members: masks, labels, signs.
_MEMBERS: Final = 4
#: Tensors with fewer elements have few distinct ones by chance.
_ENOUGH: Final = 8
#: Size of the corner of a tensor that is searched for members before all elements are.
_CORNER: Final = 8
#: Most elements that are sorted to see whether they are distinct.
_SORTED: Final = 1 << 16
_MATRIX: Final = 2
#: How far a product of a matrix with its transpose may be from symmetric.
_RTOL: Final = 1e-5


def elements_of(tensor: torch.Tensor) -> Elements:
    """Return what is seen of a tensor's elements."""
    seen = tensor.detach()
    if not seen.numel():
        return Elements()
    if seen.dtype == torch.bool:
        return _boolean(seen)
    low, high, is_finite = _finite_range(seen)
    if seen.is_complex():
        return Elements(low, high, is_finite=is_finite)
    members, shares = _members(seen) if seen.is_floating_point() else ((), ())
    return Elements(low, high, members, shares, "" if members else _property(seen, low, high), is_finite)


def seen_again(elements: Elements, tensor: torch.Tensor) -> Elements:
    """Return what is seen of a tensor in a later call, merged with what was seen before.

    Where nothing but a range was seen before, nothing else is looked for.
    """
    seen = tensor.detach()
    if elements.members or elements.property or not seen.numel() or seen.dtype == torch.bool:
        return elements.merged(elements_of(seen))
    low, high, is_finite = _finite_range(seen)
    return elements.merged(Elements(low, high, is_finite=is_finite))


def stored_bytes(tensor: torch.Tensor, shape: Sequence[int]) -> bytes:
    """Return a tensor's elements in order, in the bytes of a file.

    Args:
        tensor: The tensor.
        shape: Sizes to which its expanded dimensions are cut.
    """
    seen = tensor.detach()
    for dim, size in enumerate(shape):
        seen = seen.narrow(dim, 0, size)
    return bytes(byte_view(seen))


def _finite_range(tensor: torch.Tensor) -> tuple[float, float, bool]:
    """Return the smallest and the largest finite element, and whether all are finite; of complex numbers, of parts."""
    parts = torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor
    low, high = _range(parts)
    # The difference of an infinity or NaN and itself is NaN.
    if low - low == high - high == 0:
        return low, high, True
    kept = parts[torch.isfinite(parts)]
    return (*_range(kept), False) if kept.numel() else (0.0, 0.0, False)


def _range(tensor: torch.Tensor) -> tuple[float, float]:
    low, high = torch.aminmax(tensor)
    return low.item(), high.item()


def _boolean(tensor: torch.Tensor) -> Elements:
    share = round(tensor.float().mean().item(), 2)
    if share in {0.0, 1.0} and bool((tensor != tensor.reshape(-1)[0]).any()):
        share = 0.01 if share == 0.0 else 0.99  # one of many is not none
    members = ("False",) if share == 0.0 else ("True",) if share == 1.0 else ("False", "True")
    shares = (1.0,) if len(members) == 1 else (round(1 - share, 2), share)
    return Elements(0.0 if share < 1.0 else 1.0, 1.0 if share else 0.0, members, shares)


def _members(tensor: torch.Tensor) -> tuple[tuple[str, ...], tuple[float, ...]]:
    """Return the distinct elements and their shares, if they are few and not the same everywhere."""
    if tensor.numel() < _ENOUGH:
        return (), ()
    corner = tensor[(slice(_CORNER),) * tensor.ndim]
    distinct = corner.unique()  # type: ignore[no-untyped-call]
    if not 1 < distinct.numel() <= _MEMBERS or bool(distinct.isnan().any()):
        return (), ()
    counts = [int((tensor == member).sum()) for member in distinct]
    if sum(counts) != tensor.numel():
        return (), ()
    return tuple(map(repr, distinct.tolist())), tuple(round(count / tensor.numel(), 2) for count in counts)


def _property(tensor: torch.Tensor, low: float, high: float) -> Property:
    if low == high:
        return ""
    if tensor.ndim == 1 and 2 < tensor.numel() <= _SORTED:  # noqa: PLR2004 - two elements are in order by chance
        return _order(tensor, low, high)
    if not tensor.is_floating_point():
        return ""
    is_square = tensor.ndim == _MATRIX and tensor.shape[0] == tensor.shape[1] > 1
    if is_square and torch.allclose(tensor, tensor.mT, rtol=_RTOL, atol=_RTOL):
        wide = tensor.double()
        return "positive_definite" if int(torch.linalg.cholesky_ex(wide).info) == 0 else "symmetric"
    return ""


def _order(tensor: torch.Tensor, low: float, high: float) -> Property:
    count = tensor.numel()
    is_sorted = bool((tensor[1:] >= tensor[:-1]).all())
    if tensor.is_floating_point():
        return "sorted" if is_sorted and count > _MEMBERS else ""
    is_distinct = tensor.unique().numel() == count  # type: ignore[no-untyped-call]
    if is_distinct and low == 0 and high == count - 1:
        return "arange" if is_sorted else "permutation"
    return "distinct" if is_distinct and low >= 0 else "sorted" if is_sorted else ""
