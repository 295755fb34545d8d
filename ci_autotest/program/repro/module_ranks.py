"""The candidate of a repro whose ranks share the batch of a module: the script starts a process for each rank itself.

The body becomes one module, which the wrapper takes. What the ranks write down is joined as the note of the program
says, and must be the same on all of them where each has all of it.
"""

from __future__ import annotations

from textwrap import indent
from typing import TYPE_CHECKING, Final

from ci_autotest.errors import ProgramError
from ci_autotest.program.codegen import body_statements, names, output_text
from ci_autotest.program.distribution import dimension_of, local_shapes
from ci_autotest.program.edit import used_by
from ci_autotest.program.ir import PARAMETER, PLACEHOLDER, Program, Ref, TensorSpec, output_refs
from ci_autotest.program.note import FsdpNote, TrainingNote
from ci_autotest.program.repro.ranks import is_on_gpus
from ci_autotest.program.row_counts import with_rows
from ci_autotest.program.training_parts import BACKWARD, parts_of_body

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ci_autotest.program.note import Note, PlanNote
    from ci_autotest.program.recording import Recording

#: Stands for the number of a rank's rows until it is printed: no size that memory could hold.
_MARK: Final = 7_310_579_113_246_801


def module_imports(note: Note) -> list[str]:
    """Return what the script imports besides torch."""
    own = ["from torch.distributed.fsdp import fully_shard"] if isinstance(note.side, FsdpNote) else []
    return ["import torch.distributed as dist", *own] if isinstance(note.side, TrainingNote) else own


def share_lines(recording: Recording) -> list[str]:
    """Return comments that say how the ranks share the batch, and by which wrapper."""
    note, named = recording.note, names(recording.program)
    is_sharded = isinstance(note.side, FsdpNote)
    wrap = _wrapper(note) or ("fully_shard" if is_sharded else "DistributedDataParallel")
    lines: list[str] = []
    for i in _inputs(recording.program):
        spec = recording.program.steps[i].spec
        dimension = _dimension(spec) if spec else None
        if spec is None or spec.distribution is None or dimension is None or dimension >= len(spec.shape):
            continue
        lines = lines or [f"# on {spec.distribution.ranks} ranks, wrapped by {wrap}; the code below is the reference's"]
        rows = ", ".join(str(shape[dimension]) for shape in local_shapes(spec.shape, spec.distribution))
        lines.append(f"# {named[i]} is split along dimension {dimension}: {rows} rows")
    if lines and _has_plan(note) and (sized := _plan(note).sized):
        held = ", ".join(named[i] for i in sized if i < len(recording.program.steps))
        lines.append(f"# {sum(_plan(note).rows)}, the number of rows, is that of a rank in {held}")
    return lines


def module_body(recording: Recording) -> str:
    """Return the parts of a body that its module runs, and ``candidate``, which runs the body on a rank."""
    program, named = recording.program, names(recording.program)
    lines = dict(body_statements(_with_mark(program, recording.note)))
    parts = parts_of_body(program)
    functions, steps = [], []
    states, modules = _states(program), _modules(program)
    steps += [f"{named[i]} = body_.given[{named[i]!r}]" for i in (*modules, *_inputs(program))]
    steps += [f"{named[i]} = body_.held[{named[i]!r}]" for i in states]
    for number, part in enumerate(parts):
        own = [line for index in part.indices for line in _lines(program, index, lines, recording.note)]
        if not part.is_forward:
            steps += own
            continue
        used = used_by(program.steps[index] for index in part.indices)
        bound = [f"{named[i]} = body_.own_{named[i]}" for i in states if i in used]
        bound += [f"{named[i]} = body_.given[{named[i]!r}]" for i in modules if i in used]
        gives = f"({''.join(f'{named[i]}, ' for i in part.gives)})"
        takes = "".join(f", {named[i]}" for i in part.takes)
        functions.append("\n    ".join([f"def part_{number}(body_{takes}):", *bound, *own, f"return {gives}"]))
        steps.append(f"{f'{gives} = ' if part.gives else ''}wrapped_(part_{number}{takes})")
    steps.append(f"return {output_text(program)}")
    doc = '"""Run the body on this rank: its forward passes through the wrapper."""'
    texts = [*functions, "def candidate(body_, wrapped_):\n" + indent("\n".join([doc, *steps]), "    ")]
    if _plan(recording.note).slices:
        doc = '"""Run the reference on the rows of one rank; it waits where ranks share buffers and gradients."""'
        texts.append("def on_slice(rank_, given_):\n" + indent(f"{doc}\n{_slice_steps(recording)}", "    "))
    return "\n\n\n".join([*texts, f"def wrapped(body):\n    return {_wrapping(recording.note)}"])


def _wrapping(note: Note) -> str:
    """Return the expression of the body in its wrapper."""
    wrap, kind = _wrapper(note), "cuda" if is_on_gpus(note) else "cpu"
    if wrap:
        return f"{wrap}(body, RANKS)"
    if isinstance(note.side, FsdpNote):
        return f'fully_shard(body, mesh=dist.init_device_mesh("{kind}", (RANKS,)))'
    unused = ", find_unused_parameters=True" if _plan(note).unused else ""
    return f"torch.nn.parallel.DistributedDataParallel(body{unused})"


