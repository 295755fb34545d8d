"""Tensors with dependent elements: indices, permutations, choices from a list, and matrices of linear algebra.

The data depend on (case, site), as those of ``random_tensor`` do. Profiles change free sizes and layouts, but not
values, because these must keep their property: for example, a permutation has to stay one. Only indices have profiles
of values too, because they may repeat: the first and the last index, and many equal ones.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import torch

from ci_autotest.backends.input_copies import laid_out
from ci_autotest.errors import AuthorError
from ci_autotest.program.ir import TensorSpec
from ci_autotest.record.context import recorder_for
from ci_autotest.record.draw.dtypes import dtype_name, holds_gradients
from ci_autotest.record.draw.generators import Generator, drawn_size, settle
from ci_autotest.record.draw.profiles import (
    ELEMENT_CAP,
    LARGE_ELEMENTS,
    LARGE_SHAPES,
    NON_CONTIGUOUS,
    ORDINARY,
    large_size,
    shaped,
)
from ci_autotest.record.draw.tensor_data import WIDE_DTYPE, elements
from ci_autotest.record.tensors import draw_tensor
from ci_autotest.record.values import RecordedTensor
from ci_autotest.values.case import FREE_SIZE

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from ci_autotest.record.draw.draws import Drawer
    from ci_autotest.record.recorder import Recorder

    Size = int | Generator | None

#: Bounds of the leading sizes; the upper one is exclusive.
_BATCH_SIZE: Final = (1, 4)
_MATRIX: Final = 2


def index_tensor(
    of: torch.Tensor | int | Generator,
    dim: int = 0,
    ndim: int | Generator | None = None,
    dims: Sequence[int | Generator | None] | None = None,
    negative: bool = False,
    dtype: Any = int,
) -> torch.Tensor:
    """Return recorded indices into a dimension of a tensor, all below its size; an empty tensor if the size is 0.

    Args:
        of: The recorded tensor to index, or the size itself.
        dim: Dimension of that tensor.
        ndim: Number of dimensions of the index tensor; drawn from 1 to 5 by default.
        dims: Sizes of the index tensor; a size of ``None`` is free.
        negative: True to draw negative indices too, which count from the end.
        dtype: ``int``, an integer dtype, or a generator of one.

    Raises:
        AuthorError: Called outside a test.
    """
    indexed: Any = of
    sizes = (None,) * 5 if dims is None else dims
    value: Any = _index(indexed, dim, len(dims) if dims is not None else ndim, sizes, negative, dtype)
    return value  # type: ignore[no-any-return]


def permutation_tensor(of: torch.Tensor | int | Generator | None = None, dim: int = 0) -> torch.Tensor:
    """Return the recorded numbers below a size, each once, in random order: int64 ``(size,)``.

    Args:
        of: The recorded tensor with the dimension to permute, or the size itself; free (1 to 7) by default.
        dim: Dimension of that tensor.

    Raises:
        AuthorError: Called outside a test.
    """
    permuted: Any = of
    value: Any = _permutation(permuted, dim)
    return value  # type: ignore[no-any-return]


def choice_tensor(
    a: int | Sequence[float],
    size: int | Generator | Sequence[int | Generator] | None = None,
    replace: bool = True,
    p: Sequence[float] | None = None,
    dtype: Any = None,
    requires_grad: bool = False,
) -> torch.Tensor:
    """Return a recorded tensor whose elements are chosen from a list, or from the numbers below a count.

    Args:
        a: The list, or the count.
        size: Shape of the tensor; one dimension with a free size (1 to 7) by default.
        replace: True if a member may be chosen more than once.
        p: Probability of each member; equal by default.
        dtype: By default float, bool or int, like the members.
        requires_grad: True if the tensor requires grad; integers and booleans never do.

    Raises:
        AuthorError: Called outside a test; or there are too few members, or ``p`` is not a list of their probabilities.
    """
    value: Any = _choice(a, size, replace, p, dtype, requires_grad)
    return value  # type: ignore[no-any-return]


def _index(
    of: RecordedTensor | int | Generator,
    dim: int,
    ndim: Size,
    dims: Sequence[Size],
    negative: bool,
    dtype: Any,
) -> RecordedTensor:
    size = _size_of(recorder_for("index_tensor"), of, dim)
    if size == 0:
        # There is no valid index, so the index tensor has to be empty. The range below must not be, so it is [0, 1).
        dims, ndim = (0, *dims[1:]), 1 if ndim is None else ndim
    return draw_tensor(ndim, dims, -size if negative and size else 0, max(size, 1), dtype, requires_grad=False)


def _permutation(of: RecordedTensor | Size, dim: int) -> RecordedTensor:
    recorder = recorder_for("permutation_tensor")
    drawer, site = recorder.drawer, recorder.drawer.tensor_site()
    size = free_size(recorder, site, 1) if of is None else _size_of(recorder, of, dim)
    order = np.argsort(drawer.streams.data(site, size), kind="stable").astype(np.int64)
    return record_array(recorder, order, "int64", with_grad=False)


def _choice(
    population: int | Sequence[float],
    size: Size | Sequence[Size],
    replace: bool,
    p: Sequence[float] | None,
    dtype: Any,
    requires_grad: bool,
) -> RecordedTensor:
    recorder = recorder_for("choice_tensor")
    drawer, site = recorder.drawer, recorder.drawer.tensor_site()
    members = np.arange(population) if isinstance(population, int) else np.asarray(population)
    shape = _choice_shape(recorder, site, size)
    count = math.prod(shape)
    _refuse_choice(len(members), count, replace, p)
    uniform = elements(drawer.streams, site, "float64", (count if replace else len(members),), (0.0, 1.0))
    picked = _picked(uniform, members.size, p) if replace else _without_repeats(uniform, p)[:count]
    default = float if members.dtype.kind == "f" else bool if members.dtype.kind == "b" else int
    name = dtype_name(default if dtype is None else settle(drawer, dtype))
    return record_array(
        recorder, members[picked].reshape(shape), name, with_grad=requires_grad and holds_gradients(name)
    )


def _choice_shape(recorder: Recorder, site: str, size: Size | Sequence[Size]) -> tuple[int, ...]:
    if size is None:
        return (free_size(recorder, site, 1),)
    sizes = size if isinstance(size, tuple | list) else (size,)
    return tuple(drawn_size(recorder.drawer, item) for item in sizes)


def _refuse_choice(members: int, count: int, replace: bool, p: Sequence[float] | None) -> None:
    message = ""
    if not members and count:
        message = "choice_tensor() has nothing to choose from. Give a count above 0, or a list of numbers."
    elif not replace and count > members:
        message = (
            f"choice_tensor(replace=False) cannot choose {count} of {members} members. Ask for {members} or fewer, "
            "or allow repeats."
        )
    elif p is not None and (len(p) != members or min(p) < 0 or not math.isclose(sum(p), 1.0, rel_tol=1e-6)):
        message = (
            f"choice_tensor(p=...) has {len(p)} numbers with the sum {sum(p):g}. Give {members} numbers of 0 or more "
            "with the sum 1."
        )
    if message:
        raise AuthorError(message)


def _picked(uniform: NDArray[np.float64], members: int, p: Sequence[float] | None) -> NDArray[np.int64]:
    if p is None:
        return (uniform * members).astype(np.int64)
    return np.minimum(np.searchsorted(np.cumsum(p), uniform, side="right"), members - 1)


def _without_repeats(uniform: NDArray[np.float64], p: Sequence[float] | None) -> NDArray[np.int64]:
    """Return all members in the order of weighted sampling without replacement.

    Source: Efraimidis and Spirakis (2006), as a race of exponential variables with the rates ``p``.
    """
    weights = np.ones(len(uniform)) if p is None else np.asarray(p, np.float64)
    with np.errstate(divide="ignore"):
        return np.argsort(-np.log(1.0 - uniform) / weights, kind="stable")


def _size_of(recorder: Recorder, of: RecordedTensor | int | Generator, dim: int) -> int:
    if isinstance(of, RecordedTensor):
        return of._tensor.shape[dim] if of._tensor.ndim else 1
    return drawn_size(recorder.drawer, of)


def free_size(recorder: Recorder, site: str, power: int) -> int:
    """Return a free size: the plan's or the profile's, if ``size ** power`` elements fit into the cap."""
    drawer: Drawer = recorder.drawer
    name = f"{site}.dim0"
    size = drawer.integer(name, *FREE_SIZE, "dim")
    if drawer.plan.claim(range(1)) is not None:
        size = drawer.turn_size(name, len(drawer.log) - 1, size, 1, power)
    sizes = [size]
    if drawer.profile == LARGE_SHAPES:
        recorder.notes.profile_applied = True
        return large_size(power, LARGE_ELEMENTS // ELEMENT_CAP)
    if drawer.profile != ORDINARY and shaped(drawer, site, sizes, [0]) and sizes[0] ** power <= ELEMENT_CAP:
        recorder.notes.profile_applied = True
        size = sizes[0]
    drawer.plan.saw(name, size)
    return size


def record_array(recorder: Recorder, array: NDArray[Any], dtype: str, *, with_grad: bool) -> RecordedTensor:
    """Record an array as an input, sliced under ``non_contiguous``, because an expanded one would repeat elements."""
    shape = array.shape
    source = torch.from_numpy(np.ascontiguousarray(array)).to(getattr(torch, dtype)).reshape(shape)
    spec, numel = TensorSpec.plain(dtype, shape, requires_grad=with_grad), source.numel()
    if recorder.drawer.profile != NON_CONTIGUOUS or numel < 2:  # noqa: PLR2004 - one element is contiguous in any layout
        value: RecordedTensor = recorder.tensor(source, spec)
        return value
    recorder.notes.profile_applied = True
    spec = spec.spread()
    storage = torch.zeros(spec.storage_size, dtype=source.dtype)
    laid_out(storage, spec).copy_(source)
    value = recorder.tensor(storage, spec)
    return value  # noqa: RET504 - it has a type


@dataclass(frozen=True, slots=True)
class MatrixTensor:
    """A function like ``random_tensor`` for square matrices with a property.

    Args:
        kind: The property, as in the name of the function.
        made: Turns arbitrary square matrices, ``(..., size, size)`` with elements in [-1, 1), into ones that have it.
    """

    kind: str
    made: Callable[[NDArray[Any]], NDArray[Any]]

    def __call__(
        self,
        size: int | Generator | None = None,
        ndim: int | Generator | None = None,
        dtype: Any = float,
        requires_grad: bool | Generator = True,
    ) -> torch.Tensor:
        """Return recorded matrices, ``(..., size, size)``, with free leading sizes of 1 to 3.

        Args:
            size: Number of rows and columns; free (1 to 7) by default.
            ndim: Number of dimensions, at least 2; 2 by default.
            dtype: A floating or complex dtype.
            requires_grad: True if the tensor requires grad.

        Raises:
            AuthorError: The dtype is neither floating nor complex, or there are fewer than two dimensions.
        """
        recorder = recorder_for(f"{self.kind}_tensor")
        drawer, site = recorder.drawer, recorder.drawer.tensor_site()
        name = dtype_name(settle(drawer, dtype))
        if not holds_gradients(name):
            message = (
                f"{self.kind}_tensor(dtype=torch.{name}) is not a floating dtype. Use float, complex, torch.float64, …"
            )
            raise AuthorError(message)
        count = _MATRIX if ndim is None else int(settle(drawer, ndim, int))
        if count < _MATRIX:
            message = f"{self.kind}_tensor(ndim={count}) is not a matrix. Give ndim=2 or more."
            raise AuthorError(message)
        rows = free_size(recorder, site, _MATRIX) if size is None else drawn_size(drawer, size)
        batch = _batch(drawer, site, count - _MATRIX, rows)
        raw = elements(drawer.streams, site, WIDE_DTYPE.get(name, name), (*batch, rows, rows), (-1.0, 1.0))
        with_grad = bool(settle(drawer, requires_grad, bool))
        value: Any = record_array(recorder, self.made(raw), name, with_grad=with_grad)
        return value  # type: ignore[no-any-return]


def _batch(drawer: Drawer, site: str, ndim: int, rows: int) -> list[int]:
    """Draw the leading sizes; one of them may have its turn to be large."""
    turn = drawer.plan.claim(range(ndim))
    sizes = []
    for i in range(ndim):
        name = f"{site}.batch{i}"
        size = drawer.integer(name, *_BATCH_SIZE, "dim")
        if i == turn:
            size = drawer.turn_size(name, len(drawer.log) - 1, size, rows**_MATRIX * _BATCH_SIZE[1] ** (ndim - 1))
        drawer.plan.saw(name, size)
        sizes.append(size)
    return sizes


def _symmetric(raw: NDArray[Any]) -> NDArray[Any]:
    mean: NDArray[Any] = (raw + raw.conj().swapaxes(-1, -2)) / 2
    return mean


def _positive_definite(raw: NDArray[Any]) -> NDArray[Any]:
    size = raw.shape[-1]
    wide = raw.astype(np.result_type(raw.dtype, np.float64))
    positive: NDArray[Any] = _symmetric(wide @ wide.conj().swapaxes(-1, -2) / max(size, 1) + np.eye(size) / 2)
    return positive


def _invertible(raw: NDArray[Any]) -> NDArray[Any]:
    size = raw.shape[-1]
    return np.roll(raw / max(size, 1) + 1.5 * np.eye(size), 1, axis=-2)


#: Symmetric matrices; Hermitian ones for complex dtypes.
symmetric_tensor: Final = MatrixTensor("symmetric", _symmetric)
#: Positive definite matrices with eigenvalues of at least 0.5; Hermitian for complex dtypes.
positive_definite_tensor: Final = MatrixTensor("positive_definite", _positive_definite)
#: Invertible matrices that are not symmetric, with a condition number of at most 5 for small sizes. Their rows are
#: shifted, so that elimination has to pivot.
invertible_tensor: Final = MatrixTensor("invertible", _invertible)
