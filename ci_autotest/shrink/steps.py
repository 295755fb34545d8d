"""Fewer steps: cut off later steps, replace earlier ones by inputs, and delete others.

A culprit that is misaligned alone arrives as a single call, because the worker has already cut it out with the
reference's inputs. This module is for programs in which no single step is misaligned.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ci_autotest.program.edit import ending_at
from ci_autotest.program.ir import Program, Recording, Step, renumbered_step, step_refs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


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
            yield _with(best(), ending_at(program, index))


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
        yield _with(best(), shorter)
        # After a success the next call has moved to this position.
        if best().program.calls == program.calls:
            position += 1


def _without(program: Program, index: int, step: Step) -> Program | None:
    """Return the program without a call; ``None`` if the call has no tensor argument to replace its value."""
    found = step_refs(step)
    # A value of the setup is a module or its state, which cannot stand for a result.
    stand_in = next((ref.index for ref in found if ref.index >= len(program.setup)), None)
    if stand_in is None:
        return None
    indices = {i: i - (i > index) for i in range(len(program.steps))}
    indices[index] = indices[stand_in]
    return program.with_steps(renumbered_step(other, indices) for i, other in enumerate(program.steps) if i != index)


def _with(recording: Recording, program: Program) -> Recording:
    expected = recording.expected
    keys = {step.target for step in program.steps} | {f"cotangent_{i}" for i in range(len(program.cotangents))}
    # The reference's results belong to the longer program; they are computed again.
    tensors = {key: data for key, data in recording.tensors.items() if key in keys and key not in expected}
    return Recording(program, tensors, recording.note)
