"""Compare the outcome of a call with a mistake with the reference's, by the rules of a test, as the engine does."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ci_autotest.alignment.compare import compare
from ci_autotest.alignment.elements import close, has_any
from ci_autotest.alignment.tolerance_rules import Called
from ci_autotest.backends.sameness import same_bits
from ci_autotest.backends.snapshots import metadata
from ci_autotest.backends.torch_constants import DTYPE_NAMES
from ci_autotest.backends.trace import Observation
from ci_autotest.power.outcome import PLAIN, outcome, reference

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager
    from typing import Any

    import torch

    from ci_autotest.alignment.tolerance_rules import Rules
    from ci_autotest.power.call import OperatorCall
    from ci_autotest.power.mutated_torch import Noted
    from ci_autotest.power.outcome import Outcome
    from ci_autotest.values.verdict import Kind


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
