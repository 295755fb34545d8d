"""Expectations in a program: the steps that hold a value against what the test expects."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ci_autotest.program.ir import EXPECT, Program, Ref, output_refs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ci_autotest.program.ir import Step


def has_expectation(steps: Sequence[Step]) -> bool:
    """Whether a step holds a value against what the test expects."""
    return any(step.target == EXPECT for step in steps)


def expected_input(steps: Sequence[Step], index: int) -> int | None:
    """Return the index of the input that step ``index`` expects; ``None`` for any other step."""
    step = steps[index]
    held = step.args[1] if step.target == EXPECT else None
    return held.index if isinstance(held, Ref) else None


def expected_inputs(steps: Sequence[Step]) -> set[int]:
    """Return the indices of the inputs that the test expects as values."""
    held = (expected_input(steps, index) for index in range(len(steps)))
    return {index for index in held if index is not None}


def expected_outputs(program: Program) -> tuple[int, ...]:
    """Return the positions of the outputs that the test expects to have a value."""
    return tuple(i for i, ref in enumerate(output_refs(program)) if program.steps[ref.index].target == EXPECT)


def without_expectations(program: Program) -> Program:
    """Return a program that returns nothing that is expected; pruning then drops those steps and their data.

    They are its last outputs, so that the positions of the others stay.
    """
    if not has_expectation(program.body):
        return program
    outputs = tuple(ref for ref in output_refs(program) if program.steps[ref.index].target != EXPECT)
    return program.with_body((*program.body[:-1], program.body[-1]._replace(args=outputs)))
