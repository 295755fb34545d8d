"""Mutants of an operator's result: what a kernel writes instead of the right elements; and mutants of its gradient."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any, Final

import torch

from ci_autotest.backends.nest import mapped, tensors_in
from ci_autotest.backends.torch_constants import DTYPE_NAMES
from ci_autotest.values.power import MutantKind

if TYPE_CHECKING:
    from collections.abc import Callable

    from ci_autotest.power.call import OperatorCall
    from ci_autotest.values.tolerance import Tolerance


#: Correlation of unrelated elements with the right ones: that of a wrong kernel that passed a real test.
CORRELATION: Final = 0.086
#: How far beyond the allowed error an element is, as a multiple of it.
_BEYOND: Final = 1.5
#: Where no tolerance gives a number: units in the last place of the element.
_ULPS: Final = 16
#: Dtypes that a half precision rounds.
WIDE: Final = frozenset({torch.float32, torch.float64})
#: Operators that divide by a number of elements.
DIVIDES: Final = re.compile(r"mean|var|std|loss|cross_entropy|avg_pool|kl_div|cov|corrcoef")
#: Operators that sum.
SUMS: Final = re.compile(
    r"sum|mean|var|std|norm|matmul|mm|bmm|mv|dot|linear|conv|einsum|softmax|loss|cross_entropy|avg_pool|prod|"
    r"attention|kl_div|cov|corrcoef|trapezoid|interpolate|embedding_bag|cdist|lstm|gru|rnn"
)  # fmt: skip


class Replaced(torch.autograd.Function):
    """The right result with other elements: metadata and gradients are those of the right one."""

    @staticmethod
    def forward(ctx: Any, right: torch.Tensor, wrong: torch.Tensor) -> torch.Tensor:  # noqa: ARG004
        """Return the wrong elements."""
        return wrong.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor | None, ...]:  # noqa: ARG004
        """Pass the gradient on to the right result."""
        return gradients[0], None


def replaced(right: torch.Tensor, wrong: torch.Tensor) -> torch.Tensor:
    """Return ``wrong`` with the dtype, the shape and the gradient of ``right``."""
    wrong = wrong.detach().to(right.dtype).reshape(right.shape)
    return Replaced.apply(right, wrong) if right.requires_grad else wrong  # type: ignore[no-untyped-call]


def of_result(change: Callable[[torch.Tensor, OperatorCall], torch.Tensor | None]) -> Callable[[OperatorCall], Any]:
    """Return a mutant that writes other elements to each tensor of a result.

    Args:
        change: Returns the wrong elements of a tensor of the result; ``None`` where there is no mistake.
    """

    def run(call: OperatorCall) -> Any:
        def wrong(tensor: torch.Tensor) -> torch.Tensor:
            found = change(tensor.detach(), call)
            return tensor if found is None else replaced(tensor, found)

        return mapped(call.run(), wrong)

    return run


def zeros(tensor: torch.Tensor, _: OperatorCall) -> torch.Tensor:
    """Return zeros."""
    return torch.zeros_like(tensor)


def unrelated(tensor: torch.Tensor, _: OperatorCall) -> torch.Tensor:
    """Return elements with the right mean and spread that are hardly related to the right ones.

    They are the elements in an order of chance, turned so that their correlation with the right ones is ``CORRELATION``
    where that is defined.
    """
    count = tensor.numel()
    order = torch.randperm(count, generator=torch.Generator().manual_seed(count))
    moved = tensor.reshape(-1)[order.to(tensor.device)]
    if not tensor.is_floating_point() or not bool(tensor.isfinite().all()):
        return moved.reshape(tensor.shape)
    right = tensor.reshape(-1).double()
    mean = right.mean()
    along, across = right - mean, moved.double() - mean
    size = along.norm()
    across -= along * (across @ along) / size.square()
    length = across.norm()
    if not 0 < float(length) < math.inf or not float(size) < math.inf:
        return moved.reshape(tensor.shape)
    across *= size / length
    wrong = mean + CORRELATION * along + math.sqrt(1 - CORRELATION**2) * across
    return wrong.to(tensor.dtype).reshape(tensor.shape)


def copy_of_input(tensor: torch.Tensor, call: OperatorCall) -> Any:
    """Return the first input of the result's shape and dtype, if there is one."""
    given = [each for each in tensors_in([*call.args, *call.kwargs.values()]) if each.shape == tensor.shape]
    return next((each for each in given if each.dtype is tensor.dtype), None)


