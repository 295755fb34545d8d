"""The fast path: decide with one look at the end of both runs whether a candidate is surely aligned.

It may only answer "surely aligned". It looks at every value once and has copies only of overwritten values. If it is
not sure, both sides run again with a copy of every value at its step, and ``compare`` decides (``differences``).
Responses of a host are first compared as bytes, without making tensors of them. There a case is surely aligned if all
facts equal the reference's and all elements are the same, or few, finite and within the tolerance. Elements that need
the tolerance are compared for a whole batch at once.
"""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import torch

from ci_autotest.alignment.compare import compare
from ci_autotest.alignment.elements import FEW, OF_NUMPY, close, near_in
from ci_autotest.alignment.tolerance_rules import expected_tolerance
from ci_autotest.backends.framework.response import FIELDS, ResponseModule
from ci_autotest.backends.framework.response_trace import ResponseTrace
from ci_autotest.backends.sameness import byte_view, same_bits, same_tensors
from ci_autotest.backends.snapshots import observed
from ci_autotest.backends.torch_constants import DTYPE_NAMES
from ci_autotest.backends.trace import Observation
from ci_autotest.program.expectations import has_expectation
from ci_autotest.program.ir import CALL_METHOD, EXPECT, PLACEHOLDER
from ci_autotest.values.tolerance import ANY, Tolerance

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from ci_autotest.alignment.tolerance_rules import Rules
    from ci_autotest.backends.framework.response import Reader
    from ci_autotest.backends.trace import Attempt, GradientKey, Trace
    from ci_autotest.program.ir import Program, Step

#: Elements below which ``torch.equal`` is faster than comparing memory.
SMALL: Final = 2048
_equal: Final = torch.equal
_EXACT: Final = Tolerance(0.0, 0.0)
#: Pairs to compare with a tolerance, by dtype and tolerance: the case and the bytes of both sides.
_Near = dict[tuple[torch.dtype, "Tolerance"], list[tuple[int, bytes, bytes]]]
_Tensor: Final = torch.Tensor
_version: Final = attrgetter("_version")
#: Entries of a step that returns nothing.
_NOTHING: Final[tuple[Any, ...]] = (None, ["plain", None])
_STRIDED: Final = torch.strided


def surely_aligned(attempts: Sequence[Attempt], traces: Sequence[Trace], rules: Rules) -> set[int]:
    """Return the positions of the cases of a batch that are surely aligned.

    Args:
        attempts: With the reference's gradients.
        traces: The candidate's trace of each. Those that are not sure by their bytes are loaded.
        rules: How values are compared.
    """
    # An expectation may have a stricter tolerance, which is not applied to bytes.
    sure = {
        position
        for position in surely_aligned_by_bytes(attempts, traces, rules)
        if not has_expectation(attempts[position].program.steps)
    }
    for position, (attempt, trace) in enumerate(zip(attempts, traces, strict=True)):
        if position not in sure:
            trace.load()
            if _is_sure(attempt.program, trace, attempt.trace, rules):
                sure.add(position)
    return sure


def is_surely_aligned(
    program: Program, candidate: Trace, reference: Trace, rules: Rules, passed_over: Collection[int] = ()
) -> bool:
    """Whether one case is surely aligned, but for values that are passed over; the candidate's trace is loaded."""
    candidate.load()
    return _is_sure(program, candidate, reference, rules, passed_over)


def _is_sure(
    program: Program, candidate: Trace, reference: Trace, rules: Rules, passed_over: Collection[int] = ()
) -> bool:
    """Whether everything is aligned at the end of both runs and nothing was written to in between.

    A version that changed without a copy of what was there, a fact that differs or an element outside the
    tolerance makes the answer no.
    """
    reference = candidate.counterpart(reference)
    if (
        candidate.untested is not None
        or candidate.rank_faults
        or candidate.failure is not None
        or candidate.backward_failure is not None
        or reference.backward_failure is not None
        or len(candidate.values) != len(reference.values)
        # One look at the end does not tell who wrote to an input if elements are not compared.
        or not rules.check_allclose
    ):
        return False
    try:
        return (
            _look_at(candidate)(program, candidate, reference, rules, passed_over)
            and _gradients_aligned(candidate, reference, program, rules)
            and _cotangents_kept(candidate, reference, rules)
            and _as_expected(candidate, reference, program, rules)
        )
    except Exception:  # noqa: BLE001 - foreign tensors: reading them may raise anything
        return False


