"""Gradient clipping of recorded modules: what ``torch.nn.utils`` computes, with recorded values.

Torch's own functions group tensors in C++, which takes no recorded values. Each operation is a step here, as in the
optimizers. Source: ``torch/nn/utils/clip_grad.py``.
"""

from __future__ import annotations

from inspect import signature
from typing import TYPE_CHECKING, Any, Final

import torch

from ci_autotest.record.unsupported_uses import refuse
from ci_autotest.record.values import Value

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ci_autotest.record.function import Function

#: What torch adds to the norm, so that gradients of zeros are not divided by zero.
_LEAST_NORM: Final = 1e-6


def clip(function: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Clip gradients, of recorded parameters or of plain ones.

    Raises:
        AuthorError: Some parameters are of one kind, some of the other.
    """
    given = signature(function.real).bind(*args, **kwargs).arguments
    parameters = given.pop("parameters")
    # An iterator over parameters can be read only once.
    parameters = [parameters] if isinstance(parameters, torch.Tensor | Value) else [*parameters]
    if not any(isinstance(one, Value) for one in parameters):
        return function.real(parameters, **given)
    if not all(isinstance(one, Value) for one in parameters):
        refuse(function.target)
    with torch.no_grad():
        return CLIPS[function.target](parameters, **given)


def _clip_norm(
    parameters: Sequence[Value],
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,  # noqa: FBT001, FBT002 - torch's signature
    foreach: bool | None = None,  # noqa: ARG001, FBT001 - likewise
) -> Any:
    gradients = _gradients(parameters)
    if not gradients:
        return torch.tensor(0.0)
    max_norm, norm_type = float(max_norm), float(norm_type)
    norms = [torch.linalg.vector_norm(gradient, norm_type) for gradient in gradients]
    total = torch.linalg.vector_norm(torch.stack(norms), norm_type)
    if error_if_nonfinite and torch.logical_or(total.isnan(), total.isinf()):
        message = f"The total norm of order {norm_type} for gradients from `parameters` is non-finite"
        raise RuntimeError(message)
    factor = torch.clamp(max_norm / (total + _LEAST_NORM), max=1.0)
    for gradient in gradients:
        gradient.mul_(factor)
    return total


def _clip_value(parameters: Sequence[Value], clip_value: float, foreach: bool | None = None) -> None:  # noqa: ARG001, FBT001 - torch's signature
    for gradient in _gradients(parameters):
        gradient.clamp_(min=-clip_value, max=clip_value)


def _gradients(parameters: Sequence[Value]) -> list[Any]:
    found = [parameter.grad for parameter in parameters]
    return [gradient for gradient in found if gradient is not None]


#: Torch's function by its name.
CLIPS: Final[Mapping[str, Callable[..., Any]]] = {
    "torch.nn.utils.clip_grad_norm_": _clip_norm,
    "torch.nn.utils.clip_grad_value_": _clip_value,
}
