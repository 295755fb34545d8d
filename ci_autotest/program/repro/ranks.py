"""The candidate of a repro that is a group of ranks: they are simulated, or each is a process that the script starts.

The script needs torch alone. Each input is cut into the parts that its ranks hold, the body runs on DTensors, and what
it gives is gathered on every rank and must be the same on all of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ci_autotest.program.codegen import body_lines, names, output_text
from ci_autotest.program.distribution import Distribution, is_mesh, is_placement, local_shapes
from ci_autotest.program.ir import CALL_FUNCTION, TensorSpec, step_refs
from ci_autotest.program.note import DTensorNote
from ci_autotest.program.repro.rank_template import HEAD, PROCESSES, SIMULATED

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ci_autotest.program.ir import Program
    from ci_autotest.program.note import Note
    from ci_autotest.program.recording import Recording
    from ci_autotest.program.repro.rank_template import RankForm


def starts_ranks(note: Note) -> bool:
    """Whether the script starts a process for each rank: on GPUs, or if the simulation does not show the finding."""
    return isinstance(note.side, DTensorNote) and (note.side.starts_ranks or is_on_gpus(note))


def is_on_gpus(note: Note) -> bool:
    """Whether each rank of the candidate has a GPU."""
    return note.device == "cuda"


def rank_imports(note: Note) -> tuple[str, ...]:
    """Return what the script imports besides torch."""
    return _form(note).imports if isinstance(note.side, DTensorNote) else ()


def _form(note: Note) -> RankForm:
    return PROCESSES["cuda" if is_on_gpus(note) else "cpu"] if starts_ranks(note) else SIMULATED


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


def rank_head(recording: Recording) -> str:
    """Return the ranks of a script, and how tensors are spread over them and gathered."""
    lie, form = distributions(recording.program), _form(recording.note)
    mesh = next((on.mesh for on in lie.values()), (2,))
    placements = ", ".join(f"{name!r}: {_placements(on)}" for name, on in lie.items())
    head = HEAD.format(mesh=mesh, placements=placements, group=form.group, parts=form.parts, given=form.given)
    return f"{head}\n\n{form.runs}"


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
