"""Square matrices with a property that operators of linear algebra ask for.

The property comes before the profiles: these change the free sizes and the layout, not the values.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ci_autotest.errors import AuthorError
from ci_autotest.record.dependent_tensors import free_size, record_array, recorder_for
from ci_autotest.record.draw.dtypes import dtype_name, holds_gradients
from ci_autotest.record.draw.generators import settle
from ci_autotest.record.draw.tensor_data import WIDE_DTYPE, elements

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch
    from numpy.typing import NDArray

    from ci_autotest.record.draw.generators import Generator

#: Bounds of the sizes of leading dimensions, exclusive above.
_BATCH_SIZE: Final = (1, 4)
_MATRIX: Final = 2


@dataclass(frozen=True, slots=True)
class MatrixTensor:
    """Record square matrices with a property when called, as ``random_tensor`` records a tensor.

    Args:
        kind: What the property is called, as in the name of the function.
        made: Gives any square matrices, ``(..., size, size)`` and in [-1, 1), the property.
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
        """Return recorded matrices, ``(..., size, size)``, free leading sizes 1 to 3.

        Args:
            size: Rows and columns; free (1 to 7) where ``None``.
            ndim: Dimensions, 2 or more; 2 where ``None``.
            dtype: A floating or complex one.
            requires_grad: Whether the leaf asks for its gradient.

        Raises:
            AuthorError: A dtype that holds no gradients, or fewer than two dimensions.
        """
        recorder = recorder_for(f"{self.kind}_tensor")
        drawer, site = recorder.drawer, recorder.drawer.site()
        name = dtype_name(settle(drawer, dtype))
        if not holds_gradients(name):
            message = (
                f"{self.kind}_tensor(dtype=torch.{name}) is no floating dtype. Use float, complex, torch.float64, …"
            )
            raise AuthorError(message)
        count = _MATRIX if ndim is None else int(settle(drawer, ndim, int))
        if count < _MATRIX:
            message = f"{self.kind}_tensor(ndim={count}) is no matrix. Give ndim=2 or more."
            raise AuthorError(message)
        rows = free_size(recorder, site, _MATRIX) if size is None else int(settle(drawer, size, int))
        batch = [drawer.integer(f"{site}.dim{i}", *_BATCH_SIZE, "dim") for i in range(count - _MATRIX)]
        raw = elements(drawer.streams, site, WIDE_DTYPE.get(name, name), (*batch, rows, rows), (-1.0, 1.0))
        with_grad = bool(settle(drawer, requires_grad, bool))
        value: Any = record_array(recorder, self.made(raw), name, with_grad=with_grad)
        return value  # type: ignore[no-any-return]


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


#: Symmetric matrices, Hermitian where complex.
symmetric_tensor: Final = MatrixTensor("symmetric", _symmetric)
#: Matrices with eigenvalues of 0.5 at least, Hermitian too.
positive_definite_tensor: Final = MatrixTensor("positive_definite", _positive_definite)
#: Matrices far from singular, not symmetric: condition number 5 at most for small sizes, rows shifted, so that
#: elimination must pivot.
invertible_tensor: Final = MatrixTensor("invertible", _invertible)
