"""The parts of a body that trains: forward passes of its modules, backward passes, and what follows from gradients."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from ci_autotest.program.edit import used_by
from ci_autotest.program.ir import NO_GRAD, step_refs

if TYPE_CHECKING:
    from ci_autotest.program.ir import Program

#: The method that runs a backward pass.
BACKWARD: Final = "backward"
_OF_ATTRIBUTES: Final = frozenset({"builtins.getattr", "builtins.setattr"})


class TrainingPart(NamedTuple):
    """A part of a body.

    Attributes:
        indices: Its steps.
        is_forward: Whether they are a forward pass of the module.
        takes: Steps before it whose tensors it takes.
        gives: Its steps whose values others take.
    """

    indices: tuple[int, ...]
    is_forward: bool
    takes: tuple[int, ...] = ()
    gives: tuple[int, ...] = ()


def parts_of_body(program: Program) -> list[TrainingPart]:
    """Return the parts of a body in order: forward passes of the module, and what runs outside."""
    outside = _outside(program)
    runs: list[tuple[bool, list[int]]] = []
    for index, step in program.numbered:
        if not step.is_call:
            continue
        is_forward = index not in outside
        if not runs or runs[-1][0] is not is_forward:
            runs.append((is_forward, []))
        runs[-1][1].append(index)
    return [_part(program, tuple(indices), is_forward=is_forward) for is_forward, indices in runs]


def _outside(program: Program) -> set[int]:
    """Return the steps that run outside of the module: backward passes, and what follows from gradients."""
    found: set[int] = set()
    has_passed = False
    for index, step in program.numbered:
        is_pass = step.target == BACKWARD
        has_passed |= is_pass
        has_grad = step.target in _OF_ATTRIBUTES and step.args[1:2] == ("grad",)
        follows = any(ref.index in found for ref in step_refs(step))
        if is_pass or has_grad or follows or (has_passed and set(NO_GRAD) <= set(step.modes)):
            found.add(index)
    return found


def _part(program: Program, indices: tuple[int, ...], *, is_forward: bool) -> TrainingPart:
    steps, own = program.steps, set(indices)
    states = {index for index, step in enumerate(steps) if (spec := step.spec) and spec.state}
    taken = dict.fromkeys(ref.index for index in indices for ref in step_refs(steps[index]))
    takes = tuple(index for index in taken if index not in own and index not in states and index >= program.start)
    used = used_by(step for index, step in enumerate(steps) if index not in own)
    used |= used_by(program.body[-1:])
    return TrainingPart(indices, is_forward, takes, tuple(index for index in indices if index in used))
