"""The fast path for a host's response: compare its bytes with the reference without making a tensor.

A case is surely aligned if all facts equal the reference's and all elements are the same, or few, finite and within the
tolerance. Elements that need the tolerance are compared for a whole batch at once.
"""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

import torch

from ci_autotest.alignment.elements import FEW, OF_NUMPY, near_in
from ci_autotest.backends.remote.response import FIELDS
from ci_autotest.backends.remote.response_trace import ResponseTrace
from ci_autotest.backends.sameness import byte_view
from ci_autotest.backends.torch_constants import DTYPE_NAMES
from ci_autotest.program.ir import PLACEHOLDER
from ci_autotest.values.tolerance import ANY

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ci_autotest.alignment.tolerance_rules import Rules
    from ci_autotest.backends.remote.response import Reader
    from ci_autotest.backends.trace import Attempt, GradientKey, Trace
    from ci_autotest.program.ir import Program
    from ci_autotest.values.tolerance import Tolerance

#: Pairs to compare with a tolerance, by dtype and tolerance: the case and the bytes of both sides.
_Near = dict[tuple[torch.dtype, "Tolerance"], list[tuple[int, bytes, bytes]]]
_Tensor: Final = torch.Tensor
_version: Final = attrgetter("_version")
#: Entries of a step that returns nothing.
_NOTHING: Final[tuple[Any, ...]] = (None, ["plain", None])
_STRIDED: Final = torch.strided


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
