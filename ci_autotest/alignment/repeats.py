"""Repeats: run the body of a case again on the same inputs and modules, after the other cases of its batch.

A repeat costs one forward call of the candidate and none of the reference. It comes after the other cases of the batch,
so memory that a kernel cached for its inputs or weights may have been freed since. Results of a repeat are freed at
once, so that the next repeat gets their memory. As for a probe, a difference is only a suspicion.
"""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING

import torch

from ci_autotest.alignment.stateful import suspicion
from ci_autotest.backends.sameness import is_same
from ci_autotest.backends.trace import Failure, overwritten
from ci_autotest.program.call_probe import last_input
from ci_autotest.program.call_sequence import is_repeatable

if TYPE_CHECKING:
    from ci_autotest.alignment.cases import Contender
    from ci_autotest.backends.trace import Attempt, Trace
    from ci_autotest.values.verdict import Verdict


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
