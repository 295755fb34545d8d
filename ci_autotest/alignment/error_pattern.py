"""The pattern of a difference: the shortest true description of which elements are wrong, and the map of their errors.

A region is named only if naming it, and then saying which of its elements are wrong, takes fewer bits than saying which
of all elements are (minimum description length). So noise has no pattern, and a short list of elements has none either.
"""

from __future__ import annotations

from itertools import chain
from math import lgamma, log, log2
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from ci_autotest.alignment.error_conditions import conditions
from ci_autotest.alignment.error_map import error_map
from ci_autotest.alignment.error_regions import regions
from ci_autotest.alignment.error_relation import relation
from ci_autotest.values.error_pattern import ErrorPattern, Everything

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from ci_autotest.alignment.error_regions import Proposal
    from ci_autotest.values.error_pattern import Region
    from ci_autotest.values.tolerance import Tolerance

#: Bits that a description must save: by chance, one in a thousand random masks has one that saves as many.
_SAVED_BITS: Final = 10.0
#: The share of a region's elements that must be wrong for the region to be named.
_COVERED: Final = 0.6
#: The share of all elements that must be wrong to say "everything".
_ALL: Final = 0.95


class Sample(NamedTuple):
    """A tensor that differs, as NumPy sees it.

    Attributes:
        candidate: In float64; of complex numbers, the magnitude.
        reference: The same of the reference.
        wrong: Which elements are outside the tolerance.
        inputs: What the step was given, by name, in float64.
        tolerance: What is allowed.
        ulps: Distance in units in the last place; ``None`` if the dtype has none.
    """

    candidate: NDArray[np.float64]
    reference: NDArray[np.float64]
    wrong: NDArray[np.bool_]
    inputs: Mapping[str, NDArray[np.float64]]
    tolerance: Tolerance
    ulps: NDArray[np.float64] | None = None


@np.errstate(all="ignore")
def error_pattern(sample: Sample) -> ErrorPattern:
    """Return the pattern of a tensor of which at least one element is wrong."""
    candidate, reference, wrong, tolerance = sample.candidate, sample.reference, sample.wrong, sample.tolerance
    region, covered = _named_region(sample)
    return ErrorPattern(
        shape=wrong.shape,
        mismatched=int(wrong.sum()),
        region=region,
        covered=covered,
        relation=relation(candidate, reference, wrong, tolerance),
        map=error_map(candidate, reference, wrong, tolerance, sample.ulps),
    )


def _named_region(sample: Sample) -> tuple[Region | None, int]:
    """Return the region with the shortest description and its number of elements; ``None`` if none is short enough."""
    wrong, count = sample.wrong, int(sample.wrong.sum())
    if wrong.size <= 1 or not wrong.ndim:
        return None, 0
    if count >= _ALL * wrong.size:
        return Everything(), wrong.size
    limit = _choice_bits(wrong.size, count) - _SAVED_BITS
    found: tuple[Region | None, int] = (None, 0)
    for proposal in chain(regions(wrong), conditions(wrong, sample.inputs, sample.reference)):
        size = int(np.count_nonzero(proposal.mask))
        bits = _bits(proposal, size, count)
        if bits < limit and size < wrong.size and count >= _COVERED * size:
            limit, found = bits, (proposal.region, size)
    return found


def _bits(proposal: Proposal, size: int, count: int) -> float:
    return proposal.bits + _choice_bits(size, count)


def _choice_bits(size: int, count: int) -> float:
    """Return the bits that say which ``count`` of ``size`` elements: their number, then which of the combinations."""
    combinations = (lgamma(size + 1) - lgamma(count + 1) - lgamma(size - count + 1)) / log(2)
    return log2(size + 1) + combinations
