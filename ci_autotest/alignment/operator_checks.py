"""Programs in which the operators of a candidate's libraries are checked: a mode at each call, one check a program.

A check is an error of its call, so that localizing, shrinking and repros treat a failure as they do any other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ci_autotest.program.ir import CANDIDATE_MODES, OPERATOR_CHECKS, REGISTERS
from ci_autotest.program.refusal import refused_as
from ci_autotest.values.verdict import Call, is_of_backward

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ci_autotest.alignment.single_step import Live
    from ci_autotest.values.verdict import Verdict


def checked_programs(live: Live) -> Iterator[Live]:
    """Yield a program with each check: first of the schema, last of a graph with the gradient."""
    program, start = live.program, len(live.program.setup)
    if any(not CANDIDATE_MODES.isdisjoint(step.modes) for step in program.steps):
        return
    for mode in OPERATOR_CHECKS:
        body = list(program.body)
        for index, step in program.calls:
            # A random operator differs from itself, in a graph as elsewhere.
            if step.seed is None and refused_as(step) is None and REGISTERS[0] not in step.modes:
                body[index - start] = step._replace(modes=(*step.modes, mode))
        yield live._replace(program=program.with_body(body))


def is_failed_check(verdict: Verdict) -> bool:
    """Whether a verdict is that an operator does not do what it declares."""
    found = verdict.misalignment
    return found is not None and found.kind == "metadata" and isinstance(found.at, Call)


def has_right_values(verdict: Verdict) -> bool:
    """Whether nothing is wrong with the values of a case, which a failed check must not hide."""
    found = verdict.misalignment
    if verdict.outcome != "misaligned" or found is None:
        return verdict.outcome == "aligned"
    # A gradient that is missing may be what a check explains; one of another value is not.
    return found.kind == "metadata" or (is_of_backward(found.at) and found.difference is None)
