"""Mutants of a gradient: the elements are right, and the backward pass leaves something out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from ci_autotest.power.call import mapped

if TYPE_CHECKING:
    from collections.abc import Callable

    from ci_autotest.power.call import OperatorCall


class _WithoutTail(torch.autograd.Function):
    """The identity, whose gradient lacks its last element."""

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor) -> torch.Tensor:  # noqa: ARG004
        """Return the tensor."""
        return tensor.view_as(tensor)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> torch.Tensor:  # noqa: ARG004
        """Return the gradient with zero for the last element."""
        found = gradients[0].clone(memory_format=torch.contiguous_format)
        if found.numel():
            found.view(-1)[-1] = 0
        return found


def has_gradient(tensor: torch.Tensor) -> bool:
    """Whether a tensor can have a gradient."""
    return tensor.is_floating_point() or tensor.is_complex()


def detached(call: OperatorCall) -> Any:
    """Return the right result without a gradient."""
    return mapped(call.run(), lambda tensor: tensor.detach() if tensor.requires_grad else tensor)


def dropped_term(place: int | str) -> Callable[[OperatorCall], Any]:
    """Return a mutant that leaves the gradient of the input at a place out."""

    def run(call: OperatorCall) -> Any:
        found = dict(call.tensors()).get(place)
        return (call if found is None else call.given(place, found.detach())).run()

    return run


def gradient_tail(call: OperatorCall) -> Any:
    """Return the right result, and leave the last element of the first input's gradient out."""
    given = [(place, tensor) for place, tensor in call.tensors() if tensor.requires_grad]
    if not given or not torch.is_grad_enabled():
        return call.run()
    place, tensor = given[0]
    return call.given(place, _WithoutTail.apply(tensor)).run()  # type: ignore[no-untyped-call]
