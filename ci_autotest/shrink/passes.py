"""What is tried to make a program smaller: simpler inputs, simpler draws and fewer steps."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from ci_autotest.host.binding import elements
from ci_autotest.program.backward_passes import GRAD
from ci_autotest.program.edit import ending_at, mapped_step, renumbered_step, replaced
from ci_autotest.program.ir import (
    OUTPUT,
    PLACEHOLDER,
    DType,
    Program,
    Step,
    TensorSpec,
    cotangent_key,
    is_unpacking,
    step_refs,
)
from ci_autotest.program.literals import array_of
from ci_autotest.program.note import SubstituteNote
from ci_autotest.values.dtypes import FLOAT8, FLOATING, ITEM_SIZE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ci_autotest.program.ir import Argument
    from ci_autotest.program.recording import Recording
    from ci_autotest.values.case import Draw, DrawnValue


# Simpler inputs of the shrunk program: contiguous, float32, fewer arguments, smaller sizes.
#
# Draws cannot change sizes that a test hard-codes or an earlier step computes. Equal sizes are treated as the same
# size, in inputs, states, cotangents and, as a variant, in the arguments. If that guess is wrong, the reference rejects
# the program and the trial is lost, which is harmless.


def simpler_inputs(best: Callable[[], Recording]) -> Iterator[Recording]:
    """Yield recordings with simpler inputs than the best one so far.

    Args:
        best: Returns the best recording; it is called again after each trial.
    """
    if any(not spec.is_contiguous for spec in best().program.specs.values()):
        yield _resized(best(), {})
    dtypes = {spec.dtype for spec in best().program.specs.values()}
    # An operator that takes or gives float8 does so by its own cast, which another input does not change.
    if dtypes & (FLOATING - {"float32"}) and not dtypes & FLOAT8:
        yield _in_float32(best())
    yield from _fewer_arguments(best)
    yield from _smaller(best)


def _smaller(best: Callable[[], Recording]) -> Iterator[Recording]:
    """Move each size toward 1: directly at first, then by bisection between a size that passes and one that fails."""
    for size in sorted({n for spec in best().program.specs.values() for n in spec.shape if n > 1}, reverse=True):
        low, high = 0, size
        while high - low > 1:
            # Most sizes do not matter, and the first trial then ends the search.
            middle = 1 if low == 0 and high == size else max((low + high) // 2, low + 1)
            before = best()
            for in_arguments in (False, True) if _is_mentioned(before.program, high) else (False,):
                # A kernel may be wrong in its last elements only, and cutting them off would lose the finding.
                for at_end in (False, True):
                    if best() is before:
                        yield _resized(before, {high: middle}, at_end=at_end, in_arguments=in_arguments)
            low, high = (low, middle) if best() is not before else (middle, high)


def _is_mentioned(program: Program, size: int) -> bool:
    """Whether a size is among the arguments of a call."""
    return any(_with_sizes(step, {size: 0}) != step for step in program.steps if step.op != PLACEHOLDER)


def _resized(
    recording: Recording,
    sizes: dict[int, int],
    *,
    at_end: bool = False,
    in_arguments: bool = False,
) -> Recording:
    """Return the recording with contiguous tensors and other sizes; the first elements are kept, or the last ones."""
    tensors: dict[str, bytes] = {}
    moved: dict[str, TensorSpec] = {}
    for key, spec in recording.program.specs.items():
        shape = tuple(sizes.get(n, n) for n in spec.shape)
        cut = tuple(
            slice(-n, None) if at_end and n != old else slice(0, n) for n, old in zip(shape, spec.shape, strict=True)
        )
        moved[key] = spec.contiguous(shape=shape)
        # Without their dtype, because elements are only copied.
        storage = np.frombuffer(recording.tensors[key], f"V{ITEM_SIZE[spec.dtype]}")
        tensors[key] = elements(storage, spec)[cut].tobytes()
    return recording.with_program(_moved(recording.program, moved, sizes if in_arguments else {}), tensors)


def _moved(program: Program, moved: dict[str, TensorSpec], sizes: dict[int, int]) -> Program:
    """Return the program with other specs of its data, and other sizes in its arguments."""
    steps = (
        step._replace(args=(moved[step.target],)) if step.op == PLACEHOLDER else _with_sizes(step, sizes)
        for step in program.steps
    )
    cotangents = tuple(
        moved[cotangent_key(i)] if spec is not None else None for i, spec in enumerate(program.cotangents)
    )
    return Program.of(steps, cotangents)


def _with_sizes(step: Step, sizes: dict[int, int]) -> Step:
    if step.op == OUTPUT or is_unpacking(step) or not sizes:
        return step
    # The type, because in Python `True` is the integer 1.
    return mapped_step(step, lambda part: sizes.get(part, part) if type(part) is int else part)


def _in_float32(recording: Recording) -> Recording:
    tensors: dict[str, bytes] = {}
    moved: dict[str, TensorSpec] = {}
    for key, spec in recording.program.specs.items():
        moved[key] = replace(spec, dtype="float32") if spec.dtype in FLOATING else spec
        # A float64 beyond float32 becomes infinite; the trial tells whether the finding still shows.
        if spec.dtype in FLOATING:
            with np.errstate(all="ignore"):
                tensors[key] = array_of(recording.tensors[key], spec.dtype, (-1,)).astype("<f4").tobytes()
    program = _moved(recording.program, moved, {})
    return recording.with_program(program.with_steps(mapped_step(step, _narrow) for step in program.steps), tensors)


def _narrow(part: Argument) -> Argument:
    # Otherwise a step would convert back to the dtype that the inputs have no longer.
    return DType("float32") if isinstance(part, DType) and part.name in FLOATING else part


def _fewer_arguments(best: Callable[[], Recording]) -> Iterator[Recording]:
    """Drop each keyword argument of each call, then the last positional constants.

    Calls that a user's function replaces keep their arguments, because the function may require what torch does not.
    """
    side = best().note.side
    answered = {
        *(side.renames if isinstance(side, SubstituteNote) else ()),
        GRAD,
    }  # without `allow_unused=True`, an unused input would be an error of another kind
    for index in [i for i, step in best().program.calls if step.target not in answered]:
        for key in [key for key, _ in best().program.steps[index].kwargs]:
            step = best().program.steps[index]
            yield _with_step(best(), index, step._replace(kwargs=tuple(item for item in step.kwargs if item[0] != key)))
        while len(args := best().program.steps[index].args) > 1 and isinstance(
            args[-1], bool | int | float | str | None
        ):
            before = best()
            yield _with_step(before, index, before.program.steps[index]._replace(args=args[:-1]))
            if best() is before:
                break


def _with_step(recording: Recording, index: int, step: Step) -> Recording:
    return recording.with_program(replaced(recording.program, {index: step}))


# Simpler draws: sizes move toward 1, integers toward the simplest value, and optional arguments are dropped.
#
# The body runs again from the edited log, so that two tensors that share a size continue to share it.


#: The order of draws. Those that simplify most come first: fewer dimensions, dropped arguments, then sizes and numbers.
_ORDER: Final = {"ndim": 0, "choice": 1, "bool": 2, "dim": 3, "int": 4, "float": 5}


@dataclass(slots=True)
class DrawEdits:
    """Edits that are proposed together. The caller sets ``kept`` if the finding still shows with them."""

    edits: dict[str, DrawnValue]
    kept: bool = False


def simpler_draws(log: Callable[[], tuple[Draw, ...]]) -> Iterator[DrawEdits]:
    """Yield changes to the current log: all draws at once, then each alone, integers by bisection.

    Args:
        log: Returns the log of the best trial so far; it is called again after each change.
    """
    everything = {draw.site: draw.simplest for draw in log() if draw.value != draw.simplest}
    # One trial instead of many if no draw matters.
    if len(everything) > 1:
        yield DrawEdits(everything)
    for site in [draw.site for draw in sorted(log(), key=lambda draw: _ORDER.get(draw.kind, 9))]:
        draw = _at(log(), site)
        if draw is not None and draw.value != draw.simplest:
            yield from _simpler(draw, log)


def _simpler(draw: Draw, log: Callable[[], tuple[Draw, ...]]) -> Iterator[DrawEdits]:
    simplest = DrawEdits({draw.site: draw.simplest})
    yield simplest
    if simplest.kept or draw.kind not in {"ndim", "dim", "int"}:
        return
    # Bisection for the least value that still fails: `low` is known to pass, `high` to fail.
    low, high = int(draw.simplest or 0), int(draw.value or 0)
    while abs(high - low) > 1:
        middle = (low + high) // 2
        change = DrawEdits({draw.site: middle})
        yield change
        now = _at(log(), draw.site)
        # With another draw edited the body may not reach this one, for example the size of a dimension that is gone.
        if now is None:
            return
        low, high = (low, middle) if change.kept else (middle, high)


def _at(log: tuple[Draw, ...], site: str) -> Draw | None:
    return next((draw for draw in log if draw.site == site), None)


# Fewer steps: cut off later steps, replace earlier ones by inputs, and delete others.
#
# A culprit that is misaligned alone arrives as a single call, because the worker has already cut it out with the
# reference's inputs. These are for programs in which no single step is misaligned.


def fewer_steps(best: Callable[[], Recording], *, gradient: bool) -> Iterator[Recording | int]:
    """Yield programs with fewer steps than the best one so far, or the index of a step to be replaced by an input.

    Args:
        best: Returns the best recording; it is called again after each trial.
        gradient: Whether a gradient differs; then the output must stay, because the cotangents belong to it.
    """
    if not gradient:
        yield from _cut(best)
    yield from _inlined(best)
    yield from _deleted(best)


def _cut(best: Callable[[], Recording]) -> Iterator[Recording]:
    """Yield programs that end at an earlier call, the earliest first."""
    # The first success is the shortest program, so that the later ones are not tried.
    for index, _ in best().program.calls[:-1]:
        program = best().program
        # The best program may have become shorter since the list was made.
        if index < program.calls[-1][0]:
            yield best().with_program(ending_at(program, index))


def _inlined(best: Callable[[], Recording]) -> Iterator[int]:
    """Yield calls to be replaced by inputs, the latest first, because everything only they need goes with them."""
    tried: set[str] = set()
    moved = True
    while moved:
        moved = False
        calls = best().program.calls
        for index, step in reversed(calls[:-1]):
            # By name, because a trial that is kept renumbers the steps.
            if step.name + step.target not in tried:
                tried.add(step.name + step.target)
                yield index
                # The list is out of date, and a new one begins at the end again.
                if best().program.calls != calls:
                    moved = True
                    break


def _deleted(best: Callable[[], Recording]) -> Iterator[Recording]:
    """Yield programs without one call; its uses take the call's first tensor argument instead."""
    position = 0
    while position < len(best().program.calls) - 1:
        program = best().program
        index, step = program.calls[position]
        shorter = _without(program, index, step)
        if shorter is None:
            position += 1
            continue
        yield best().with_program(shorter)
        # After a success the next call has moved to this position.
        if best().program.calls == program.calls:
            position += 1


def _without(program: Program, index: int, step: Step) -> Program | None:
    """Return the program without a call; ``None`` if the call has no tensor argument to replace its value."""
    found = step_refs(step)
    # A value of the setup is a module or its state, which cannot stand for a result.
    stand_in = next((ref.index for ref in found if ref.index >= program.start), None)
    if stand_in is None:
        return None
    indices = {i: i - (i > index) for i in range(len(program.steps))}
    indices[index] = indices[stand_in]
    return program.with_steps(renumbered_step(other, indices) for i, other in enumerate(program.steps) if i != index)