def batch_lines(recording: Recording) -> list[str]:
    """Return the lines that say how the ranks of a script share the batch; none for another candidate."""
    program, note, named = recording.program, recording.note, names(recording.program)
    if not isinstance(note.side, TrainingNote):
        return []
    plan, states = _plan(note), _states(program)
    rows = {
        named[i]: dimension for i in _inputs(program)
        if (spec := program.steps[i].spec) and (dimension := _dimension(spec)) is not None
    }  # fmt: skip
    of_slices = () if plan.slices else plan.of_slices
    joins = {at: (kind, dimension) for at, kind, dimension in plan.joins}
    left_out = {".".join(filter(None, (named[i], name))) for i, name in of_slices}
    return [
        f"RANKS = {len(plan.rows)}",
        f"ROWS = {rows}  # inputs of which each rank has a part, with the dimension of the batch",
        f"PARAMETERS = {[named[i] for i, is_parameter in states.items() if is_parameter]}",
        f"BUFFERS = {[named[i] for i, is_parameter in states.items() if not is_parameter]}",
        f"NAMES = {[named[ref.index] for ref in output_refs(program)]}",
        f"JOINS = {joins}  # how outputs are joined",
        f"SHARES, SIZES = {[each / sum(plan.rows) for each in plan.rows]}, {dict(plan.sizes)}",
        f"OF_A_PART = {left_out or '()'}  # what belongs to the rows of a rank by its definition, and is not compared",
        f"INDEPENDENT = {plan.independent}  # whether values are compared; if not, only whether the ranks agree",
        f"PER_SLICE = {plan.slices}  # whether rows depend on one another: a rank is held against one process",
        f"SHARES_BUFFERS = {not isinstance(note.side, FsdpNote)}  # FSDP leaves buffers alone",
    ]


def _with_mark(program: Program, note: Note) -> Program:
    """Return a program with a mark in the place of each size that is the number of a rank's own rows.

    Raises:
        ProgramError: The program has the mark's number itself.
    """
    plan, steps = _plan(note), list(program.steps)
    if any(str(_MARK) in line for _, lines in body_statements(program) for line in lines):
        message = f"the program has the number {_MARK}, which stands for the rows of a rank in a repro."
        raise ProgramError(message)
    for index in plan.sized:
        if not 0 <= index < len(steps):
            message = f"the note of the program names step {index} as one that holds the number of rows."
            raise ProgramError(message)
        steps[index] = with_rows(steps[index], sum(plan.rows), _MARK)
    return program.with_steps(steps)


def _slice_steps(recording: Recording) -> str:
    """Return the body as it runs on one slice: it waits before a forward pass, and after a backward pass."""
    program, named = recording.program, names(recording.program)
    lines = dict(body_statements(_with_mark(program, recording.note)))
    steps = [f"{named[i]} = given_[{named[i]!r}]" for i in (*_modules(program), *_inputs(program), *_states(program))]
    for part in parts_of_body(program):
        steps += ["yield share_buffers"] if part.is_forward else []
        for index in part.indices:
            steps += _lines(program, index, lines, recording.note, rank="rank_")
            steps += ["yield share_gradients"] if program.steps[index].target == BACKWARD else []
    return "\n".join([*steps, f"return {output_text(program)}"])


def _lines(
    program: Program, index: int, lines: Mapping[int, list[str]], note: Note, rank: str = "dist.get_rank()"
) -> list[str]:
    """Return the lines of a step; a backward pass begins with the part of the loss that the rank has."""
    step = program.steps[index]
    if step.target != BACKWARD:
        rows = f"{_plan(note).rows}[{rank}]"
        return [line.replace(str(_MARK), rows) for line in lines.get(index, [])]
    weights = dict(_plan(note).weights).get(index, [])
    root = names(program)[step.args[0].index] if isinstance(step.args[0], Ref) else ""
    if len(step.args) > 1 or any(key == "gradient" for key, _ in step.kwargs):
        return [line.replace(".backward(", f".mul({weights}[{rank}]).backward(") for line in lines[index]]
    start = f"torch.full_like({root}, {weights}[{rank}])"
    more = "".join(f", {key}={value!r}" for key, value in step.kwargs if isinstance(value, bool))
    return [f"{root}.backward({start}{more})"]


def _plan(note: Note) -> PlanNote:
    """Return how ranks share a batch.

    Raises:
        ProgramError: The note, which may come from outside, does not say so.
    """
    plan = note.side.plan if isinstance(note.side, TrainingNote) else None
    if plan is None:
        message = "the note of the program does not say how its ranks share the batch."
        raise ProgramError(message)
    return plan


def _has_plan(note: Note) -> bool:
    return isinstance(note.side, TrainingNote) and note.side.plan is not None


def _wrapper(note: Note) -> str:
    return note.side.wrapper if isinstance(note.side, TrainingNote) else ""


def _dimension(spec: TensorSpec) -> int | None:
    return None if spec.distribution is None else dimension_of(spec.distribution.placements[0])


def _inputs(program: Program) -> list[int]:
    """Return the inputs of a body."""
    return [i for i, spec in program.inputs.items() if not spec.state]


def _states(program: Program) -> dict[int, bool]:
    """Return what a body holds besides its modules, and whether it is a parameter."""
    return {i: spec.state == PARAMETER for i, spec in program.inputs.items() if spec.state}


def _modules(program: Program) -> list[int]:
    """Return the values of the setup that the body takes."""
    used = used_by(program.body)
    return [i for i, step in enumerate(program.setup) if i in used and step.op != PLACEHOLDER]
