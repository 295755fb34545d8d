"""How many elements an operator sums for one element of its result: the K of a tolerance with ``scale: sqrt(K)``.

A sum of K terms in another order or precision is off by up to K roundings, and by about the root of K if they are
random. Source: N. Higham, Accuracy and Stability of Numerical Algorithms, 2nd edition, chapters 3 and 4.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

import torch

from ci_autotest.backends.operators.identity import step_operator
from ci_autotest.program.ir import step_refs

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ci_autotest.program.ir import Step

#: Products, which sum over the last dimension of their first matrix; that is argument ``position``.
_PRODUCTS: Final[Mapping[str, int]] = {
    "torch.matmul": 0, "torch.mm": 0, "torch.bmm": 0, "torch.mv": 0, "torch.dot": 0, "torch.vdot": 0, "torch.inner": 0,
    "torch.nn.functional.linear": 0, "torch.nn.functional.bilinear": 0, "torch.addmm": 1, "torch.addmv": 1,
    "torch.baddbmm": 1, "torch.addbmm": 1,
}  # fmt: skip
#: Operators that sum along one dimension and keep it.
_ALONG: Final = ("softmax", "log_softmax", "softmin", "logcumsumexp", "cumsum", "cumprod", "normalize", "glu")
_NORMALISED: Final = ("layer_norm", "rms_norm")
_CONVOLUTION: Final = "torch.nn.functional.conv"


def reduced_size(step: Step, steps: Sequence[Step], values: Sequence[Any], index: int) -> int:
    """Return the number of elements that one element of a step's result is computed from, along reduced dimensions.

    Args:
        step: A call.
        steps: All steps of the program.
        values: The reference's values by step.
        index: Of the step.
    """
    given = [values[ref.index] for ref in step_refs(step)]
    modules = [value for value in given if isinstance(value, torch.nn.Module)]
    weights = [weight for module in modules for weight in module.parameters(recurse=False)]
    tensors = [value for value in given if isinstance(value, torch.Tensor)]
    if not tensors:
        return 1
    operator, (first, *_) = step_operator(step, steps), tensors
    name = operator.rpartition(".")[2]
    if operator in _PRODUCTS:
        matrix = tensors[min(_PRODUCTS[operator], len(tensors) - 1)]
        return max(1, matrix.shape[-1] if matrix.dim() else 1)
    if operator.startswith(_CONVOLUTION):
        return _of_weight([*tensors[1:], *weights], is_transposed="transpose" in name)
    if name == "scaled_dot_product_attention":
        return max(1, first.shape[-1], tensors[1].shape[-2])
    if name in _ALONG:
        return _of_dimension(step, first)
    if name in _NORMALISED:
        return _of_shape(step, first, weights)
    results = [value for value in _flat(values[index]) if isinstance(value, torch.Tensor)]
    smallest = min((result.numel() for result in results), default=0)
    return max(1, first.numel() // smallest) if smallest else 1


def _of_weight(weights: Sequence[torch.Tensor], *, is_transposed: bool) -> int:
    """Return the elements of a convolution's kernel that meet in one element of the result."""
    kernel = next((weight for weight in weights if weight.dim() > 2), None)  # noqa: PLR2004 - channels, channels, space
    if kernel is None or not kernel.numel():
        return 1
    return kernel.numel() // kernel.shape[1 if is_transposed else 0]


def _of_dimension(step: Step, tensor: torch.Tensor) -> int:
    dim = dict(step.kwargs).get("dim", next((arg for arg in step.args[1:] if isinstance(arg, int)), -1))
    if not tensor.dim() or not isinstance(dim, int) or not -tensor.dim() <= dim < tensor.dim():
        return max(1, tensor.numel())
    return max(1, tensor.shape[dim])


def _of_shape(step: Step, tensor: torch.Tensor, weights: Sequence[torch.Tensor]) -> int:
    shape = dict(step.kwargs).get("normalized_shape", step.args[1] if len(step.args) > 1 else None)
    items = getattr(shape, "items", shape)
    if isinstance(items, tuple) and all(isinstance(size, int) for size in items):
        return max(1, math.prod(size for size in items if isinstance(size, int)))
    if weights:
        return max(1, weights[0].numel())
    return max(1, tensor.shape[-1] if tensor.dim() else 1)


def _flat(value: Any) -> list[Any]:
    return [item for each in value for item in _flat(each)] if isinstance(value, tuple | list) else [value]


#: What a row's ``scale`` multiplies its bounds by.
SCALES: Final[Mapping[str, Callable[[int], float]]] = {
    "K": float, "sqrt(K)": math.sqrt, "log2(K)": lambda count: max(1.0, math.log2(count)),
}  # fmt: skip
