"""The reference's own error: how far it is from float64, which bounds the candidate at ``strictness: measured``.

A candidate is aligned where ``|candidate - exact| <= factor * E + u * |exact|``: ``E`` is the greatest error of the
reference in the tensor, and ``u`` half a unit in the last place of its dtype. An element with the reference's own bits
is always aligned. A factor above 2 says that the candidate may round in other places: it then multiplies ``u`` too, by
half of itself, and ``E`` is at least a quarter of ``u`` times the greatest element, because the reference may be lucky.

Source:
    T. Dao, flash-attention, ``tests/test_flash_attn.py``: the error is at most twice that of PyTorch in low precision.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

import torch

from ci_autotest.alignment.blame.float64_runs import widened
from ci_autotest.alignment.blame.overflow import in_range
from ci_autotest.alignment.elements import equal_or_nan, wide
from ci_autotest.backends.eager.backend import TorchBackend
from ci_autotest.backends.torch_constants import DTYPE_NAMES
from ci_autotest.values.dtypes import ROUNDING
from ci_autotest.values.tolerance import ERROR_FACTOR, Tolerance

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from ci_autotest.alignment.single_step import Live
    from ci_autotest.backends.trace import GradientKey, ReferenceBackend, Trace

#: Greatest error of a reference that is still rounding: in roundings of the greatest element, and relative to it. A
#: float64 run that differs by more computes something else, for example other random numbers.
_ROUNDINGS: Final = 1 << 12
_RELATIVE: Final = 0.125
#: Values whose float64 counterpart is asked for: of a step, of a step after the run, of a gradient, of a state.
Part: TypeAlias = "tuple[str, GradientKey]"
InFloat64: TypeAlias = "Callable[[], AbstractContextManager[object]]"


class Allowed(NamedTuple):
    """What ``strictness: measured`` allows in one tensor.

    Attributes:
        exact: The tensor in float64, with values beyond the dtype's range as infinities.
        error: The reference's greatest error, in the unit of the elements.
        tolerance: Of the candidate's distance from ``exact``.
        beside: A tolerance of its distance from the reference, which it exceeds wherever it exceeds ``tolerance``.
    """

    exact: torch.Tensor
    error: float
    tolerance: Tolerance
    beside: Tolerance

    def misaligned(self, candidate: torch.Tensor, reference: torch.Tensor) -> torch.Tensor:
        """Return which elements are farther from the exact result than allowed: bool, the tensors' shape."""
        ours, theirs = wide(candidate), wide(reference)
        near = torch.isclose(ours, self.exact, self.tolerance.rtol, self.tolerance.atol, equal_nan=True)
        return ~(near | equal_or_nan(ours, theirs))

    @property
    def text(self) -> str:
        """The measure in words."""
        factor = self.tolerance.factor
        roundings = f"{factor / ERROR_FACTOR:g} roundings" if factor > ERROR_FACTOR else "one rounding"
        allowed = f"{factor:g} times that and {roundings} are allowed"
        return f"the reference itself is off from float64 by up to {self.error:.3g}; {allowed}"


def allowed_by(reference: torch.Tensor, exact: torch.Tensor, tolerance: Tolerance) -> Allowed | None:
    """Return what the reference's own error allows; ``None`` if it is no rounding error, or none can be measured.

    Args:
        reference: Of a dtype that float64 is wider than.
        exact: The same tensor in float64.
        tolerance: At strictness ``measured``.
    """
    unit = ROUNDING.get(DTYPE_NAMES[reference.dtype])
    if unit is None or exact.shape != reference.shape:
        return None
    truth = in_range(wide(exact), reference.dtype)
    value = wide(reference)
    finite = torch.isfinite(truth) & torch.isfinite(value)
    error = float((value - truth)[finite].abs().max()) if bool(finite.any()) else 0.0
    largest = float(truth[finite].abs().max()) if bool(finite.any()) else 0.0
    if error > min(_ROUNDINGS * unit, _RELATIVE) * largest:
        return None
    owed = error
    if tolerance.factor > ERROR_FACTOR:
        owed, unit = max(error, unit * largest / 4), unit * tolerance.factor / ERROR_FACTOR
    # An element farther than `factor E + u |exact|` from float64 is farther than this from the reference.
    rest = max(tolerance.factor - 1 - unit, 0.0) * owed
    measured = Tolerance(unit, tolerance.factor * owed, factor=tolerance.factor)
    return Allowed(truth, error, measured, Tolerance(unit, rest))


class ExactValues:
    """The values of a program in float64, computed when the first is asked for.

    Args:
        live: The program.
        in_float64: Entered while float64 runs; ``None`` if it must not run.
        reference: The side believed, if it is not torch on the whole program.
    """

    def __init__(
        self, live: Live, in_float64: InFloat64 | None = nullcontext, reference: ReferenceBackend | None = None
    ) -> None:
        self._live, self._reference = live, reference
        self._in_float64 = in_float64
        # With other random numbers, float64 would compute something else.
        self._has_answer = in_float64 is not None and all(step.seed is None for step in live.program.steps)
        self._runs: dict[torch.dtype, tuple[Trace, dict[int, int]]] = {}

    def find(self, part: Part, dtype: torch.dtype) -> torch.Tensor | None:
        """Return a tensor in float64; ``None`` if float64 has none.

        Args:
            part: ``value`` or ``end`` with a step, ``gradient`` with its key, ``state`` with a step and a name.
            dtype: Of the tensor, from which operators take defaults.
        """
        if not self._has_answer or DTYPE_NAMES[dtype] not in ROUNDING:
            return None
        trace, places = self._run(dtype)
        kind, key = part
        if trace.failure is not None:
            return None
        index, name = (key, "") if isinstance(key, int) else key
        at = places[index]
        if kind == "gradient":
            found = trace.gradients.get(at if isinstance(key, int) else (at, name))
        elif kind == "state":
            found = trace.values[at].state_dict().get(name)
        else:
            seen = trace.observations[at]
            found = trace.values[at] if kind == "end" else seen.data if seen is not None else None
        return found.detach() if isinstance(found, torch.Tensor) else None

    def _run(self, dtype: torch.dtype) -> tuple[Trace, dict[int, int]]:
        # Only the defaults of some operators depend on the dtype, so one run for each dtype of the results is enough.
        if dtype not in self._runs:
            wider, places = widened(self._live, dtype)
            backend = self._reference or TorchBackend()
            assert self._in_float64 is not None  # noqa: S101 - `find` looked
            with self._in_float64():
                trace = backend.run(wider.program, wider.sources, snapshots=True)
                if trace.failure is None and wider.cotangents:
                    backend.backward(wider.program, trace, wider.cotangents)
            self._runs[dtype] = trace, places
        return self._runs[dtype]
