"""Take a snapshot of a value: its metadata, a copy of its elements, and the autograd edge for its gradient."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import torch

from ci_autotest.backends.autograd_engine import gradient_edge
from ci_autotest.backends.torch_constants import DTYPE_NAMES
from ci_autotest.backends.trace import Metadata, Observation, Trace

if TYPE_CHECKING:
    from numpy.typing import NDArray


_Tensor: Final = torch.Tensor


def metadata(tensor: torch.Tensor) -> Metadata:
    """Return the metadata of a tensor, which is compared before its elements."""
    return Metadata(
        DTYPE_NAMES[tensor.dtype],
        tuple(tensor.shape),
        tuple(tensor.stride()) if tensor.layout is torch.strided else (),
        str(tensor.device),
        tensor.requires_grad,
        tensor.is_leaf,
        str(tensor.layout).removeprefix("torch."),
    )


def observed(value: Any) -> Observation:
    """Return a value as it is now: a tensor's metadata with a copy of its elements, or the plain value."""
    if isinstance(value, _Tensor):
        return Observation(metadata(value), value.detach().clone())
    if isinstance(value, np.ndarray):
        return _observed_array(value)
    if isinstance(value, tuple | list):
        # Frameworks have different types of shapes, so a sequence of integers is compared as a tuple. The parts of
        # other sequences are steps, and are compared there.
        is_shape = all(isinstance(item, int | np.integer) and not isinstance(item, bool) for item in value)
        return Observation(None, tuple(map(int, value)) if is_shape else None)
    if hasattr(value, "state_dict"):  # a module, here or in another interpreter
        return Observation(None, None)
    return Observation(None, value)


def _observed_array(array: NDArray[Any]) -> Observation:
    """Return a NumPy array as a tensor of its elements; the layout distinguishes it from a tensor."""
    data = torch.from_numpy(array)
    return Observation(metadata(data)._replace(layout="array"), data)


def keep_copy(trace: Trace, index: int, value: Any) -> None:
    """Copy a value that a later step writes to, with the edge that keeps the gradient of this version."""
    if isinstance(value, _Tensor):
        trace.copies = {**trace.copies, index: kept(value)}


def kept(value: torch.Tensor) -> tuple[torch.Tensor, Any]:
    """Return a copy of a value as it is now, and the edge that keeps its gradient; ``None`` if it requires none."""
    return value.detach().clone(), gradient_edge(value) if value.requires_grad else None


def observe(trace: Trace, value: Any) -> None:
    """Add a copy of a value to the observations, and the edge of its gradient to the edges."""
    trace.observations.append(observed(value))
    differentiable = isinstance(value, _Tensor) and value.requires_grad
    trace.edges.append(gradient_edge(value) if differentiable else None)
