"""Edits of a program, and what they ask of it: what uses a value, what it follows from, what is computed from it.

Whatever makes a program of another one is written in these words, so that references are renumbered in one place.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ci_autotest.program.ir import (
    CALL_METHOD,
    OUTPUT,
    WITH_PARTS,
    Copy,
    List,
    Mapping_,
    Program,
    Ref,
    Slice,
    Step,
    is_unpacking,
    ref_to,
    step_refs,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from ci_autotest.program.ir import Argument, TensorSpec


def mapped(
    argument: Argument,
    change: Callable[[Argument], Argument],
    whole: Callable[[Argument], Argument | None] | None = None,
) -> Argument:
    """Return the argument with what ``change`` returns for each part that holds no others, such as a reference.

    Args:
        argument: Any.
        change: Called with each part that holds no others.
        whole: Called first with each part that holds others; what it returns, if not ``None``, replaces that part.
    """
    if type(argument) not in WITH_PARTS:  # First, because most have none.
        return change(argument)
    if whole is not None and (found := whole(argument)) is not None:
        return found
    match argument:
        case tuple():
            return tuple(mapped(item, change, whole) for item in argument)
        case List(items):
            return List(tuple(mapped(item, change, whole) for item in items))
        case Mapping_(items):
            return Mapping_(tuple((key, mapped(item, change, whole)) for key, item in items))
        case Slice(start, stop, step):
            return Slice(*(mapped(item, change, whole) for item in (start, stop, step)))
        case Copy(ref):
            copied = change(ref)
            return Copy(copied) if isinstance(copied, Ref) else copied
        case _:
            return change(argument)


def mapped_step(
    step: Step,
    change: Callable[[Argument], Argument],
    whole: Callable[[Argument], Argument | None] | None = None,
) -> Step:
    """Return the step with ``mapped`` arguments."""
    return step._replace(
        args=tuple(mapped(value, change, whole) for value in step.args),
        kwargs=tuple((key, mapped(value, change, whole)) for key, value in step.kwargs),
    )


def renumbered_step(step: Step, indices: Mapping[int, int] | Sequence[int]) -> Step:
    """Return the step with each reference to ``i`` changed to ``indices[i]``."""
    return mapped_step(step, lambda part: Ref(indices[part.index]) if type(part) is Ref else part)


def maker_of(steps: Sequence[Step], index: int) -> int:
    """Return the index of the call that made a value; for an unpacking, however deep, that of the tuple's call."""
    while is_unpacking(steps[index]):
        index = step_refs(steps[index])[0].index
    return index


def follows_from(steps: Sequence[Step], *indices: int) -> set[int]:
    """Return the steps that any of some steps depends on, and these themselves."""
    found = set(indices)
    # One pass backward is enough, because a step refers to earlier ones only.
    for i in range(max(indices, default=-1), -1, -1):
        if i in found:
            found.update(ref.index for ref in step_refs(steps[i]))
    return found


def used_by(steps: Iterable[Step]) -> set[int]:
    """Return the indices of the values that any of some steps uses."""
    return {ref.index for step in steps for ref in step_refs(step)}


def readers(program: Program, index: int) -> list[int]:
    """Return the steps after a value that use it, without the output."""
    return [
        i
        for i, step in enumerate(program.steps)
        if step.op != OUTPUT and any(ref.index == index for ref in step_refs(step))
    ]


def users(program: Program, index: int) -> list[int]:
    """Return the calls that use a value."""
    return [i for i, step in program.calls if any(ref.index == index for ref in step_refs(step))]


def ending_at(program: Program, index: int, outputs: Sequence[Argument] | None = None) -> Program:
    """Return the program up to a step, without cotangents.

    Args:
        program: The program.
        index: The last step that stays, one of the body.
        outputs: What is returned; by default the value of that step.
    """
    given = (Ref(index),) if outputs is None else tuple(outputs)
    return Program(
        program.setup,
        (*program.body[: index + 1 - program.start], Step(OUTPUT, "output", given, (), "output")),
    )


def keeping(program: Program, kept: Collection[int]) -> tuple[Program, dict[int, int]]:
    """Return the program of some of its steps, which use no others, and the new index of each."""
    places = {old: new for new, old in enumerate(sorted(kept))}
    return program.with_steps(renumbered_step(program.steps[old], places) for old in places), places


def reached(steps: Sequence[Step], roots: Collection[int]) -> set[int]:
    """Return the steps that are computed from any of some steps, and these themselves."""
    found = set(roots)
    for index, step in enumerate(steps):
        if any(ref.index in found for ref in step_refs(step)):
            found.add(index)
    return found


def replaced(program: Program, steps: Mapping[int, Step]) -> Program:
    """Return the program with other steps in some places."""
    return program.with_steps(steps.get(index, step) for index, step in enumerate(program.steps))


def with_mode(program: Program, mode: str, calls: Iterable[int]) -> Program:
    """Return the program in which some calls have one more mode."""
    steps = ((index, program.steps[index]) for index in calls)
    return replaced(program, {index: step._replace(modes=(*step.modes, mode)) for index, step in steps})


def until(program: Program, index: int) -> Program:
    """Return the setup and the steps of the body before one of its steps, without an output and cotangents."""
    return Program(program.setup, program.body[: index - program.start])


def arranged(
    steps: list[Step], cotangents: tuple[TensorSpec | None, ...] = (), order: Sequence[int] | None = None
) -> Program:
    """Return the program of recorded steps: the setup first, references renumbered.

    Args:
        steps: As recorded.
        cotangents: Of the outputs.
        order: Indices of the steps in their new order, the setup first; by default, the order is otherwise kept.
    """
    if order is None:
        order = sorted(range(len(steps)), key=lambda i: not steps[i].in_setup)
    indices = {old: new for new, old in enumerate(order)}
    return Program.of((renumbered_step(steps[old], indices) for old in order), cotangents)


def rewritten(program: Program, change: Callable[[int, Step], Iterable[Step]]) -> Program:
    """Return the program with other steps in place of each one.

    Args:
        program: The program.
        change: Called with the index of a step and the step; returns the steps that stand for it. Their references are
            indices of the program before; one to the index itself means the step before in what it returns. Later
            steps use the last of them.
    """
    steps: list[Step] = []
    places: dict[int, int] = {}
    for index, step in enumerate(program.steps):
        for stands_for_it in change(index, step):
            steps.append(renumbered_step(stands_for_it, places))
            places[index] = len(steps) - 1
    return program.with_steps(steps)


def with_methods(program: Program, method: str, given: Mapping[int, Argument]) -> Program:
    """Return the program in which later steps use what a method of some values returns.

    Args:
        program: The program.
        method: The method.
        given: Its argument, by index of a value of the body.
    """

    def followed(i: int, step: Step) -> tuple[Step, ...]:
        return (step, Step(CALL_METHOD, method, (ref_to(i), given[i]), (), step.name)) if i in given else (step,)

    return rewritten(program, followed)


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
    return program.with_steps(steps)
