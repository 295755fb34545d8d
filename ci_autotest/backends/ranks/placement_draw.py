"""How the inputs of a case lie on the ranks: drawn from a stream of its own, so that no other draw of the case moves.

Two candidates with the same mesh get the same placements, so that a case of one can be held against the other.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from ci_autotest.program.distribution import PARTIAL, REPLICATE, Distribution, dimension_of, fits, shard
from ci_autotest.program.ir import PLACEHOLDER, Program, TensorSpec

if TYPE_CHECKING:
    from ci_autotest.backends.trace import Attempt
    from ci_autotest.program.ir import Step

#: Bit in the last counter word: the streams of ``record/draw`` leave it 0 under the same key.
_BIT: Final = 1 << 42
#: Of 16 placements, how many replicate and how many are partial; the others cut a dimension.
_REPLICATED, _PARTIAL = 4, 2
#: Profiles whose inputs are never partial.
_NO_SUMMANDS: Final = frozenset({"special", "large", "zeros_and_ties"})
#: Dimensions that a mesh may have, and every how many cases it has two where nothing is given.
_DIMENSIONS, _EVERY = 2, 4


class Meshes(NamedTuple):
    """The meshes of a candidate.

    Attributes:
        ranks: Number of ranks; 0 if the mesh is given.
        given: The mesh; empty to draw one of one or two dimensions.
    """

    ranks: int
    given: tuple[int, ...] = ()

    @property
    def plain(self) -> tuple[int, ...]:
        """The given mesh, or the one of one dimension."""
        return self.given or (self.ranks,)

    def drawn(self, word: int) -> tuple[int, ...]:
        """Return the mesh of a case: one in four has two dimensions, if the number of ranks has factors."""
        rows = next((size for size in range(math.isqrt(self.ranks), 1, -1) if self.ranks % size == 0), 1)
        if self.given or rows == 1 or word % _EVERY:
            return self.plain
        return rows, self.ranks // rows


def distributed(attempt: Attempt, meshes: Meshes, given: tuple[str, ...]) -> Program:
    """Return an attempt's program with a distribution for each input that has none.

    Args:
        attempt: The attempt; its key names the stream.
        meshes: The candidate's meshes.
        given: The placements of every input; empty to draw them.
    """
    program = attempt.program
    steps = program.steps
    places = [index for index, step in enumerate(steps) if step.op == PLACEHOLDER]
    # The words of an input stay where they are, whatever the mesh is.
    first, *words = _words(attempt.key, 1 + len(places) * _DIMENSIONS)
    # All inputs lie on one mesh, also where a shrunk program names it already.
    mesh = program.mesh or meshes.drawn(first)
    # Summands of infinities, of numbers near them or of zeros have results of their own: NaN for x / 0.
    may_be_partial = attempt.profile not in _NO_SUMMANDS
    moved = list(steps)
    for number, index in enumerate(places):
        own = words[number * _DIMENSIONS :][: len(mesh)]
        moved[index] = _with_distribution(steps[index], mesh, given, own, may_be_partial=may_be_partial)
    return program.with_steps(moved)


def _words(key: tuple[int, int], count: int) -> list[int]:
    bits = np.random.Philox(key=key, counter=(0, 0, 0, _BIT))
    words: list[int] = bits.random_raw(count).tolist()
    return words


def _with_distribution(
    step: Step, mesh: tuple[int, ...], given: tuple[str, ...], words: list[int], *, may_be_partial: bool
) -> Step:
    spec = step.spec
    if spec is None or (spec.distribution is not None and fits(spec.distribution, len(spec.shape))):
        return step
    may_be_partial = may_be_partial and spec.dtype != "bool" and not step.in_setup
    placements = (
        given
        or _wanted(spec, len(mesh), may_be_partial=may_be_partial)
        or tuple(_placement(word, len(spec.shape), may_be_partial=may_be_partial) for word in words)
    )
    return step.with_spec(distribution=Distribution(mesh, placements))


def _wanted(spec: TensorSpec, count: int, *, may_be_partial: bool) -> tuple[str, ...]:
    """Return how the test wants an input to lie on a mesh of ``count`` dimensions; nothing if it cannot lie so."""
    named = spec.placements[:count]
    cut = [dimension_of(each) for each in named]
    if any(each is not None and each >= len(spec.shape) for each in cut) or (PARTIAL in named and not may_be_partial):
        return ()
    return (*named, *[REPLICATE] * (count - len(named))) if named else ()


def _placement(word: int, dimensions: int, *, may_be_partial: bool) -> str:
    choice = word % 16
    if may_be_partial and choice < _PARTIAL:
        return PARTIAL
    if not dimensions or choice < _PARTIAL + _REPLICATED:
        return REPLICATE
    return shard((word >> 8) % dimensions)