def _as_expected(candidate: Trace, reference: Trace, program: Program, rules: Rules) -> bool:
    """Whether each expectation is met within its own tolerance, which may be stricter than the test's."""
    return all(
        close(
            candidate.values[i],
            reference.values[i],
            expected_tolerance(step, rules, program.steps, DTYPE_NAMES[reference.values[i].dtype]),
        )
        for i, step in enumerate(program.steps)
        if step.target == EXPECT
    )


def _look_at(candidate: Trace) -> Callable[[Program, Trace, Trace, Rules, Collection[int]], bool]:
    """Return the comparison that fits what a candidate reports of its values."""
    if candidate.is_remote:
        return _reported_aligned
    return _shown_aligned if candidate.shown is not None else _values_aligned


def _values_aligned(
    program: Program, candidate: Trace, reference: Trace, rules: Rules, passed_over: Collection[int]
) -> bool:
    if not _has_facts(candidate, reference):
        return False
    is_tolerant = rules.is_tolerant
    # Without a tolerance beyond rounding, a write to an input shows in its values.
    inputs = _inputs(program) if rules.rows or rules.has_own else ()
    for index, (facts, left, right) in enumerate(zip(reference.facts, candidate.values, reference.values, strict=True)):
        if index in passed_over:
            continue
        if facts is None:
            if left is not right and not _is_mute(program, index) and not plain_aligned(left, right):
                return False
        elif (
            # A value that was written to later does not show any more what it was at its step.
            (left._version != facts[2] or right._version != facts[2])
            and not _was_aligned(index, (candidate, reference), program, rules)
        ) or (
            left._version != right._version
            or (candidate.has_flags and not _has_flags(left, right))
            or left._is_view() is not right._is_view()
            # A write to an input that no tolerance excuses.
            or (index in inputs and left.device == right.device and not same_bits(left, right))
            or not (
                (is_tolerant and _is_same_small(left, right))
                or tensors_aligned(left, right, program.steps, rules, index)
            )
        ):
            return False
    return True


def _inputs(program: Program) -> frozenset[int]:
    return frozenset(index for index, step in enumerate(program.steps) if step.op == PLACEHOLDER)


def _was_aligned(index: int, sides: tuple[Trace, Trace], program: Program, rules: Rules) -> bool:
    """Whether both sides copied a value before it was written to, and the copies are aligned."""
    left, right = (side.copies.get(index) for side in sides)
    return left is not None and right is not None and tensors_aligned(left[0], right[0], program.steps, rules, index)


def _shown_aligned(
    program: Program, candidate: Trace, reference: Trace, rules: Rules, passed_over: Collection[int]
) -> bool:
    """Whether the values that a compiler shows, its inputs and outputs, agree with the reference's."""
    for index in candidate.shown or ():
        if index in passed_over:
            continue
        left, right = candidate.values[index], reference.values[index]
        if reference.facts[index] is None:
            if left is not right and not _is_mute(program, index) and not plain_aligned(left, right):
                return False
        elif (candidate.has_flags and not _has_flags(left, right)) or not tensors_aligned(
            left, right, program.steps, rules, index
        ):
            return False
    return True


def _has_flags(left: torch.Tensor, right: torch.Tensor) -> bool:
    return left.requires_grad is right.requires_grad and left.is_leaf is right.is_leaf


def _has_facts(candidate: Trace, reference: Trace) -> bool:
    """Whether the candidate's values were what the reference's were at their steps; gradients count if it has any."""
    if candidate.has_flags:
        return candidate.facts == reference.facts
    pairs = zip(candidate.facts, reference.facts, strict=False)
    return len(candidate.facts) == len(reference.facts) and all(
        left is right or (left is not None and right is not None and left[2] == right[2]) for left, right in pairs
    )


def _reported_aligned(
    program: Program, candidate: Trace, reference: Trace, rules: Rules, passed_over: Collection[int]
) -> bool:
    """Whether the values of another process agree with the reference's; overwritten values are never sure."""
    for index, facts in enumerate(reference.facts):
        if (candidate.shown is not None and index not in candidate.shown) or index in passed_over:
            continue
        left, right = candidate.values[index], reference.values[index]
        if facts is None:
            if left is not right and not _is_mute(program, index) and not plain_aligned(left, right):
                return False
        elif (
            not isinstance(left, _Tensor)
            or right._version != facts[2]
            or (candidate.has_flags and (left.requires_grad, left.is_leaf) != facts[:2])
            or not tensors_aligned(left, right, program.steps, rules, index, strides=False)
        ):
            return False
    return True


