"""Recalls: call a body again, or what was made of it: with the same values, and with other ones of their sizes.

A compiled body shows no single steps, and a probe of many calls would be one graph; on ranks each input has its
placement. So what was compiled, or the body on its ranks, is called three times: by the case, with the same values, and
with other ones. It is wrong if it keeps values of an earlier call, or writes to the results of one. A difference with
other values counts if they are right in a body that is compiled anew. Ranks cannot begin anew: there it counts if the
value that differs is that of the earlier call.

A repeat runs the body of a case on the same inputs and modules. It costs one forward call of the candidate and none of
the reference. It comes after the other cases of the batch, so memory that a kernel cached for its inputs or weights may
have been freed since. Results of a repeat are freed at once, so that the next repeat gets their memory. As for a probe,
a difference is only a suspicion.
"""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING, Final

import torch
from msgspec.structs import replace

from ci_autotest.alignment.probe import other_values, probe_obstacle
from ci_autotest.alignment.stateful import suspicion
from ci_autotest.backends.protocol import run_forward
from ci_autotest.backends.sameness import is_same
from ci_autotest.backends.trace import Failure, overwritten
from ci_autotest.program.call_probe import last_input
from ci_autotest.program.call_sequence import is_repeatable
from ci_autotest.program.expectations import has_expectation

if TYPE_CHECKING:
    from ci_autotest.alignment.cases import Contender
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


def is_to_be_repeated(attempt: Attempt, trace: Trace) -> bool:
    """Whether repeating the body of a case must give the same: it wrote to nothing, and no call changes its modules.

    Cases with only empty tensors are left out, because a kernel cannot remember anything of them.
    """
    return (
        not attempt.trace.copies
        and any(isinstance(value, torch.Tensor) and value.numel() for value in trace.values)
        and is_repeatable(attempt.program)
        and not any(
            isinstance(value, torch.nn.Module) and next(value.buffers(), None) is not None
            for value in trace.values[: attempt.program.start]
        )
        and not overwritten(trace)
    )


def has_repeated_backward(attempt: Attempt) -> bool:
    """Whether the backward pass of a case can be repeated with its calls.

    A call before the last input is not repeated, and its graph has been freed by the first backward pass.
    """
    last = last_input(attempt.program)
    is_whole = not any(index < last for index, _ in attempt.program.calls)
    return is_whole and bool(attempt.cotangents) and not attempt.is_probe


def repeated(attempt: Attempt, trace: Trace, contender: Contender) -> Verdict | None:
    """Run the calls after the last input of a program again; return the difference, ``None`` if there is none.

    Args:
        attempt: A case whose body is to be repeated, or a probe.
        trace: Of the candidate, aligned.
        contender: The candidate.
    """
    backend, program = contender.backend, attempt.program
    trace.calls = dict(trace.calls)  # Calls of repeats are not counted, because their number depends on the batch.
    other, last = copy(trace), last_input(program)
    has_backward = has_repeated_backward(attempt)  # Results are then kept until it has run.
    other.values = trace.values[: last + 1]
    off: dict[int, object] = {}
    for index, value in backend.again(program, trace, other.values, holds=has_backward):
        if isinstance(value, Failure):
            other.failure = value
        elif not _is_same(value, trace.values[index]):
            off[index] = value
    if has_backward and other.failure is None:
        other.gradients = {}
        backend.backward(program, other, attempt.cotangents)
    raised = other.failure is not None or other.backward_failure is not None
    is_same = not raised and not off and _same_gradients(other, trace)
    other.values = [off.get(index, value) for index, value in enumerate(trace.values)]
    return None if is_same else suspicion(attempt, other, contender.rules, of_two_runs=True)


def _same_gradients(trace: Trace, before: Trace) -> bool:
    left, right = trace.gradients, before.gradients
    return left.keys() == right.keys() and all(
        found is right[key] or _is_same(found, right[key]) for key, found in left.items()
    )


def _is_same(value: object, before: object) -> bool:
    if not (isinstance(value, torch.Tensor) and isinstance(before, torch.Tensor)):
        return not isinstance(before, torch.Tensor)
    return is_same(value, before)
