"""What a call gives, forward and backward, and how a mutant's outcome differs from the reference's.

It is compared in two ways: beyond rounding, and by the rules of a test, as the engine does.
"""

from __future__ import annotations

import math
from contextlib import nullcontext
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias

import torch

from ci_autotest.alignment.compare import compare
from ci_autotest.alignment.elements import close, equal_or_nan, has_any
from ci_autotest.alignment.tolerance_rules import Called
from ci_autotest.backends.autograd_engine import gradients as gradients_of
from ci_autotest.backends.nest import tensors_in
from ci_autotest.backends.sameness import components, is_near, same_bits
from ci_autotest.backends.snapshots import metadata
from ci_autotest.backends.torch_constants import DTYPE_NAMES
from ci_autotest.backends.trace import Observation
from ci_autotest.backends.user_errors import FOREIGN, pass_interrupt
from ci_autotest.power.mutated_torch import answered

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from ci_autotest.alignment.tolerance_rules import Rules
    from ci_autotest.power.call import OperatorCall
    from ci_autotest.power.mutated_torch import Noted
    from ci_autotest.values.verdict import Kind

#: Rounding that two right ways to compute one element may differ by, in units of the largest element's last place.
_ROUNDING: Final = 64
#: The context of a call that has none.
PLAIN: Final = nullcontext()
#: What differs.
Part: TypeAlias = Literal["value", "dtype", "gradient", "written"]


class Outcome(NamedTuple):
    """What a call gives.

    Attributes:
        results: The tensors of the result.
        gradients: Of each input that requires grad; ``None`` for one that has no gradient.
        inputs: The inputs after the call.
    """

    results: list[torch.Tensor]
    gradients: list[torch.Tensor | None]
    inputs: list[torch.Tensor]


class Departure(NamedTuple):
    """The first part of an outcome that departs from the reference's, on both sides."""

    part: Part
    wrong: torch.Tensor
    right: torch.Tensor


def outcome(
    run: Callable[[OperatorCall], Any],
    noted: Noted,
    *,
    are_random: bool = True,
    around: AbstractContextManager[object] = PLAIN,
) -> Outcome | None:
    """Return what a call gives on copies of its inputs; ``None`` if it raises.

    Args:
        run: Runs the call, as the reference or with a mistake.
        noted: The call.
        are_random: Whether the backward pass starts from random gradients; ones otherwise.
        around: A context of the call and of its backward pass.
    """
    leaves: list[torch.Tensor] = []
    inputs: list[torch.Tensor] = []

    def fresh(tensor: torch.Tensor) -> torch.Tensor:
        copy = tensor.detach().clone()
        if tensor.requires_grad:
            leaves.append(copy.requires_grad_())
            # An in-place call refuses a leaf.
            copy = copy.clone() if noted.is_in_place else copy
        inputs.append(copy)
        return copy

    torch.default_generator.manual_seed(0)
    gradients: list[torch.Tensor | None] = []
    try:
        call = noted.call.mapped(fresh)
        with torch.set_grad_enabled(noted.is_grad_enabled), around:
            results = tensors_in(answered(run, call, is_in_place=noted.is_in_place))
        is_asked = bool(leaves) and noted.is_grad_enabled and noted.asks_gradient
        roots = [each for each in results if each.requires_grad] if is_asked else []
        if roots:
            starts = [_cotangent(each) if are_random else torch.ones_like(each) for each in roots]
            with around:
                gradients = [_dense(each) for each in gradients_of(roots, starts, leaves)]
    except FOREIGN as error:
        pass_interrupt(error)
        return None
    return Outcome(results, gradients or [None] * len(leaves), inputs)


def _dense(gradient: torch.Tensor | None) -> torch.Tensor | None:
    return gradient.to_dense() if gradient is not None and gradient.is_sparse else gradient


def reference(call: OperatorCall) -> Any:
    """Run a call as the reference."""
    return call.run()


def _cotangent(result: torch.Tensor) -> torch.Tensor:
    # A copy, because the gradient of an addition is its cotangent.
    return _signed(result.shape, result.dtype).clone().to(result.device)


@lru_cache(maxsize=256)
def _signed(shape: torch.Size, dtype: torch.dtype) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(shape.numel())).to(dtype)


def departure(wrong: Outcome, right: Outcome) -> Departure | None:
    """Return the first part that differs by more than rounding: results, then inputs, then gradients."""
    if len(wrong.results) != len(right.results):
        return Departure("value", wrong.results[0], right.results[0])
    for one, other in zip(wrong.results, right.results, strict=True):
        if one.shape == other.shape and one.dtype is not other.dtype and not differs(one.to(other.dtype), other):
            return Departure("dtype", one, other)
        if differs(one, other):
            return Departure("value", one, other)
    for one, other in zip(wrong.inputs, right.inputs, strict=True):
        if differs(one, other):
            return Departure("written", one, other)
    for left, expected in zip(wrong.gradients, right.gradients, strict=True):
        # To autograd, no gradient and a gradient of zeros are the same.
        sides = [
            each if each is not None or other is None else torch.zeros_like(other)
            for each, other in ((left, expected), (expected, left))
        ]
        if sides[0] is not None and sides[1] is not None and differs(sides[0], sides[1]):
            return Departure("gradient", sides[0], sides[1])
    return None


