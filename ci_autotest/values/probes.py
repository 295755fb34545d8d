"""The probes of a test on a candidate as counts: planned, run, and left out with the reason.

A probe calls the body of a case several times, so that a kernel that remembers earlier calls is wrong in later ones.
Each window of cases has one.
"""

from __future__ import annotations

from collections import Counter
from typing import Final, Literal, TypeAlias, get_args

import msgspec

from ci_autotest.values.verdict import Struct

#: Why a case or a window of cases has no probe, the most telling first: a window has the first one of its cases.
NoProbe: TypeAlias = Literal[
    "outside_scope", "not_repeatable", "too_large", "empty", "same_values", "accepted", "not_aligned", "ranks",
    "no_steps",
]  # fmt: skip
NO_PROBE: Final[tuple[NoProbe, ...]] = get_args(NoProbe)


class ProbeCounts(Struct, frozen=True, kw_only=True):
    """The probes of one (test, candidate).

    Attributes:
        planned: Windows of its cases, of which each has one probe. Case 0 is in none.
        run: Probes that were compared.
        left_out: Windows without a probe, by reason: `outside_scope` (the candidate's row excludes a call of the
            probe), `same_values` (no input can have other values), `not_repeatable` (the body registers hooks, runs a
            backward pass, draws random numbers or has a refused step), `too_large` (over 32,768 elements), `empty`
            (no tensor has an element), `accepted` (a row of `known` accepts a difference that a probe could not tell
            from one of its own), `not_aligned` (no case was aligned), `no_steps` (a body is a graph that is
            made anew for each run), `ranks` (in reports of earlier versions: a group of ranks).
    """

    planned: int = 0
    run: int = 0
    left_out: dict[NoProbe, int] = msgspec.field(default_factory=dict)

    def __add__(self, other: ProbeCounts) -> ProbeCounts:
        left_out = Counter(self.left_out)
        left_out.update(other.left_out)
        return ProbeCounts(
            planned=self.planned + other.planned, run=self.run + other.run, left_out=dict(sorted(left_out.items()))
        )