def has_state(value: object) -> bool:
    """Whether a value is a module, of this process or of another."""
    return isinstance(value, torch.nn.Module | ResponseModule)


def _is_mute(program: Program, index: int) -> bool:
    """Whether a step's result need not be compared: after a module's method in the setup, the module is compared."""
    step = program.steps[index]
    return step.in_setup and step.op == CALL_METHOD


def plain_aligned(left: Any, right: Any) -> bool:
    """Whether two values that are no tensors are aligned."""
    if has_state(right):
        return same_tensors(left.state_dict(), right.state_dict())
    if isinstance(right, np.ndarray):
        return isinstance(left, np.ndarray) and compare(observed(left), observed(right), _EXACT) is None
    if isinstance(right, tuple | list) and not isinstance(right, torch.Size):
        # Their tensors are steps of their own; only the arity is left.
        return isinstance(left, tuple | list) and len(left) == len(right)
    return compare(Observation(None, left), Observation(None, right), _EXACT) is None


def _is_same_small(left: torch.Tensor, right: torch.Tensor) -> bool:
    """Whether two tensors are small and equal: the common case, which takes one call.

    The call treats -0.0 and 0.0 as equal, as a tolerance does. Tensors on a device are left out, because the device's
    own kernel would compare them.
    """
    try:
        return left.is_cpu and left.dtype is right.dtype and right.numel() < SMALL and _equal(left, right)
    except RuntimeError:  # sparse layouts
        return False


def tensors_aligned(
    left: torch.Tensor,
    right: torch.Tensor,
    steps: Sequence[Step],
    rules: Rules,
    of: int | None = None,
    *,
    strides: bool = True,
) -> bool:
    """Whether two tensors agree now: dtype, layout and shape are the same, and elements are within the tolerance.

    Args:
        left: The candidate's.
        right: The reference's.
        steps: Of the program.
        rules: How values are compared.
        of: Index of the value; ``None`` for a gradient.
        strides: Whether ``bitwise`` compares strides.
    """
    if left.dtype is not right.dtype or left.layout is not right.layout or left.shape != right.shape:
        return False
    if same_bits(left, right):
        return rules.strictness != "bitwise" or not strides or left.stride() == right.stride()
    name = DTYPE_NAMES[right.dtype]
    return close(left, right, rules.tolerance(rules.operators(steps, of=of), name).surely(name))


def _gradients_aligned(candidate: Trace, reference: Trace, program: Program, rules: Rules) -> bool:
    # A candidate without backward passes has no gradients to compare.
    if not candidate.has_backward:
        return True
    left, right = candidate.gradients, reference.gradients
    is_whole = candidate.shown is None and not candidate.is_remote
    if (is_whole and left.keys() != right.keys()) or (candidate.is_remote and not _has_leaves(left, right, program)):
        return False
    is_tolerant = rules.is_tolerant
    for key, found in left.items():
        expected = right.get(key)
        if found is None or expected is None:
            if found is not expected:
                return False
        elif not (
            (is_tolerant and _is_same_small(found, expected))
            or tensors_aligned(found, expected, program.steps, rules, strides=not candidate.is_remote)
        ):
            return False
    return True


def _has_leaves(left: Mapping[GradientKey, Any], right: Mapping[GradientKey, Any], program: Program) -> bool:
    """Whether a side reports the gradient of each leaf and parameter for which the other has one."""
    return all(key in left for key in right if not is_intermediate(key, program))


def _cotangents_kept(candidate: Trace, reference: Trace, rules: Rules) -> bool:
    """Whether no side wrote into the cotangents, which start as copies of one source."""
    others = reference.cotangents
    for position, left in candidate.cotangents.items():
        right = others.get(position)
        if right is not None and not ((rules.is_tolerant and _is_same_small(left, right)) or same_bits(left, right)):
            return False
    return True


