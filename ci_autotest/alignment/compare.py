"""Compare one value of the candidate with the reference's, and name its place: metadata, then bits, then tolerance."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec
import torch

from ci_autotest.alignment.blame.reference_error import allowed_by
from ci_autotest.alignment.elements import close, difference, has_any, metric_of, mismatches
from ci_autotest.backends.sameness import same_bits
from ci_autotest.program.ir import is_unpacking, step_refs
from ci_autotest.values.tolerance import Tolerance
from ci_autotest.values.verdict import NO_TENSOR, Misalignment, Value

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ci_autotest.backends.trace import Metadata, Observation
    from ci_autotest.program.ir import Step
    from ci_autotest.values.verdict import Aspect, Difference, Kind, Place

#: Types of plain values that each framework has its own version of.
_WORDS: Final = (torch.dtype, torch.layout, torch.memory_format)


def compare(
    candidate: Observation,
    reference: Observation,
    tolerance: Tolerance,
    *,
    check_dtype: bool = True,
    check_grad_flags: bool = True,
    check_strides: bool = True,
) -> Misalignment | None:
    """Return how ``candidate`` departs from ``reference``, or ``None`` when it does not.

    Elements are aligned when ``|candidate - reference| <= atol + rtol * |reference|``, in float64.
    NaN aligns with NaN only. ``ulp`` and ``bitwise`` also distinguish -0.0 from 0.0 and a flushed
    denormal from zero; ``bitwise`` compares strides. ``measured`` allows a multiple of the reference's own error.

    Args:
        candidate: Any shape ``(d0, ..., dn)``, or a plain value.
        reference: The same shape, or the misalignment is one of shape.
        tolerance: ``rtol`` is a ratio; ``atol`` is in the unit of the elements.
        check_dtype: Whether another dtype is a misalignment.
        check_grad_flags: Whether ``requires_grad`` and ``is_leaf`` are compared.
        check_strides: Whether ``bitwise`` compares strides, which another process does not report.

    Source:
        ``torch.testing.assert_close`` (PyTorch 2.13) for the formula and the defaults per dtype.
    """
    if candidate.metadata is None or reference.metadata is None:
        return _plain(candidate, reference)
    kind = _metadata(candidate.metadata, reference.metadata, check_dtype=check_dtype, check_grad=check_grad_flags)
    is_bitwise = tolerance.strictness == "bitwise" and check_strides
    if kind is None and is_bitwise and _strides_differ(candidate.metadata, reference.metadata):
        kind = "metadata"
    if kind is not None:
        return msgspec.structs.replace(
            _misalignment(kind, candidate, reference),
            lacks_gradient=_lacks_gradient(kind, candidate, reference, tolerance),
        )
    if same_bits(candidate.data, reference.data):
        return None
    found, detail = _difference(candidate.data, reference.data, tolerance, reference.exact)
    if found is None:
        return None
    return Misalignment(
        kind="value",
        step=-1,
        candidate=str(candidate.metadata),
        reference=str(reference.metadata),
        difference=found,
        detail=detail,
    )


def _difference(
    candidate: torch.Tensor, reference: torch.Tensor, tolerance: Tolerance, exact: torch.Tensor | None
) -> tuple[Difference | None, str]:
    """Return by how much the elements differ, and what the tolerance says of it besides."""
    is_measured = tolerance.strictness == "measured" and exact is not None and candidate.dtype is reference.dtype
    allowed = allowed_by(reference, exact, tolerance) if is_measured and exact is not None else None
    if allowed is not None:
        bad = allowed.misaligned(candidate, reference)
        return (difference(candidate, reference, allowed.beside, bad), allowed.text) if has_any(bad) else (None, "")
    if close(candidate, reference, tolerance):
        return None, ""
    if tolerance.is_of_elements:
        return difference(candidate, reference, tolerance), ""
    found = metric_of(candidate, reference, tolerance)
    each = Tolerance(tolerance.rtol, found.bound or tolerance.atol)
    return difference(candidate, reference, each, mismatches(candidate, reference, tolerance)), found.text


def _metadata(candidate: Metadata, reference: Metadata, *, check_dtype: bool, check_grad: bool) -> Kind | None:
    if candidate.shape != reference.shape:
        return "shape"
    if check_dtype and candidate.dtype != reference.dtype:
        return "dtype"
    if candidate.layout != reference.layout:
        return "metadata"
    flags = (candidate.requires_grad, candidate.is_leaf) != (
        reference.requires_grad,
        reference.is_leaf,
    )
    return "metadata" if check_grad and flags else None


def _lacks_gradient(kind: Kind, candidate: Observation, reference: Observation, tolerance: Tolerance) -> bool:
    """Whether the values agree and only the candidate has no gradient, as a kernel without a backward pass has none."""
    left, right = candidate.metadata, reference.metadata
    if kind != "metadata" or left is None or right is None or left.layout != right.layout:
        return False
    is_apart = right.requires_grad and not left.requires_grad
    return is_apart and _difference(candidate.data, reference.data, tolerance, reference.exact)[0] is None


def _strides_differ(candidate: Metadata, reference: Metadata) -> bool:
    """Whether strides differ in a dimension of size 2 or more; the others have no meaning."""
    if 0 in reference.shape or not len(candidate.strides) == len(reference.strides) == len(reference.shape):
        return False
    return any(
        size > 1 and left != right
        for size, left, right in zip(reference.shape, candidate.strides, reference.strides, strict=True)
    )


def _misalignment(kind: Kind, candidate: Observation, reference: Observation) -> Misalignment:
    left, right = candidate.metadata, reference.metadata
    assert left is not None  # noqa: S101 - the caller looked
    assert right is not None  # noqa: S101 - the caller looked
    detail = ""
    if kind == "metadata":
        names = ("layout", "strides", "requires_grad", "is_leaf")
        pairs = [(name, getattr(left, name), getattr(right, name)) for name in names]
        detail = "; ".join(f"{name}: candidate {a}, reference {b}" for name, a, b in pairs if a != b)
    shown = [str(left), str(right)]
    if shown[0] == shown[1]:
        wrong = [name for name in ("is_leaf", "strides") if getattr(left, name) != getattr(right, name)]
        shown = [
            ", ".join([text, *(f"{name} {getattr(side, name)}" for name in wrong)])
            for text, side in zip(shown, (left, right), strict=True)
        ]
    return Misalignment(kind=kind, step=-1, candidate=shown[0], reference=shown[1], detail=detail)


def _plain(candidate: Observation, reference: Observation) -> Misalignment | None:
    if candidate.metadata is not None or reference.metadata is not None:
        return Misalignment(kind="shape", step=-1, candidate=_shape_of(candidate), reference=_shape_of(reference))
    left, right = candidate.data, reference.data
    if isinstance(right, torch.device) or left is right or left == right:
        return None
    if isinstance(right, _WORDS) and isinstance(left, str):
        return None  # Another framework names it differently. A tensor's dtype is compared as metadata.
    if isinstance(left, float) and isinstance(right, float) and left != left and right != right:  # noqa: PLR0124 - NaN
        return None
    return Misalignment(kind="value", step=-1, candidate=repr(left)[:200], reference=repr(right)[:200])


def _shape_of(side: Observation) -> str:
    """Return what a side has where one of them has a tensor; of a sequence of values nothing is observed."""
    if side.metadata is not None:
        return str(side.metadata)
    return NO_TENSOR if side.data is None else repr(side.data)[:200]


def placed(misalignment: Misalignment | None, kind: Kind, step: int, at: Place) -> list[Misalignment]:
    """Return the difference, if any, as one of this kind at this place."""
    if misalignment is None:
        return []
    return [msgspec.structs.replace(misalignment, kind=kind, step=step, at=at)]


def value_place(named: Sequence[str], steps: Sequence[Step], index: int, aspect: Aspect = "value") -> Value:
    """Return a step's value as a place; an element of a tuple by the name of the tuple and its index.

    Args:
        named: Name of each step.
        steps: Of the program.
        index: The step.
        aspect: What of the value differs.
    """
    step = steps[index]
    element = step.args[1] if is_unpacking(step) and isinstance(step.args[1], int) else None
    return Value(name=named[index if element is None else step_refs(step)[0].index], aspect=aspect, element=element)
