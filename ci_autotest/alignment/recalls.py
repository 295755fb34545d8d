"""Recalls: call what was made of a body again: with the same values, and with other ones of their sizes.

A compiled body shows no single steps, and a probe of many calls would be one graph; on ranks each input has its
placement. So what was compiled, or the body on its ranks, is called three times: by the case, with the same values, and
with other ones. It is wrong if it keeps values of an earlier call, or writes to the results of one. A difference with
other values counts if they are right in a body that is compiled anew. Ranks cannot begin anew: there it counts if the
value that differs is that of the earlier call.
"""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING, Final

import torch
from msgspec.structs import replace

from ci_autotest.alignment.probe import other_values, probe_obstacle
from ci_autotest.alignment.repeats import is_to_be_repeated
from ci_autotest.alignment.stateful import suspicion
from ci_autotest.backends.protocol import run_forward
from ci_autotest.backends.sameness import is_same
from ci_autotest.program.expectations import has_expectation

if TYPE_CHECKING:
    from ci_autotest.alignment.tolerance_rules import Rules
    from ci_autotest.backends.protocol import Backend
    from ci_autotest.backends.trace import Attempt, Trace
    from ci_autotest.values.probes import NoProbe
    from ci_autotest.values.verdict import Verdict

_LATER: Final = "right in the first call of the body, and wrong in a later call with other values"
_AGAIN: Final = "right in the first call of the body, and wrong when it is called with the same values again"
_WRITTEN: Final = "right when it was returned, and overwritten by a later call of the body"


def recalled(
    attempt: Attempt, trace: Trace, backend: Backend, rules: Rules, reference: Backend
) -> Verdict | NoProbe | None:
    """Call the body of a case again; return the difference, ``None`` if there is none, or why it is not done.

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
    forward = copy(attempt.trace)
    forward.gradients = {}
    attempt = attempt._replace(cotangents={}, trace=forward)
    other = _with_other_values(attempt, reference)
    if other is None:
        return "same_values"
    again = _run(backend, attempt)
    if (found := _difference(attempt, again, rules)) is not None:
        return _told(found, _AGAIN)
    later = _run(backend, other)
    if later.untested is not None:
        return "outside_scope"
    if (found := _difference(other, later, rules)) is not None:
        if backend.forget_bodies():
            is_remembered = _difference(other, _run(backend, other), rules) is None
        else:
            is_remembered = _is_as_before(found, again, later)
        return _told(found, _LATER) if is_remembered else None
    for index, value in again.returned.items():
        again.values[index] = value
    written = _difference(attempt, again, rules)
    return None if written is None else _told(written, _WRITTEN)


def _run(backend: Backend, attempt: Attempt) -> Trace:
    trace = run_forward(backend, attempt)
    trace.load()
    return trace


def _difference(attempt: Attempt, trace: Trace, rules: Rules) -> Verdict | None:
    """Return how a call differs from what it is held against: ranks may have a reference of their slices."""
    return suspicion(attempt._replace(trace=trace.counterpart(attempt.trace)), trace, rules)


def _is_as_before(found: Verdict, again: Trace, later: Trace) -> bool:
    """Whether the value that differs is that of the call before, bit by bit."""
    if found.misalignment is None or again.failure is not None or later.failure is not None:
        return False
    left, right = (trace.values[found.misalignment.step] for trace in (again, later))
    return isinstance(left, torch.Tensor) and isinstance(right, torch.Tensor) and is_same(left, right)


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