def surely_aligned_by_bytes(attempts: Sequence[Attempt], traces: Sequence[Trace], rules: Rules) -> set[int]:
    """Return the positions of the cases that are surely aligned, judged by response bytes that are not loaded yet.

    Args:
        attempts: With the reference's gradients.
        traces: Of the candidate; traces without response bytes are skipped.
        rules: How values are compared.
    """
    near: _Near = {}
    found = {
        position
        for position, (attempt, trace) in enumerate(zip(attempts, traces, strict=True))
        if isinstance(trace, ResponseTrace)
        and trace.reader is not None
        and _Look(position, trace.reader, rules, near).is_good(attempt, trace)
    }
    for (dtype, tolerance), rows in near.items():
        cases, left, right = zip(*rows, strict=True)
        flags = near_in(left, right, dtype, tolerance)
        found.difference_update(case for case, flag in zip(cases, flags, strict=True) if not flag)
    return found


class _Look:
    """Comparison of one case.

    Args:
        number: Number of the case.
        reader: Reads the host's response.
        rules: How values are compared.
        near: Collects the pairs to compare with a tolerance.
    """

    def __init__(self, number: int, reader: Reader, rules: Rules, near: _Near) -> None:
        self._number = number
        self._answer, self._buffers = reader.answer, reader.buffers
        self._rules = rules
        self._near = near

    def is_good(self, attempt: Attempt, trace: ResponseTrace) -> bool:
        """Whether the case is surely aligned apart from the pairs added to ``near``."""
        answer, reference, translated = self._answer, attempt.trace, trace.translated
        if (
            translated is None
            or trace.untested is not None
            or trace.shown is not None
            or reference.backward_failure is not None
            or answer.failure or answer.backward_failure or answer.lacking or answer.written
            or len(reference.values) != len(trace.values)
        ):  # fmt: skip
            return False
        self._operators = self._rules.operators(attempt.program.steps)
        for place, facts, value in zip(translated.moved, reference.facts, reference.values, strict=True):
            entry = answer.values[place] if place < len(answer.values) else None
            if facts is None:
                if value is not None or entry not in _NOTHING:
                    return False
            elif _version(value) != facts[2] or not self._is_same(entry, value, facts[:2] if trace.has_flags else None):
                return False
        return not trace.has_backward or self._has_gradients(attempt, trace)

    def _has_gradients(self, attempt: Attempt, trace: ResponseTrace) -> bool:
        """Whether the gradients agree with the reference's, and none of a leaf is missing."""
        expected = attempt.trace.gradients
        found = set()
        for key, entry in self._answer.gradients:
            own = trace.recorded(key)
            if own is None:
                continue
            found.add(own)
            right = expected.get(own)
            if entry is None or right is None:
                if entry is not right:
                    return False
            elif not self._is_same(entry, right, None):
                return False
        return all(key in found or is_intermediate(key, attempt.program) for key in expected)

    def _is_same(self, entry: Any, right: Any, flags: tuple[bool, bool] | None) -> bool:
        """Whether an entry describes the reference's tensor; its elements may be added to ``near``."""
        if type(entry) is not list or len(entry) != FIELDS or not isinstance(right, _Tensor):
            return False
        kind, name, shape, requires_grad, is_leaf, where = entry
        if (
            kind != "tensor"
            or not (right.is_cpu and right.layout is _STRIDED)
            or name != DTYPE_NAMES[right.dtype]
            or shape != list(right.shape)
            or (flags is not None and (requires_grad is not flags[0] or is_leaf is not flags[1]))
            # For a large tensor the host sends a digest, and its elements are still there.
            or type(where) is not int
            or not 0 <= where < len(self._buffers)
        ):
            return False
        left, own = bytes(self._buffers[where]), bytes(byte_view(right))
        return left == own or (len(left) == len(own) and self._may_be_near(left, own, right))

    def _may_be_near(self, left: bytes, own: bytes, right: torch.Tensor) -> bool:
        dtype = right.dtype
        tolerance = self._rules.tolerance(self._operators, DTYPE_NAMES[dtype]).surely(DTYPE_NAMES[dtype])
        # Which of several operators a value follows from is not known here.
        if (
            len(self._operators) > 1
            or tolerance is ANY
            or tolerance.is_strict
            or dtype not in OF_NUMPY
            or right.numel() > FEW
        ):
            return False
        if not tolerance.is_of_elements:
            return False
        self._near.setdefault((dtype, tolerance), []).append((self._number, left, own))
        return True


def is_intermediate(key: GradientKey, program: Program) -> bool:
    """Whether a gradient belongs to a value that a step computed."""
    return isinstance(key, int) and program.steps[key].op != PLACEHOLDER