def last_element(tensor: torch.Tensor, _: OperatorCall) -> Any:
    """Return the elements with zero for the last one."""
    if not tensor.numel():
        return None
    found = tensor.clone(memory_format=torch.contiguous_format)
    found.view(-1)[-1] = 0
    return found


def divisor(tensor: torch.Tensor, call: OperatorCall) -> Any:
    """Return a mean over N elements that was divided by N - 1."""
    given = call.tensors()
    count = given[0][1].numel() // max(tensor.numel(), 1) if given else 0
    is_number = tensor.is_floating_point() or tensor.is_complex()
    return tensor * (count / (count - 1)) if count > 1 and is_number else None


def beyond_tolerance(tolerance: Callable[[str], Tolerance]) -> Callable[[torch.Tensor, OperatorCall], Any]:
    """Return a mutant whose elements are off by one and a half times what ``tolerance`` allows for their dtype."""

    def change(tensor: torch.Tensor, _: OperatorCall) -> Any:
        if not (tensor.is_floating_point() or tensor.is_complex()):
            return None
        allowed = tolerance(DTYPE_NAMES[tensor.dtype])
        size = tensor.abs()
        if allowed.metric == "relative_norm":
            return tensor * (1 + _BEYOND * allowed.limit)
        if allowed.strictness == "tolerance" and allowed.metric == "elements":
            return tensor + _BEYOND * (allowed.atol + allowed.rtol * size) + size * torch.finfo(tensor.dtype).eps
        return tensor + _ULPS * torch.finfo(tensor.dtype).eps * size

    return change


def half_sum(tensor: torch.Tensor, _: OperatorCall) -> Any:
    """Return a sum that was kept in float16: what float16 holds of it, which is the least error that it can have."""
    return tensor.to(torch.float16) if tensor.dtype in WIDE else None


def int32(call: OperatorCall) -> Any:
    """Return int32 where the reference returns int64."""
    return mapped(call.run(), lambda tensor: tensor.to(torch.int32) if tensor.dtype is torch.int64 else tensor)


def bfloat16(call: OperatorCall) -> Any:
    """Compute from inputs rounded to bfloat16, and round the result."""
    return mapped(call.mapped(_rounded).run(), _rounded)


def _rounded(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to(torch.bfloat16).to(tensor.dtype) if tensor.dtype in WIDE else tensor


def stale() -> Callable[[OperatorCall], Any]:
    """Return a new mutant that remembers the first result for each set of shapes, and returns it ever after."""
    kept: dict[Any, list[torch.Tensor]] = {}

    def run(call: OperatorCall) -> Any:
        result = call.run()
        given = tensors_in([*call.args, *call.kwargs.values()])
        key = tuple((tuple(each.shape), each.dtype) for each in (*given, *tensors_in(result)))
        first = kept.setdefault(key, [each.detach().clone() for each in tensors_in(result)])
        left = iter(first)
        return mapped(result, lambda tensor: replaced(tensor, next(left)))

    return run


def written_input(call: OperatorCall) -> Any:
    """Return the right result, and overwrite the first element of the first input."""
    result = call.run()
    given = [each for each in tensors_in([*call.args, *call.kwargs.values()]) if each.numel()]
    if given:
        # `.data`, because a kernel that writes through a pointer does not tell autograd either.
        target = given[0].data
        target[(0,) * target.ndim] = _other_element(target)
    return result


def _other_element(tensor: torch.Tensor) -> torch.Tensor:
    """Return something else than the first element; of integers, which may be indices, the last one or zero."""
    first, last = tensor[(0,) * tensor.ndim], tensor[(-1,) * tensor.ndim]
    if tensor.dtype is torch.bool:
        return ~first
    if tensor.is_floating_point() or tensor.is_complex():
        return first + 1
    return torch.zeros_like(last) if bool(first == last) else last


#: Mutants that replace elements, and the operators that can have the mistake; ``None``: all.
ELEMENT_MUTANTS: Final = {
    MutantKind.ZEROS: (zeros, None),
    MutantKind.UNRELATED: (unrelated, None),
    MutantKind.COPY_OF_INPUT: (copy_of_input, None),
    MutantKind.LAST_ELEMENT: (last_element, None),
    MutantKind.DIVISOR: (divisor, DIVIDES),
    MutantKind.HALF_SUM: (half_sum, SUMS),
}


# Mutants of a gradient: the elements are right, and the backward pass leaves something out.


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
