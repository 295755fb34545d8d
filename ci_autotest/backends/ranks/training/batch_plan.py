"""How a case runs on ranks that share its batch, as ``slice_reference`` finds it out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import torch

from ci_autotest.errors import Unsupported, UnsupportedReason, error_text
from ci_autotest.host.steps import materialize

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ci_autotest.backends.ranks.training.joins import Join
    from ci_autotest.backends.trace import Expectation, GradientKey
    from ci_autotest.program.distribution import Distribution
    from ci_autotest.program.ir import Step

#: A size that the body reads, as in ``x.size(0)``, is a number of the program too.
_FEWER_ROWS: Final = (
    "If the body holds the number of rows, write x.view(-1, 2) for x.view(x.size(0), 2); if it needs more rows than a "
    "rank has, draw more"
)


class RankPlan(NamedTuple):
    """How a case runs on ranks.

    Attributes:
        joins: How the values of the shown steps are joined, by index.
        weights: For each backward pass of the body: what the loss of each rank is multiplied by, by the index of the
            pass.
        cotangents: For each rank, what goes into the automatic backward pass, by position.
        keys: The leaves and parameters that have gradients.
        states: The modules.
        of_slices: Buffers whose values are those of a slice by their definition: ``(step, name)``.
        has_unused: Whether a parameter has no gradient after a backward pass.
        mixes: Why the values of the ranks can be held against nothing; ``None`` if they can.
        distributions: How the value of each step lies on the ranks.
        buffers: All buffers of modules: ``(step, name)``.
        is_mixed: Whether rows are not independent.
        expectation: What the ranks are held against; ``None`` for the whole batch.
    """

    joins: dict[int, Join]
    weights: dict[int, list[float]]
    cotangents: list[dict[int, torch.Tensor]]
    keys: list[GradientKey]
    states: list[int]
    of_slices: frozenset[tuple[int, str]]
    has_unused: bool
    mixes: Unsupported | None
    distributions: dict[int, Distribution]
    buffers: frozenset[tuple[int, str]] = frozenset()
    is_mixed: bool = False
    expectation: Expectation | None = None


class NotSplitError(Exception):
    """The batch of a test cannot be split.

    Args:
        reason: Typed reason.
        detail: In words.
    """

    def __init__(self, reason: UnsupportedReason, detail: str) -> None:
        self.why = Unsupported(reason, detail)
        super().__init__(detail)


def raised_on_slice(raised: str, error: BaseException) -> NotSplitError:
    """Return that the body cannot run on the rows of one rank: it may hold the number of all rows, or need more."""
    text = error_text(error)[:200].rstrip(".")
    detail = f"{raised}, and not on all of them: {text}. {_FEWER_ROWS}"
    return NotSplitError(UnsupportedReason.SLICE, detail)


def weighted_backward(step: Step, values: Sequence[Any], weight: float, binding: Any) -> None:
    """Run a backward pass of a body with its loss multiplied by a weight."""
    root, *given = (materialize(argument, values, binding.constant) for argument in step.args)
    named = {key: materialize(argument, values, binding.constant) for key, argument in step.kwargs}
    gradient = named.pop("gradient", given.pop(0) if given else None)
    start = torch.ones_like(root) if gradient is None else gradient
    root.backward(start * weight, *given, **named)
