"""The candidate of a repro that is a group of ranks: they are simulated, or each is a process that the script starts.

The script needs torch alone. Each input is cut into the parts that its ranks hold, the body runs on DTensors, and what
it gives is gathered on every rank and must be the same on all of them.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Final

from ci_autotest.program.codegen import body_lines, names, output_text
from ci_autotest.program.distribution import Distribution, is_mesh, is_placement, local_shapes
from ci_autotest.program.ir import CALL_FUNCTION, TensorSpec, step_refs
from ci_autotest.program.note import DTensorNote

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ci_autotest.program.ir import Program
    from ci_autotest.program.note import Note
    from ci_autotest.program.recording import Recording


#: Seconds that a group may take to start at least.
_START_S: Final = 60


def starts_ranks(note: Note) -> bool:
    """Whether the script starts a process for each rank: on GPUs, or if the simulation does not show the finding."""
    return isinstance(note.side, DTensorNote) and (note.side.starts_ranks or is_on_gpus(note))


def is_on_gpus(note: Note) -> bool:
    """Whether each rank of the candidate has a GPU."""
    return note.device == "cuda"


def distributions(program: Program) -> dict[str, Distribution]:
    """Return how each input lies on the ranks, by its printed name; a parameter's begins with that of its module."""
    lie = {name: spec.distribution for name, spec in _specs(program).items() if spec.distribution is not None}
    # From outside: nothing else of it is printed as code. Comments show the name, so it must not end its line.
    return {
        name: on
        for name, on in lie.items()
        if name.isprintable() and is_mesh(on.mesh) and all(map(is_placement, on.placements))
    }


def rank_lines(recording: Recording) -> list[str]:
    """Return comments that say how each input lies on the ranks, with the shape of each part."""
    lie = distributions(recording.program)
    shapes = {name: spec.shape for name, spec in _specs(recording.program).items()}
    lines = []
    for name, on in lie.items():
        parts = local_shapes(shapes[name], on)
        held = f"{list(parts[0])} each" if len(set(parts)) == 1 else ", ".join(map(str, map(list, parts)))
        lines.append(f"# {name} lies as {on}: {held}")
    mesh = next((on.mesh for on in lie.values()), None)
    return (
        [f"# on a mesh of {' x '.join(map(str, mesh))} ranks; the code below is the reference's", *lines]
        if mesh
        else []
    )


def _specs(program: Program) -> dict[str, TensorSpec]:
    """Return the spec of each input and parameter, by the names of ``distributions``."""
    named = names(program)
    found: dict[str, TensorSpec | None] = {named[index]: spec for index, spec in program.inputs.items()}
    for step in program.setup:
        if (loaded := step.loaded_state) is not None:
            module, state = loaded
            found |= {f"{named[module]}.{name}": program.steps[index].spec for name, index in state.items()}
    return {name: spec for name, spec in found.items() if spec is not None}


def mesh_lines(recording: Recording, *, starts_processes: bool) -> list[str]:
    """Return the lines that say which ranks a script has and how inputs lie on them; none for another candidate."""
    if not isinstance(recording.note.side, DTensorNote):
        return []
    lie = distributions(recording.program)
    mesh = next((on.mesh for on in lie.values()), (2,))
    placements = ", ".join(f"{name!r}: {_placements(on)}" for name, on in lie.items())
    return [
        f"MESH = {mesh}  # the ranks",
        f"PLACEMENTS = {{{placements}}}  # how inputs lie on them",
        f"RANKS = {prod(mesh)}",
        *([] if starts_processes else ["DEVICE_MESH, SIMULATED = simulated(MESH)"]),
        "EVERYWHERE = (Replicate(),) * len(MESH)",
    ]


def group_lines(timeout_s: int, *, on_gpus: bool) -> list[str]:
    """Return the lines of a script that say how long its ranks may take, each a process, and what they run on.

    Args:
        timeout_s: Seconds that a case may take.
        on_gpus: Whether each rank has a GPU.
    """
    longest = max(_START_S, timeout_s)
    return [
        f"LONGEST_S, SILENCE_S = {longest}, 20  # without a move; the second if all wait for others",
        f"ON_GPUS = {on_gpus}",
    ]


def rank_candidate(program: Program, takes: Sequence[str]) -> str:
    """Return the candidate: the body, in which tensors that are made from no other one are the same on every rank."""
    alone = {step.target for _, step in program.calls if step.op == CALL_FUNCTION and not list(step_refs(step))}
    alone = {target for target in alone if target.startswith("torch.")}
    lines = body_lines(program, rename=lambda target: f"replicated({target})" if target in alone else target)
    text = "\n".join(f"    {line}" for each in [*lines, f"return {output_text(program)}"] for line in each.split("\n"))
    return f"def candidate({', '.join(takes)}):\n{text}"


def _placements(on: Distribution) -> str:
    texts = [each if "(" in each else f"{each}()" for each in on.placements]
    return f"({', '.join(texts)},)"
