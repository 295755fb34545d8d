"""How the batch of a case is split over ranks: each rank has a slice of every input that has the batch.

An input without a batch is the same on every rank, and so is what a module holds. Slices are those of ``torch.chunk``,
so that the last rank may have fewer rows, but at least one.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ci_autotest.backends.input_copies import CPU, contiguous_spec, place
from ci_autotest.errors import Unsupported, UnsupportedReason
from ci_autotest.program.backward_passes import PASSES
from ci_autotest.program.distribution import REPLICATE, Distribution, dimension_of, fits, local_shapes, shard
from ci_autotest.program.edit import replaced
from ci_autotest.program.expectations import expected_inputs
from ci_autotest.program.hook_names import idle_hooks
from ci_autotest.program.ir import HOOK, REGISTERS, Program, TensorSpec
from ci_autotest.program.refusal import refused_as
from ci_autotest.program.row_counts import steps_with_rows, with_rows

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import torch

    from ci_autotest.backends.trace import Attempt

#: Calls that compute gradients without the hooks by which ranks average them.
_BESIDE_HOOKS: Final = frozenset(PASSES.keys() - {"backward"})


class Slices(NamedTuple):
    """The parts of a case, one for each rank.

    Attributes:
        programs: The program of each rank; it differs in the shapes of its inputs.
        sources: Data of each rank by key.
        rows: Rows of the batch that each rank has.
        sized: Steps that hold the number of rows as a size; the program of a rank has its own number there.
    """

    programs: list[Program]
    sources: list[dict[str, Any]]
    rows: list[int]
    sized: tuple[int, ...] = ()

    @property
    def shares(self) -> list[float]:
        """The part of the batch that each rank has."""
        return [each / sum(self.rows) for each in self.rows]


def distributed(attempt: Attempt, ranks: int) -> Program:
    """Return an attempt's program with a distribution for each input that has none.

    Args:
        attempt: The attempt; its test says which inputs have the batch.
        ranks: Number of ranks.
    """
    program = attempt.program
    mesh = program.mesh or (ranks,)
    moved = {}
    expected = expected_inputs(program.steps)
    for index, spec in program.inputs.items():
        if spec.state or spec.distribution is not None:
            continue
        step = program.steps[index]
        dimension = (0 if spec.shape else None) if attempt.batch is None else attempt.batch.get(step.target)
        if index in expected:  # It is held against the joined value.
            dimension = None
        lies = Distribution(mesh, (REPLICATE if dimension is None else shard(dimension),))
        moved[index] = step.with_spec(distribution=lies)
    return replaced(program, moved)


def ranks_of(program: Program, default: int) -> int:
    """Return the number of ranks that a program names; a shrunk one may have fewer than the candidate."""
    mesh = program.mesh
    return math.prod(mesh) if mesh else default


def split_dimension(spec: TensorSpec) -> int | None:
    """Return the dimension along which an input is split; ``None`` if every rank has all of it."""
    return None if spec.distribution is None else dimension_of(spec.distribution.placements[0])


def why_not_split(program: Program, ranks: int) -> Unsupported | None:
    """Return why the batch of a program cannot be split; ``None`` if it can be tried."""
    hooks, idle = {*HOOK, *REGISTERS}, idle_hooks(program.steps)
    steps = program.steps
    if any(not hooks.isdisjoint(step.modes) for index, step in enumerate(steps) if index not in idle):
        return Unsupported(UnsupportedReason.NOT_SIMULATED, "a hook cannot run on ranks")
    beside = next((step.target for step in steps if step.target in _BESIDE_HOOKS), None)
    if beside is not None:
        return Unsupported(UnsupportedReason.BATCH, f"ranks do not average what {beside} returns")
    if any(step.modes and refused_as(step) is not None for step in steps):
        return Unsupported(UnsupportedReason.BATCH, "the test expects an error, which ranks do not train on")
    split = [
        (step.name, spec, dimension)
        for step in steps
        if (spec := step.spec) and (dimension := split_dimension(spec)) is not None
    ]
    if not split:
        return Unsupported(UnsupportedReason.BATCH, "no input has a batch that ranks could share")
    for name, spec, dimension in split:
        if spec.distribution is not None and not fits(spec.distribution, len(spec.shape)):
            detail = f"the batch of {name} is dimension {dimension}, and it has {len(spec.shape)} dimensions"
            return Unsupported(UnsupportedReason.BATCH, detail)
    sizes = {spec.shape[dimension]: (name, dimension) for name, spec, dimension in split}
    if len(sizes) > 1:
        shown = " and ".join(f"{size} in dimension {at} of {name}" for size, (name, at) in sizes.items())
        detail = f"its inputs have batches of different sizes: {shown}. Name those that have the batch: batch={{0: 0}}"
        return Unsupported(UnsupportedReason.BATCH, detail)
    rows = next(iter(sizes))
    if 0 in _rows(rows, ranks):
        return Unsupported(UnsupportedReason.BATCH, f"{ranks} ranks cannot share a batch of {rows}: one has no rows")
    return None


def _rows(size: int, ranks: int) -> list[int]:
    """Return the rows of each rank."""
    return [shape[0] for shape in local_shapes((size,), Distribution((ranks,), (shard(0),)))]


def sliced(program: Program, sources: Mapping[str, Any], ranks: int) -> Slices:
    """Return the parts of a program; its batch can be split."""
    cut = [spec for step in program.body if (spec := step.spec) and split_dimension(spec) is not None]
    rows = _rows(cut[0].shape[split_dimension(cut[0]) or 0], ranks)
    programs, given = [], []
    for rank in range(ranks):
        own, steps = dict(sources), {}
        for index, spec in program.inputs.items():
            step, dimension = program.steps[index], split_dimension(spec)
            if dimension is None:
                continue
            whole = place(sources[step.target], replace(spec, requires_grad=False), CPU)
            part = own[step.target] = rows_of(whole, dimension, rows, rank)
            steps[index] = step._replace(
                args=(replace(contiguous_spec(part), requires_grad=spec.requires_grad, distribution=spec.distribution),)
            )
        programs.append(replaced(program, steps))
        given.append(own)
    return Slices(programs, given, rows)


def with_own_rows(program: Program, slices: Slices) -> Slices | None:
    """Return the parts of a program with the number of a rank's rows where the body holds that of all rows as a size.

    ``None`` if it holds none, or if the number is also the size of something else, so that its meaning is unclear.
    """
    whole = sum(slices.rows)
    others = [
        size
        for step in program.body if (spec := step.spec) is not None
        for dimension, size in enumerate(spec.shape) if dimension != split_dimension(spec)
    ]  # fmt: skip
    sized = steps_with_rows(program, whole)
    return None if not sized or whole in others else with_sizes(slices, sized)


def with_sizes(slices: Slices, sized: Sequence[int]) -> Slices:
    """Return the parts of a program with the number of a rank's rows where named steps hold that of all rows."""
    whole, programs = sum(slices.rows), []
    for own, rows in zip(slices.programs, slices.rows, strict=True):
        steps = [with_rows(step, whole, rows) if index in sized else step for index, step in enumerate(own.steps)]
        programs.append(own.with_steps(steps))
    return slices._replace(programs=programs, sized=tuple(sized))


def rows_of(whole: torch.Tensor, dimension: int, rows: Sequence[int], rank: int) -> torch.Tensor:
    """Return a copy of the rows of one rank."""
    return whole.detach().narrow(dimension, sum(rows[:rank]), rows[rank]).contiguous().clone()
