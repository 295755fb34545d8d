"""Recalls: call what a compiler made of a body again: with the same values, and with other ones of their sizes.

A compiled body shows no single steps, and a probe of many calls would be one graph. So its callable is called three
times: by the case, with the same values, and with other ones. It is wrong if it keeps values of an earlier call, or
writes to the results of one. A difference counts if the same values are right in a body that is compiled anew.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from ci_autotest.alignment.probe import other_values, probe_obstacle
from ci_autotest.alignment.repeats import is_to_be_repeated
from ci_autotest.alignment.stateful import suspicion
from ci_autotest.program.expectations import has_expectation

if TYPE_CHECKING:
    from ci_autotest.alignment.tolerance_rules import Rules
    from ci_autotest.backends.protocol import Backend
    from ci_autotest.backends.trace import Attempt, Trace
    from ci_autotest.values.probes import NoProbe
    from ci_autotest.values.verdict import Verdict

_LATER: Final = "right in the first call of what was compiled, and wrong in a later call with other values"
_AGAIN: Final = "right in the first call of what was compiled, and wrong when it is called with the same values again"
_WRITTEN: Final = "right when it was returned, and overwritten by a later call of what was compiled"


def recalled(
    attempt: Attempt, trace: Trace, backend: Backend, rules: Rules, reference: Backend
) -> Verdict | NoProbe | None:
    """Call the compiled body of a case again; return the difference, ``None`` if there is none, or why it is not done.

    Args:
        attempt: An aligned case.
        trace: The candidate's.
        backend: The candidate.
        rules: How values are compared.
        reference: Runs the body with the other values.
    """
    if not trace.is_kept:
        return "no_steps"
    obstacle = probe_obstacle(attempt)
    if obstacle is not None or not is_to_be_repeated(attempt, attempt.trace) or has_expectation(attempt.program.body):
        return obstacle or "not_repeatable"
    attempt = attempt._replace(cotangents={})
    other = _with_other_values(attempt, reference)
    if other is None:
        return "same_values"
    again = backend.run(attempt.program, attempt.sources)
    if (found := suspicion(attempt, again, rules)) is not None:
        return _told(found, _AGAIN)
    later = backend.run(other.program, other.sources)
    if later.untested is not None:
        return "outside_scope"
    if (found := suspicion(other, later, rules)) is not None:
        backend.forget_bodies()
        alone = suspicion(other, backend.run(other.program, other.sources), rules)
        return _told(found, _LATER) if alone is None else None
    for index, value in again.returned.items():
        again.values[index] = value
    written = suspicion(attempt, again, rules)
    return None if written is None else _told(written, _WRITTEN)


def _with_other_values(attempt: Attempt, reference: Backend) -> Attempt | None:
    """Return a case with other values that the reference takes; ``None`` if it takes none."""
    for sources in other_values(attempt):
        trace = reference.run(attempt.program, sources)
        if trace.failure is None:
            return attempt._replace(sources=sources, trace=trace)
    return None


def _told(found: Verdict, detail: str) -> Verdict:
    at = found.misalignment
    return found if at is None else replace(found, misalignment=replace(at, detail=detail))
