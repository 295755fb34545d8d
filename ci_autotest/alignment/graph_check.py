"""The graph check: compare a candidate's compiled graph with its own eager result.

``@autotest(check_graph=True)`` and ``mode: graph`` of a candidate turn it on. A difference has the kind ``graph``, and
the candidate is to blame, because both results are its own. A body that is not a single graph counts as a difference,
too, because the user asked for one graph.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from ci_autotest.alignment.localize.search import StepSearch, examined
from ci_autotest.backends.operators.identity import answered_step, spelled, step_operator
from ci_autotest.errors import Unsupported, UnsupportedReason
from ci_autotest.values.verdict import Verdict, unsupported_verdict

if TYPE_CHECKING:
    from ci_autotest.alignment.localize.search import Culprit, TrialSides
    from ci_autotest.alignment.single_step import Live

_WHY: Final = "the same program differs from the candidate's own eager result"


def graph_verdict(live: Live, sides: TrialSides) -> tuple[Verdict, Live] | None:
    """Return the verdict on a candidate's graph mode with the program that shows it; ``None`` if it is aligned.

    Args:
        live: The program with its data.
        sides: The candidate, whose eager result is aligned with the reference's.
    """
    graph = sides.candidate.as_graph()
    if graph is None:
        lacking = sides.candidate.lacks_graph
        if not lacking:
            return None
        return unsupported_verdict(Unsupported(UnsupportedReason.NO_GRAPH, f"check_graph: {lacking}")), live
    return _compared(live, sides._replace(candidate=graph, reference=sides.candidate))


def own_verdict(live: Live, sides: TrialSides) -> tuple[Verdict, Live] | None:
    """Return how a candidate that is a graph mode departs from its own eager mode; ``None`` if it does not.

    Args:
        live: The program with its data.
        sides: The candidate, of any kind.
    """
    eager = sides.candidate.as_eager()
    return None if eager is None else _compared(live, sides._replace(reference=eager))


def _compared(live: Live, own: TrialSides) -> tuple[Verdict, Live] | None:
    differences, compiled, eager, _ = examined(live, own)
    # A graph that tested nothing must not count as one that agrees.
    if compiled.untested is not None:
        why = Unsupported(compiled.untested.reason, f"check_graph: {compiled.untested.detail}")
        return unsupported_verdict(why), live
    if not differences:
        return None
    return _verdict(StepSearch(live, (compiled, eager), own).culprit(differences[0]))


def _verdict(culprit: Culprit) -> tuple[Verdict, Live]:
    steps = culprit.live.program.steps
    found = culprit.misalignment
    at = culprit.step
    # Otherwise the finding names a step that the candidate computes itself.
    if not culprit.is_alone:
        at = answered_step(steps, at, culprit.candidate.answered, has_backward=found.kind == "gradient")
    step = steps[at]
    detail = found.detail or f"{found.kind} of the graph differs"
    misalignment = msgspec.structs.replace(found, kind="graph", detail=detail)
    verdict = Verdict(
        outcome="misaligned", operator=step_operator(step, steps), target=spelled(step), kind="graph",
        blame="candidate", step=culprit.step, accumulated=culprit.accumulated, misalignment=misalignment, oracle=_WHY,
    )  # fmt: skip
    return verdict, culprit.live
