"""A probe: the body of a case called several times, so that a kernel that remembers calls is wrong in later ones.

Each call differs from an earlier one in something that a kernel may use as a key or forget to check: gradients on or
off, other values in the same tensors, new tensors over the same memory, other weights, reused memory and identities.
A series is a second kind of probe, of calls that stay alive.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ci_autotest.program.backward_passes import GRAD
from ci_autotest.program.call_sequence import (
    EVALUATION,
    ON_COPIES,
    CallSequence,
    SequencePart,
    change_parameters,
    plain,
    weights_of,
)
from ci_autotest.program.edit import maker_of
from ci_autotest.program.ir import (
    CALL_FUNCTION,
    CALL_METHOD,
    GET_ATTR,
    NO_GRAD,
    PLACEHOLDER,
    UNPACK,
    Program,
    Ref,
    Step,
    step_refs,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


#: Calls of the body; one more if its modules have weights.
CALLS: Final = 13
_WRITES: Final = frozenset({"copy_", "mul_"})


def probe(
    part: SequencePart, changed: Mapping[int, tuple[Any, Any]], *, with_parameters: bool = True
) -> tuple[Program, dict[str, Any]]:
    """Return the program of a body that is called several times.

    1. With the first values: evaluated, then trained on, with a second backward pass through the same graph, which
       reads what the first one may have overwritten.
    2. With other values in the same tensors, trained on and evaluated. Whatever a kernel kept of the first evaluation
       is stale now; the values that the body computes are also returned in the same tensors.
    3. With a third set of values in new tensors over the same memory. Its backward pass follows the next call, so what
       the kernel saved for it must survive that call.
    4. With the first values at new addresses, and then once more with changed parameters.
    5. Evaluated twice, with other values in new tensors over the same memory: an allocator seldom gives a small
       tensor's memory to the next one, so copies alone would not show a kernel that goes by address and version.
    6. Four calls on copies that live for one call each, so that identities and memory are reused with other values.
    7. With the first values in their first place. These calls come after the last write, and once more as a repeat.

    The calls have the values A A B B C A B C C B C B A. As far as possible they differ from those n calls earlier, for
    every n, because kernels may count calls. The results of all calls are compared at the end.

    Args:
        part: The body; ``is_repeatable``.
        changed: Contiguous data of two other sets of values, by index of each input that can have other values.
        with_parameters: Whether the weights of modules are changed too.
    """
    found = CallSequence()
    setup = found.setup(part)
    given = found.inputs(part)
    first = {**setup, **given}
    plain_specs = {index: plain(spec) for index, spec in part.program.inputs.items()}

    def written(receivers: Mapping[int, int], which: int) -> None:
        for index, values in changed.items():
            found.write(receivers[index], found.placeholder(plain_specs[index], values[which], "new"))

    evaluated = found.forward(part, first, EVALUATION)
    found.gradients(part, found.forward(part, first), times=2)
    written(given, 0)
    found.call(part, first)
    found.forward(part, first, EVALUATION, over=evaluated)
    third_call = found.forward(part, {**first, **_over_old_memory(found, part, given, changed)})
    # No backward pass goes through the calls on these, so they need no gradient.
    again = found.inputs(part, requires_grad=False)
    found.call(part, {**setup, **again}, with_gradients=False)
    found.gradients(part, third_call)
    # In place: a kernel that recognizes a weight by its address still has the old one.
    if with_parameters and change_parameters(found, part, setup):
        found.forward(part, {**setup, **again}, EVALUATION)
    for index in changed:
        found.write(given[index], Ref(again[index]))
    # The first inputs have their first values back, and the second ones get others: values and places are exchanged.
    written(again, 0)
    others = {
        **again,
        **{index: found.placeholder(plain_specs[index], values[1], "new").index for index, values in changed.items()},
    }
    found.forward(part, {**setup, **again}, EVALUATION)
    found.forward(part, {**setup, **again, **_over_old_memory(found, part, again, changed)}, EVALUATION)
    written(again, 0)
    for inputs in (others, again, others, again):
        found.forward(part, {**setup, **inputs}, ON_COPIES)
    found.forward(part, first)
    return found.program(), found.data


def _over_old_memory(
    found: CallSequence, part: SequencePart, given: Mapping[int, int], changed: Mapping[int, tuple[Any, Any]]
) -> dict[int, int]:
    """Append new tensors over the memory of inputs, with other values; return their indices.

    Their version counters start again, as they do when freed memory is reused.
    """
    specs, made = part.program.inputs, {}
    for index, (_, third) in changed.items():
        data = found.add(Step(CALL_FUNCTION, "builtins.getattr", (Ref(given[index]), "data"), (), "data"))
        found.write(data.index, found.placeholder(plain(specs[index]), third, "new"))
        # What `.data` returns never requires a gradient, whatever the tensor does.
        if specs[index].requires_grad:
            found.add(Step(CALL_METHOD, "requires_grad_", (data,), (), "data"))
        made[index] = data.index
    return made


def is_write(step: Step) -> bool:
    """Whether a step writes to an earlier value, as a probe does between its calls."""
    return step.op == CALL_METHOD and step.target in _WRITES and NO_GRAD[0] in step.modes and step.receiver is not None


def last_input(program: Program) -> int:
    """Return the index of the last step that is an input, writes to one, or is of a backward pass."""
    steps = program.steps
    return max((index for index, step in enumerate(steps) if step.in_setup or _is_input(step, steps)), default=-1)


def _is_input(step: Step, steps: Sequence[Step]) -> bool:
    if step.target == UNPACK:  # One of several gradients; but one of several results is repeated with its call.
        step = steps[maker_of(steps, step_refs(step)[0].index)]
    return step.op == PLACEHOLDER or step.target == GRAD or is_write(step)


def is_over_old_memory(step: Step) -> bool:
    """Whether a step returns another tensor over the memory of an earlier value, as a probe does."""
    return step.args[1:] == ("data",) or step.target == "requires_grad_"


def rewritten(program: Program) -> frozenset[int]:
    """Return the indices of the values that a probe overwrites, and of the steps with which it does."""
    found: set[int] = set()
    parameters = set()
    steps = program.steps
    for index, step in enumerate(steps):
        if is_write(step):
            written = step_refs(step)[0].index
            found |= {written, index}
            if steps[written].op == GET_ATTR:
                parameters.add((steps[written].target, steps[written].args))
        elif is_over_old_memory(step):
            found.add(index)
    # A parameter is read several times, and each reading returns the one tensor that is written to.
    found |= {i for i, step in enumerate(steps) if step.op == GET_ATTR and (step.target, step.args) in parameters}
    return frozenset(found)


# A series: calls of a body on many inputs of one size that stay alive, then all backward passes, then two calls again.
#
# It shows kernels with room for only a few weights, results or tensors saved for backward passes. The calls take turns
# with three sets of values, so that each differs from those 1, 2, 4, 8 and 16 calls earlier, and the reference computes
# only three calls.


#: Calls of a series: more than the sixteen slots that a kernel's cache may have.
SERIES_CALLS: Final = 18
#: Sets of values: the case's own and two others.
SETS: Final = 3
#: Elements of the states of modules up to which there are as many modules as calls; of larger ones there are two.
_FEW_ELEMENTS: Final = 1 << 12
#: What the weights of other modules are scaled by, in turn.
_FACTORS: Final = (0.5, 0.25, 2.0)
#: Calls that are repeated at the end.
_AGAIN: Final = 2


class Series(NamedTuple):
    """A series of calls.

    Attributes:
        program: The calls.
        data: Of its placeholders, by key.
        alike: A key for what each step computes; steps with the same key compute the same, also in a longer series.
        gradients: Index of the step that computes all gradients together, if there is one.
    """

    program: Program
    data: dict[str, Any]
    alike: list[tuple[str | int, ...]]
    gradients: int | None


def series(
    part: SequencePart,
    changed: Mapping[int, tuple[Any, Any]],
    calls: int = SERIES_CALLS,
    *,
    with_parameters: bool = True,
    is_joint: bool = True,
) -> Series:
    """Return a series of calls of a body.

    Args:
        part: The body; ``is_repeatable``.
        changed: Contiguous data of two other sets of values, by index of the input.
        calls: Number of calls.
        with_parameters: Whether one more call with changed weights follows.
        is_joint: Whether one backward pass goes through all calls, which is cheaper than one for each.
    """
    found, alike = CallSequence(), _Alike()
    setup = found.setup(part)
    # Before the inputs, because the setup of a program is all in front.
    others = [found.setup(part) for _ in range(_others(part))] if with_parameters else []
    alike.add(found, "setup")
    called = []
    for number in range(calls):
        given = {**setup, **_inputs(found, part, changed, number % SETS)}
        alike.add(found, "input", number % SETS)
        called.append((given, found.forward(part, given)))
        alike.add(found, "call", number % SETS)
    joint = None
    if part.leaves and part.cotangents:
        weights = [found.placeholder(spec, data, "cotangent") for spec, data in part.cotangents.values()]
        alike.add(found, "weight")
        for numbers in [range(calls)] if is_joint else [[number] for number in range(calls)]:
            joint = found.gradients_of(part, [called[number][1] for number in numbers], weights)
            # The pass itself comes first; what is unpacked from it repeats with the sets of values.
            alike.add(found, "gradients", count=1)
            for number in numbers:
                alike.add(found, "gradient", number % SETS, count=len(part.leaves))
    if others:
        for number, other in enumerate(others):
            change_parameters(found, part, other, _FACTORS[number % len(_FACTORS)])
            found.forward(part, {**called[0][0], **other})
        alike.add(found, "other modules")
        # The first modules again, with a backward pass: a cache of weights may hold another module's in their place.
        at = found.forward(part, called[0][0])
        alike.add(found, "call", 0)
        found.gradients(part, at)
        alike.add(found, "gradient of first modules")
    # The oldest calls: a cache with fewer slots than calls has replaced what it kept of them.
    for number, (given, _) in enumerate(called[:_AGAIN]):
        found.forward(part, given)
        alike.add(found, "call", number % SETS)
    if with_parameters and change_parameters(found, part, setup):
        found.forward(part, called[0][0])
        alike.add(found, "changed")
    return Series(found.program(), found.data, [*alike.found, ("output",)], joint)


def _others(part: SequencePart) -> int:
    """Return how many other modules of the same sizes a series makes."""
    if not weights_of(part):
        return 0
    elements = sum(math.prod(spec.shape) for step in part.program.setup if (spec := step.spec) is not None)
    return SERIES_CALLS - 1 if elements <= _FEW_ELEMENTS else 1


class _Alike:
    def __init__(self) -> None:
        self.found: list[tuple[str | int, ...]] = []

    def add(self, sequence: CallSequence, *what: str | int, count: int | None = None) -> None:
        """Give keys to the steps appended since the last time, or to the first ``count`` of them."""
        new = len(sequence) - len(self.found) if count is None else count
        self.found += [(*what, position) for position in range(new)]


def _inputs(
    found: CallSequence, part: SequencePart, changed: Mapping[int, tuple[Any, Any]], values: int
) -> dict[int, int]:
    """Append inputs with one of the sets of values, each at an address of its own; return their indices."""
    given = {}
    for index, spec in part.program.inputs.items():
        step = part.program.steps[index]
        own, data = spec, part.data[step.target]
        if values and index in changed:
            # Data of the other sets are contiguous, whatever layout the case's own have.
            own, data = replace(plain(spec), requires_grad=spec.requires_grad), changed[index][values - 1]
        given[index] = found.placeholder(own, data, step.name).index
    return given
