"""The tensors of a verdict as the search for a pattern wants them: NumPy's, in float64, with the step's inputs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import torch

from ci_autotest.alignment.elements import mismatches, ulp_distance, wide
from ci_autotest.alignment.error_pattern import DifferingTensor, error_pattern
from ci_autotest.alignment.single_step import COPY
from ci_autotest.program.codegen import names
from ci_autotest.program.ir import PLACEHOLDER, step_refs

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from ci_autotest.backends.trace import Trace
    from ci_autotest.program.ir import Program, Step
    from ci_autotest.values.error_pattern import ErrorPattern
    from ci_autotest.values.tolerance import Tolerance

#: Elements of the largest tensor whose pattern is looked for, so that it costs less than a second.
_MOST_ELEMENTS: Final = 1 << 20
#: Inputs that a condition may name.
_MOST_INPUTS: Final = 8


def pattern_of(
    sides: tuple[torch.Tensor, torch.Tensor], inputs: dict[str, torch.Tensor], tolerance: Tolerance
) -> ErrorPattern | None:
    """Return the pattern of two tensors that differ; ``None`` if none of their elements does, or they are too large.

    Args:
        sides: The candidate's tensor and the reference's, of one shape.
        inputs: What the step was given on the reference, by name.
        tolerance: What is allowed.
    """
    candidate, reference = sides
    if candidate.shape != reference.shape or not 0 < reference.numel() <= _MOST_ELEMENTS:
        return None
    wrong = mismatches(candidate, reference, tolerance).numpy()
    if not wrong.any():
        return None
    ulps = ulp_distance(candidate, reference)
    sample = DifferingTensor(
        candidate=_plain(candidate), reference=_plain(reference), wrong=wrong,
        inputs={name: _plain(value) for name, value in inputs.items()},
        tolerance=tolerance, ulps=None if ulps is None else ulps.numpy(),
    )  # fmt: skip
    return error_pattern(sample)


def inputs_of(program: Program, index: int, reference: Trace, *, has_backward: bool) -> dict[str, torch.Tensor]:
    """Return the tensors that a step was given on the reference; for a gradient, the program's own inputs."""
    steps, named = program.steps, names(program)
    given = [ref.index for ref in step_refs(steps[index])]
    if has_backward:
        given = [i for i, step in enumerate(steps) if step.op == PLACEHOLDER]
    values = ((_name(i, steps, named), _before(i, reference)) for i in dict.fromkeys(given))
    found = [(name, value) for name, value in values if isinstance(value, torch.Tensor) and _is_readable(value)]
    return dict(found[:_MOST_INPUTS])


def _name(index: int, steps: Sequence[Step], named: Sequence[str]) -> str:
    """Return the name of a value; of the copy that an isolated step writes to, the name of what was copied."""
    step = steps[index]
    refs = step_refs(step)
    return named[refs[0].index if step.name == COPY and refs else index]


def _before(index: int, trace: Trace) -> Any:
    """Return a value as it was at its step, because a later one may have written to it."""
    seen = trace.observations[index] if index < len(trace.observations) else None
    return trace.values[index] if seen is None else seen.data


def _is_readable(value: object) -> bool:
    """Whether NumPy can have the elements of a value; others are no reason for a pattern, and none for an error."""
    return (
        isinstance(value, torch.Tensor)
        and value.layout is torch.strided
        and not value.is_quantized
        and value.device.type != "meta"
        and 0 < value.numel() <= _MOST_ELEMENTS
    )


def _plain(tensor: torch.Tensor) -> NDArray[np.float64]:
    """Return the elements in float64; of complex numbers the magnitude, which is enough to look for a pattern."""
    found = wide(tensor)
    return (found.abs() if found.is_complex() else found).numpy()
