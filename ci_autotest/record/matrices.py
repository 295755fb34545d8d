"""Square matrices with the properties that linear algebra needs: symmetric, positive definite, invertible.

Profiles change the free sizes and the layout, but not the values, because these must keep their property.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ci_autotest.errors import AuthorError
from ci_autotest.record.context import recorder_for
from ci_autotest.record.dependent_tensors import free_size, record_array
from ci_autotest.record.draw.dtypes import dtype_name, holds_gradients
from ci_autotest.record.draw.generators import settle
from ci_autotest.record.draw.tensor_data import WIDE_DTYPE, elements
from ci_autotest.record.draw.variables import drawn_size

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch
    from numpy.typing import NDArray

    from ci_autotest.record.draw.draws import Drawer
    from ci_autotest.record.draw.generators import Generator

#: Bounds of the leading sizes; the upper one is exclusive.
_BATCH_SIZE: Final = (1, 4)
_MATRIX: Final = 2


@dataclass(frozen=True, slots=True)
class MatrixTensor:
    """A function like ``random_tensor`` for square matrices with a property.

    Args:
        kind: The property, as in the name of the function.
        made: Gives arbitrary square matrices, ``(..., size, size)`` with elements in [-1, 1), the property.
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
            requires_grad: Whether the tensor requires grad.

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
    """Draw the leading sizes; one may have its turn to be large."""
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
