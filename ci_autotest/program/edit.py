"""Edits of a program: each returns another program in which later steps use something else."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ci_autotest.program.ir import CALL_METHOD, OUTPUT, Program, Ref, Step, ref_to, renumbered_step, step_refs

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ci_autotest.program.ir import Argument


def readers(program: Program, index: int) -> list[int]:
    """Return the steps after a value that use it, without the output."""
    return [
        i
        for i, step in enumerate(program.steps)
        if step.op != OUTPUT and any(ref.index == index for ref in step_refs(step))
    ]


def with_methods(program: Program, method: str, given: Mapping[int, Argument]) -> Program:
    """Return the program in which later steps use what a method of some values returns.

    Args:
        program: The program.
        method: The method.
        given: Its argument, by index of a value of the body.
    """
    after = {i: Step(CALL_METHOD, method, (ref_to(i), arg), (), program.steps[i].name) for i, arg in given.items()}
    steps: list[Step] = []
    at: dict[int, int] = {}
    for i, step in enumerate(program.steps):
        steps.append(renumbered_step(step, at))
        at[i] = len(steps) - 1
        if i in after:
            steps.append(renumbered_step(after[i], at))
            at[i] = len(steps) - 1
    count = len(program.setup)
    return Program(tuple(steps[:count]), tuple(steps[count:]), program.cotangents)


def with_copies(program: Program, call: int, values: tuple[int, ...]) -> Program:
    """Return the program in which a call gets copies of some values, so that later steps use what it was given."""
    steps: list[Step] = []
    at: dict[int, int] = {}
    for i, step in enumerate(program.steps):
        own = dict(at)
        for value in values if i == call else ():
            own[value] = len(steps)
            steps.append(Step(CALL_METHOD, "clone", (Ref(at[value]),), (), program.steps[value].name))
        steps.append(renumbered_step(step, own))
        at[i] = len(steps) - 1
    count = len(program.setup)
    return Program(tuple(steps[:count]), tuple(steps[count:]), program.cotangents)