def differs(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two tensors differ by more than the rounding of their largest element."""
    if one.shape != other.shape or one.dtype is not other.dtype:
        return True
    is_inexact = other.is_floating_point() or other.is_complex()
    return not is_near(one, other, _ROUNDING * torch.finfo(other.dtype).eps if is_inexact else 0.0)


class Hidden(NamedTuple):
    """An error that a tolerance hides.

    Attributes:
        error: The greatest error.
        allowed: What the tolerance allows at that element.
        correlation: Of the elements of both sides; ``None`` if one side is constant.
    """

    error: float
    allowed: float
    correlation: float | None


def hidden(wrong: torch.Tensor, right: torch.Tensor, rtol: float, atol: float) -> Hidden:
    """Return the greatest error of a tensor beside what ``atol + rtol * |right|`` allows there; NaN aligns with NaN."""
    left, expected = (components(each).reshape(-1) for each in (wrong, right))
    error = torch.where(equal_or_nan(left, expected), 0.0, (left - expected).abs()).nan_to_num(math.inf, math.inf)
    at = int(error.argmax())
    allowed = atol + rtol * float(expected[at].abs().nan_to_num(0.0, 0.0))
    is_finite = left.isfinite() & expected.isfinite()
    return Hidden(float(error[at]), allowed, _correlation(left[is_finite], expected[is_finite]))


def _correlation(left: torch.Tensor, right: torch.Tensor) -> float | None:
    if not right.numel():
        return None
    left, right = left - left.mean(), right - right.mean()
    size = float(left.norm() * right.norm())
    return float(left @ right) / size if 0 < size < math.inf else None


class CallDifference(NamedTuple):
    """A difference of a call.

    Attributes:
        kind: Its kind.
        output: Position of the result that differs; ``None`` if no result does.
    """

    kind: Kind
    output: int | None = None


class CallComparison:
    """The reference's outcomes of a test's calls of one operator, and what of a mutant's departs from them.

    Args:
        operator: The operator.
        calls: Its calls.
        rules: How the test compares.
        are_random: Whether the backward pass starts from random gradients.
        around: What makes the reference of another implementation, such as torch's Python decomposition.
    """

    def __init__(
        self,
        operator: str,
        calls: list[Noted],
        rules: Rules,
        *,
        are_random: bool,
        around: AbstractContextManager[object] = PLAIN,
    ) -> None:
        self.calls, self.rules, self.around = calls, rules, around
        self._are_random = are_random
        self._operators = (Called(operator),) if rules.rows else ()
        self._right: dict[int, Outcome | None] = {}

    def right(self, number: int) -> Outcome | None:
        """Return what the reference gives in a call; ``None`` if the call cannot be made alone."""
        if number not in self._right:
            self._right[number] = self.wrong(number, reference, self.around)
        return self._right[number]

    def wrong(
        self, number: int, change: Callable[[OperatorCall], Any], around: AbstractContextManager[object]
    ) -> Outcome | None:
        """Return what a mutant gives in a call; ``None`` if it raises."""
        return outcome(change, self.calls[number], are_random=self._are_random, around=around)

    def difference(self, number: int, wrong: Outcome | None) -> CallDifference | None:
        """Return the first difference that the test's rules do not allow; ``None`` if there is none."""
        right = self.right(number)
        if right is None:
            return None
        if wrong is None:
            return CallDifference("error")
        if len(wrong.results) != len(right.results):
            return CallDifference("shape")
        for position, (one, other) in enumerate(zip(wrong.results, right.results, strict=True)):
            if (kind := self._compared(one, other)) is not None:
                return CallDifference(kind, position)
        if any(self._compared(*sides) is not None for sides in zip(wrong.inputs, right.inputs, strict=True)):
            return CallDifference("mutation")
        pairs = zip(wrong.gradients, right.gradients, strict=True)
        return CallDifference("gradient") if any(self._has_other_gradient(*sides) for sides in pairs) else None

    def tolerance(self, dtype: torch.dtype) -> Any:
        """Return the test's tolerance for a dtype in this operator's results."""
        return self.rules.tolerance(self._operators, DTYPE_NAMES[dtype])

    def _compared(self, one: torch.Tensor, other: torch.Tensor, *, flags: bool = True) -> Kind | None:
        tolerance = self.tolerance(other.dtype)
        is_alike = one.shape == other.shape and one.dtype is other.dtype and one.layout is other.layout
        if is_alike and not tolerance.is_strict and tolerance.strictness != "measured":
            # `compare` decides the same, and then measures the difference, which takes most of its time.
            is_same_flag = one.requires_grad == other.requires_grad or not flags
            if not is_same_flag or not (same_bits(one, other) or close(one.detach(), other.detach(), tolerance)):
                return "value" if is_same_flag else "metadata"
        left, right = (Observation(metadata(each), each.detach()) for each in (one, other))
        found = compare(left, right, tolerance, check_dtype=self.rules.check_dtype, check_grad_flags=flags)
        return None if found is None else found.kind

    def _has_other_gradient(self, one: torch.Tensor | None, other: torch.Tensor | None) -> bool:
        if one is None or other is None:
            present = other if one is None else one
            # To autograd, no gradient and a gradient of zeros are the same.
            return present is not None and has_any(present)
        return self._compared(one, other, flags=False) is not None
