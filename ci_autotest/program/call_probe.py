"""A probe: the body of a case called several times, so that a kernel that goes by earlier calls is wrong in later ones.

Each call differs from one before it in something that a kernel may have gone by or left out: gradients on or off, other
values in the same tensors, new tensors over the same memory, other weights, memory and identities that are given out
again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ci_autotest.program.call_sequence import (
    EVALUATION,
    ON_COPIES,
    CallSequence,
    Part,
    change_parameters,
    placeholders,
    plain,
)
from ci_autotest.program.ir import CALL_FUNCTION, CALL_METHOD, NO_GRAD, Program, Ref, Step

if TYPE_CHECKING:
    from collections.abc import Mapping

#: How often the body is called; where its modules have weights, once more.
CALLS: Final = 11
_WRITES: Final = frozenset({"copy_", "mul_"})


def probe(
    part: Part, changed: Mapping[int, tuple[Any, Any]], *, with_parameters: bool = True
) -> tuple[Program, dict[str, Any]]:
    """Return a body that is called several times.

    First as it is: evaluated, then trained on, with a second backward pass through the same graph: what the first wrote
    to is read there. Then with other values in the same tensors, trained on and evaluated: what was kept of the
    evaluation before is stale; there the values that the body computes come back as the same tensors too. Then with
    others in new tensors over the same memory, whose backward pass comes after the next call: what was saved for it
    must still be there. Then the first values at new addresses; then parameters are changed.

    Four calls follow on copies that live for one call each, so that identities and memory come back with other values,
    and the first values once more where they were. Calls have the values A A B B C A C B C B A: other ones than those n
    before it for as many n as can be, because kernels may count. What each call gave is looked at in the end.

    Args:
        part: The body; ``is_repeatable``.
        changed: By index of an input the data of two other values, contiguous, for those that can have some.
        with_parameters: Whether the weights of modules are changed too.
    """
    found = CallSequence()
    setup = found.setup(part)
    given = found.inputs(part)
    first = {**setup, **given}
    plain_specs = {index: plain(spec) for index, spec in placeholders(part.program).items()}

    def written(receivers: Mapping[int, int], which: int) -> None:
        for index, values in changed.items():
            found.write(receivers[index], found.placeholder(plain_specs[index], values[which], "new"))

    evaluated = found.forward(part, first, EVALUATION)
    found.gradients(part, found.forward(part, first), times=2)
    written(given, 0)
    found.call(part, first)
    found.forward(part, first, EVALUATION, over=evaluated)
    third_call = found.forward(part, {**first, **_over_old_memory(found, part, given, changed)})
    again = found.inputs(part, requires_grad=False)
    found.call(part, {**setup, **again}, with_gradients=False)
    found.gradients(part, third_call)
    if with_parameters and change_parameters(found, part, setup):
        found.forward(part, {**setup, **again}, EVALUATION)
    for index in changed:
        found.write(given[index], Ref(again[index]))
    written(again, 0)
    others = {
        **again,
        **{index: found.placeholder(plain_specs[index], values[1], "new").index for index, values in changed.items()},
    }
    for inputs in (others, again, others, again):
        found.forward(part, {**setup, **inputs}, ON_COPIES)
    found.forward(part, first)
    return found.program(), found.data


def _over_old_memory(
    found: CallSequence, part: Part, given: Mapping[int, int], changed: Mapping[int, tuple[Any, Any]]
) -> dict[int, int]:
    """Append new tensors over the memory of inputs, with other values; return where they are.

    Their version counters begin anew, as they do where freed memory is given out again.
    """
    specs, made = placeholders(part.program), {}
    for index, (_, third) in changed.items():
        data = found.add(Step(CALL_FUNCTION, "builtins.getattr", (Ref(given[index]), "data"), (), "data"))
        found.write(data.index, found.placeholder(plain(specs[index]), third, "new"))
        if specs[index].requires_grad:
            found.add(Step(CALL_METHOD, "requires_grad_", (data,), (), "data"))
        made[index] = data.index
    return made


def is_write(step: Step) -> bool:
    """Whether a step writes to an earlier value, as the calls of a probe do between them."""
    return (
        step.op == CALL_METHOD and step.target in _WRITES and NO_GRAD[0] in step.modes and isinstance(step.args[0], Ref)
    )


def rewritten(program: Program) -> frozenset[int]:
    """Return the indices of the values that a probe writes to after their step, and of its own steps that do so."""
    found: set[int] = set()
    for index, step in enumerate(program.steps):
        if is_write(step):
            receiver = step.args[0]
            assert isinstance(receiver, Ref)  # noqa: S101 - as ``is_write`` says
            found |= {receiver.index, index}
        elif step.args[1:] == ("data",) or step.target == "requires_grad_":
            found.add(index)
    return frozenset(found)
