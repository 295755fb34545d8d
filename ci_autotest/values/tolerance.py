"""Tolerances: how far a candidate may be from the reference, per dtype and strictness.

The formula is ``|candidate - reference| <= atol + rtol * |reference|`` everywhere. It is not symmetric, because the
reference is the side that is believed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, Literal, get_args

from ci_autotest.errors import ToleranceError
from ci_autotest.values.dtypes import ROUNDING, TOLERANCES

Strictness = Literal["tolerance", "measured", "ulp", "bitwise"]
Metric = Literal["elements", "relative_norm", "cosine", "snr_db", "ulp"]
#: K is the number of elements that an operator sums for one element of its result.
Scale = Literal["sqrt(K)", "K", "log2(K)"]
STRICTNESSES: Final[tuple[str, ...]] = get_args(Strictness)

#: Units in the last place that ``strictness: ulp`` allows between two numbers of one dtype.
ULP_LIMIT: Final = 4
#: How many times the reference's own float64 error ``strictness: measured`` allows.
ERROR_FACTOR: Final = 2.0


@dataclass(frozen=True, slots=True)
class Tolerance:
    """An allowed difference.

    Attributes:
        rtol: A ratio to the reference's element.
        atol: In the unit of the elements.
        strictness: How the numbers are compared. ``measured`` allows ``factor`` times the reference's own error in
            float64; ``rtol`` and ``atol`` hold where that error is not known.
        metric: What is held against a limit: each element, or the tensor as a whole.
        limit: Of a metric other than ``elements``: the greatest ``relative_norm`` or ``ulp``, the least ``cosine`` or
            ``snr_db``.
        share: Part of the elements that may be off, for the metrics ``elements`` and ``ulp``.
        factor: For strictness ``measured``.
    """

    rtol: float
    atol: float
    strictness: Strictness = "tolerance"
    metric: Metric = "elements"
    limit: float = 0.0
    share: float = 0.0
    factor: float = ERROR_FACTOR

    def __post_init__(self) -> None:
        """Refuse a value that is no bound.

        Raises:
            ToleranceError: A bound is negative or not a number.
        """
        for name, bound in (("rtol", self.rtol), ("atol", self.atol)):
            # `bound < 0` would let NaN pass.
            if not bound >= 0:
                message = f"{name} is {bound}: a tolerance is 0 or more."
                raise ToleranceError(message)

    @property
    def is_strict(self) -> bool:
        """Whether bits are compared."""
        return self.strictness in {"ulp", "bitwise"}

    @property
    def is_of_elements(self) -> bool:
        """Whether each element alone decides; if not, the tensor as a whole does."""
        return self.metric == "elements" and not self.share

    def surely(self, dtype: str) -> Tolerance:
        """Return a tolerance that a fast path may apply without float64: what meets it meets this one as well.

        For ``measured`` it is one rounding of the reference's element: the reference's own error ``e`` and a rounding
        ``u`` of its element are at most ``2 e`` and a rounding of the exact result.
        """
        if self.strictness != "measured" or self.factor < ERROR_FACTOR:
            return self if self.strictness != "measured" else EXACTLY
        return Tolerance(ROUNDING.get(dtype, 0.0), 0.0)


#: A tolerance that only equal elements meet.
EXACTLY: Final = Tolerance(0.0, 0.0)
#: A tolerance that every element meets, for tests that only compare shapes, dtypes and flags.
ANY: Final = Tolerance(math.inf, math.inf)


def tolerance_for(
    dtype: str,
    rtol: float | None = None,
    atol: float | None = None,
    strictness: Strictness = "tolerance",
) -> Tolerance:
    """Return the given tolerance; a bound that is not given is the default for ``dtype``. Integers must be equal.

    Args:
        dtype: A dtype's name without ``torch.``.
        rtol: A ratio.
        atol: In the unit of the elements.
        strictness: How the numbers are compared.
    """
    default_rtol, default_atol = TOLERANCES.get(dtype, (0.0, 0.0))
    return Tolerance(
        default_rtol if rtol is None else rtol, default_atol if atol is None else atol, strictness
    )  # fmt: skip
