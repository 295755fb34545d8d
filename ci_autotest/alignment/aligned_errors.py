"""Measure how far an aligned case is off: by operator and dtype, of values and of gradients."""

from __future__ import annotations

import sys
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import msgspec
import torch

from ci_autotest.alignment.elements import ulp_distance, wide
from ci_autotest.backends.operators.identity import step_operator
from ci_autotest.backends.sameness import same_bits
from ci_autotest.backends.torch_constants import DTYPE_NAMES
from ci_autotest.program.edit import maker_of, users
from ci_autotest.program.ir import PLACEHOLDER
from ci_autotest.values.aligned_error import AlignedError, joined_errors
from ci_autotest.values.tolerance import tolerance_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ci_autotest.backends.trace import Trace
    from ci_autotest.program.ir import Program

_Tensor: Final = torch.Tensor


def errors_of(program: Program, candidate: Trace, reference: Trace) -> tuple[AlignedError, ...]:
    """Return the greatest errors of an aligned case, each counted as one case."""
    candidate.load()
    pairs = _pairs(program, candidate, candidate.counterpart(reference))
    errors = [_error(operator, left, right) for operator, left, right in pairs]
    # Most values of most cases are exact, and each of them has the one entry of its operator and dtype.
    distinct = {id(item): item for item in errors}.values()
    return tuple(
        item if item.cases == 1 else msgspec.structs.replace(item, cases=1) for item in joined_errors(distinct)
    )


def _pairs(program: Program, candidate: Trace, reference: Trace) -> Iterator[tuple[str, Any, Any]]:
    """Yield the operator and both sides of each value that a call returned, and of each gradient."""
    steps = program.steps
    for index, step in enumerate(steps):
        is_shown = candidate.shown is None or index in candidate.shown
        if step.in_setup or step.op == PLACEHOLDER or not is_shown:
            continue
        left, right = candidate.values[index], reference.values[index]
        if _is_pair(left, right):
            yield step_operator(steps[maker_of(steps, index)], steps), left, right
    for key, left in candidate.gradients.items() if candidate.has_backward else ():
        index = key if isinstance(key, int) else key[0]
        uses = users(program, index)
        right = reference.gradients.get(key)
        if uses and _is_pair(left, right):
            yield step_operator(steps[uses[-1]], steps), left, right


def _is_pair(left: object, right: object) -> bool:
    is_tensor = isinstance(left, _Tensor) and isinstance(right, _Tensor)
    return is_tensor and left.shape == right.shape and left.dtype is right.dtype and right.layout is torch.strided  # type: ignore[attr-defined]


def _error(operator: str, left: torch.Tensor, right: torch.Tensor) -> AlignedError:
    name = DTYPE_NAMES[right.dtype]
    if right.numel() == 0 or same_bits(left.detach(), right.detach()):
        return _exact(operator, name)
    default = tolerance_for(name)
    is_inexact = bool(default.rtol or default.atol)
    ours, theirs = wide(left), wide(right)
    # The difference of two infinities is NaN, and one such element would hide the errors of all others.
    finite = torch.isfinite(ours) & torch.isfinite(theirs)
    ours, theirs = ours[finite], theirs[finite]
    apart, size = (ours - theirs).abs(), theirs.abs()
    distance = ulp_distance(left.detach(), right.detach())
    return AlignedError(
        operator=operator, dtype=name, cases=1, absolute=_most(apart), relative=_most((apart / size)[size > 0]),
        ulp=None if distance is None else int(min(_most(distance[finite]), 2.0**53)),
        used=_most(apart / (default.atol + default.rtol * size)) if is_inexact else None,
    )  # fmt: skip


@lru_cache(maxsize=4096)
def _exact(operator: str, dtype: str) -> AlignedError:
    """Return the entry of values that are the reference's bit by bit."""
    default = tolerance_for(dtype)
    # Other dtypes have no tolerance, of which a part could be used.
    nothing = (0, 0.0) if default.rtol or default.atol else (None, None)
    return AlignedError(
        operator=operator, dtype=dtype, cases=1, absolute=0.0, relative=0.0, ulp=nothing[0], used=nothing[1]
    )  # fmt: skip


def _most(numbers: torch.Tensor) -> float:
    # A ratio to a denormal may be infinite, which a report cannot hold.
    return min(float(numbers.max()), sys.float_info.max) if numbers.numel() else 0.0
