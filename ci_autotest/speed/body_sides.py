"""Both sides of a body that is timed or counted: the candidate's call and what it is measured against."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ci_autotest.backends.body_call import versions
from ci_autotest.backends.body_function import begun, prepared
from ci_autotest.speed.timing import Side

if TYPE_CHECKING:
    from ci_autotest.alignment.single_step import Live
    from ci_autotest.backends.body_call import BodyCall
    from ci_autotest.backends.eager.backend import TorchBackend
    from ci_autotest.backends.protocol import Backend
    from ci_autotest.program.ir import Program


class BodySides(NamedTuple):
    """Both sides of a body, each run once.

    Attributes:
        candidate: The candidate's side.
        reference: What it is measured against.
        is_original: Whether that is what the candidate was made from.
        writes: Whether a side writes to its inputs.
    """

    candidate: Side
    reference: Side
    is_original: bool
    writes: bool


def sides_of(live: Live, backend: Backend, reference: TorchBackend) -> BodySides | None:
    """Return both sides of a program, on the same inputs; ``None`` if calls of the backend cannot be timed."""
    program = live.program
    trace = begun(program, snapshots=False)
    prepared(reference.steps, program, live.sources, trace)
    found = backend.body_calls(program, trace.values)
    if found is None:
        return None
    before = versions(trace.values)
    against = found.against if found.against is not None else _reference_call(program, trace.values, reference)
    sides = Side(found.own, live.cotangents), Side(against, live.cotangents)
    return BodySides(*sides, found.is_original, before != versions(trace.values))


def _reference_call(program: Program, values: list[Any], reference: TorchBackend) -> BodyCall:
    return reference.body_calls(program, values).own
