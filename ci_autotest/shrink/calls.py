"""Fewer calls: keep only those that a kernel must remember in order to be wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ci_autotest.program.call_probe import is_over_old_memory
from ci_autotest.program.edit import ending_at, follows_from, keeping, reached, renumbered_step, replaced, used_by
from ci_autotest.program.ir import NO_GRAD, PLACEHOLDER, Copy, Program, Ref, Step, output_refs, step_refs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ci_autotest.program.ir import Argument
    from ci_autotest.program.recording import Recording


def fewer_calls(best: Callable[[], Recording], culprit: Callable[[], int]) -> Iterator[Recording]:
    """Yield sequences with fewer calls than the best one so far; large parts are removed first.

    Args:
        best: Returns the best recording; it is called again after each trial.
        culprit: Returns the index of the value that differs in it.
    """
    # What runs after the value that differs cannot have caused it.
    if culprit() >= best().program.start:
        yield _only(best(), culprit())
    size = max(len(_removable(best().program, culprit())) // 2, 1)
    while True:
        position, moved = 0, False
        # Counted anew each time, because a trial that is kept renumbers the steps.
        while position < len(found := _removable(best().program, culprit())):
            before = best()
            yield _without(before, set(found[position : position + size]))
            # After a success the calls that follow have moved to this position.
            if best() is before:
                position += size
            moved |= best() is not before
        # Single calls are tried until a whole round removes none, because one may become unnecessary when another is
        # gone.
        if size == 1 and not moved:
            return
        size = max(size // 2, 1)


def same_calls(best: Callable[[], Recording], culprit: Callable[[], int]) -> Iterator[Recording]:
    """Yield the sequence with all calls of the culprit's target identical to the culprit, so that they print as a loop.

    The first proposal has no other calls, because a kernel that counts its calls needs only these.
    """
    program = best().program
    step = program.steps[culprit()]
    others = [index for index, other in program.calls if other.target == step.target and index != culprit()]
    inputs = {ref.index for ref in step_refs(step)}
    # An input that another step computes cannot be moved in front of all calls.
    if others and all(program.steps[index].op == PLACEHOLDER for index in inputs):
        alike = _alike(best(), step, others)
        yield _without(alike, {index for index, other in alike.program.calls if other.target != step.target})
        yield alike


def plain_calls(best: Callable[[], Recording], culprit: Callable[[], int]) -> Iterator[Recording]:
    """Yield the sequence with the culprit's target called on the inputs themselves and with gradients.

    The inputs take the place of copies and of other tensors over the same memory: in all calls, then in each.
    """
    program, before = best().program, best()
    target = program.steps[culprit()].target
    plain = {index: _plain(step, program.steps) for index, step in program.calls if step.target == target}
    odd = {index: step for index, step in plain.items() if step != program.steps[index]}
    if odd:
        # All at once first: one trial instead of many if no copy matters.
        yield before.with_program(replaced(program, odd))
    if best() is before:
        for index, step in odd.items():
            yield best().with_program(replaced(best().program, {index: step}))


def given_back(best: Callable[[], Recording], culprit: Callable[[], int]) -> Iterator[Recording]:
    """Yield the sequence with the value that differs as an output, because a repro compares outputs."""
    program, ref = best().program, Ref(culprit())
    if ref not in output_refs(program) and program.steps[ref.index].op != PLACEHOLDER:
        yield best().with_program(ending_at(program, len(program.steps) - 2, (*output_refs(program), ref)))


def _only(recording: Recording, culprit: int) -> Recording:
    """Return the sequence that ends with the value that differs, as its only output."""
    return recording.with_program(ending_at(recording.program, culprit))


def _removable(program: Program, culprit: int) -> list[int]:
    """Return the calls that the value that differs does not depend on."""
    needed = follows_from(program.steps, culprit)
    return [index for index, _ in program.calls if index not in needed]


def _without(recording: Recording, removed: set[int]) -> Recording:
    """Return the sequence without some calls and everything computed from them."""
    program = recording.program
    gone = reached(program.steps[:-1], removed)
    outputs = tuple(ref for ref in output_refs(program) if ref.index not in gone)
    output = program.body[-1]._replace(args=outputs)
    steps = [*program.steps[:-1], output]
    start = program.start
    gone |= _unused_setup(steps, start, gone)
    used = used_by(step for index, step in enumerate(steps) if index not in gone)
    # An input goes last, because it becomes unused only when its calls are gone.
    gone |= {i for i, step in enumerate(steps) if step.op == PLACEHOLDER and i >= start and i not in used}
    return recording.with_program(keeping(Program.of(steps), set(range(len(steps))) - gone)[0])


def _unused_setup(steps: list[Step], start: int, gone: set[int]) -> set[int]:
    """Return the steps of the setup that nothing which remains of the body is connected with.

    Whatever refers to a module may change it: a container's ``eval()`` is kept with the part that is called.
    """
    needed = used_by(steps[index] for index in range(start, len(steps)) if index not in gone)
    grew = True
    while grew:
        before = len(needed)
        for index in range(start):
            refs = {ref.index for ref in step_refs(steps[index])}
            if index in needed or refs & needed:
                needed |= {index, *refs}
        grew = len(needed) > before
    return set(range(start)) - needed


def _alike(recording: Recording, step: Step, others: list[int]) -> Recording:
    """Return the sequence with other calls replaced by ``step``, whose inputs are moved before all of them."""
    program = recording.program
    start = program.start
    body = range(start, len(program.steps))
    # The sort is stable: the inputs move to the front, and the calls keep their order.
    order = [*range(start), *sorted(body, key=lambda index: program.steps[index].op != PLACEHOLDER)]
    places = {old: new for new, old in enumerate(order)}
    steps = list(program.steps)
    for index in others:
        steps[index] = steps[index]._replace(args=step.args, kwargs=step.kwargs, modes=step.modes)
    moved = Program.of(renumbered_step(steps[index], places) for index in order)
    alike = recording.with_program(moved)
    # Nothing is removed by name; this drops the inputs that only the replaced calls used.
    return _without(alike, set())


def _plain(step: Step, steps: Sequence[Step]) -> Step:
    return step._replace(
        args=tuple(_original(value, steps) for value in step.args),
        kwargs=tuple((key, _original(value, steps)) for key, value in step.kwargs),
        # Under autocast a call computes something else, so that other modes stay.
        modes=() if step.modes == NO_GRAD else step.modes,
    )


def _original(value: Argument, steps: Sequence[Step]) -> Argument:
    found = value.ref if isinstance(value, Copy) else value
    if isinstance(found, Ref) and is_over_old_memory(step := steps[found.index]):
        return _original(step.args[0], steps)
    return found
