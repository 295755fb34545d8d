"""Tolerances: how far a candidate may be from the reference, per dtype and strictness.

The formula is ``|candidate - reference| <= atol + rtol * |reference|`` everywhere. It is not symmetric, because the
reference is the side that is believed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, Literal, get_args

from ci_autotest.errors import ToleranceError
from ci_autotest.values.dtypes import TOLERANCES

Strictness = Literal["tolerance", "ulp", "bitwise"]
STRICTNESSES: Final[tuple[str, ...]] = get_args(Strictness)

#: Units in the last place that ``strictness: ulp`` allows between two numbers of one dtype.
ULP_LIMIT: Final = 4


@dataclass(frozen=True, slots=True)
class Tolerance:
    """An allowed difference: ``rtol`` is a ratio, ``atol`` is in the unit of the elements."""

    rtol: float
    atol: float
    strictness: Strictness = "tolerance"

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


#: A tolerance that every element meets, for tests that only compare shapes, dtypes and flags.
ANY: Final = Tolerance(math.inf, math.inf)


def tolerance_for(
    dtype: str,
    rtol: float | None = None,
    atol: float | None = None,
    strictness: Strictness = "tolerance",
) -> Tolerance:
    """Return the given tolerance, else the default for ``dtype``; integers must be equal by default.

    Args:
        dtype: A dtype's name without ``torch.``.
        rtol: A ratio; requires ``atol``.
        atol: In the unit of the elements.
        strictness: How the numbers are compared.

    Raises:
        ToleranceError: Only one of ``rtol`` and ``atol`` is given.
    """
    if (rtol is None) != (atol is None):
        given, missing = ("rtol", "atol") if atol is None else ("atol", "rtol")
        message = f"{given} is given and {missing} is not: write both, or neither for the defaults per dtype."
        raise ToleranceError(message)
    if rtol is not None and atol is not None:
        return Tolerance(rtol, atol, strictness)
    default_rtol, default_atol = TOLERANCES.get(dtype, (0.0, 0.0))
    return Tolerance(default_rtol, default_atol, strictness)
