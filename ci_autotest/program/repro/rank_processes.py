"""The parts of a repro whose candidate is a group of OneFlow's ranks: the script starts a process for each of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ci_autotest.program.codegen import body_lines, names, setup_lines
from ci_autotest.program.distribution import PARTIAL, dimension_of
from ci_autotest.program.ir import CALL_FUNCTION, TensorSpec, step_refs

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ci_autotest.program.ir import Program, Step
    from ci_autotest.program.recording import Recording

_SBP: Final = "oneflow.sbp"


def rank_setup_lines(program: Program) -> list[str]:
    """Return the statements of the setup; modules lie on all ranks before their state is loaded."""
    return setup_lines(program, "oneflow", rename=_alone(program.setup))


def rank_body_lines(program: Program) -> list[str]:
    """Return the statements of the body."""
    return body_lines(program, rename=_alone(program.body), namespace="oneflow")


def _alone(steps: Sequence[Step]) -> Callable[[str], str]:
    """Return how functions are printed: those that take no tensor give one that is the same on every rank."""
    calls = [step for step in steps if step.op == CALL_FUNCTION and step.target.startswith("oneflow.")]
    alone = {step.target for step in calls if not list(step_refs(step))}
    return lambda target: f"on_ranks({target})" if target in alone else target


def lies_text(spec: TensorSpec) -> str:
    """Return the argument that says how an input lies; empty for one that is the same on every rank."""
    text = _sbp(spec)
    return "" if text == "broadcast" else f", lies={_SBP}.{text}"


def _sbp(spec: TensorSpec) -> str:
    """Return how an input lies in OneFlow's words."""
    placement = spec.distribution.placements[0] if spec.distribution is not None else ""
    cut = dimension_of(placement)
    if cut is not None:
        return f"split({cut})"
    return "partial_sum" if placement == PARTIAL else "broadcast"


def global_lines(recording: Recording, ranks: int) -> list[str]:
    """Return comments that say how each input lies on the ranks, with the shape of each part."""
    program = recording.program
    named = names(program)
    lines = [f"# on {ranks} ranks; the code below is the reference's"]
    for index, spec in program.inputs.items():
        if named[index].isprintable():
            parts = _parts(spec, ranks)
            held = f"{parts[0]} each" if parts.count(parts[0]) == ranks else ", ".join(map(str, parts))
            lines.append(f"# {named[index]} lies as {_sbp(spec)}: {held}")
    return lines


def _parts(spec: TensorSpec, ranks: int) -> list[list[int]]:
    """Return the shape of each rank's part: OneFlow gives the first ranks one row more where they do not divide."""
    cut = dimension_of(spec.distribution.placements[0]) if spec.distribution is not None else None
    if cut is None or cut >= len(spec.shape):
        return [list(spec.shape)] * ranks
    size, more = divmod(spec.shape[cut], ranks)
    return [[*spec.shape[:cut], size + (rank < more), *spec.shape[cut + 1 :]] for rank in range(ranks)]
