"""Give each output whose gradient a body reads an alias of its own, so that the gradient comes from outside the call.

Inside torch's LSTM cell the hidden state is computed from the cell state. A hook on the cell state therefore sees the
gradient that arrives through the hidden state, too. A fused kernel computes both at once and has no such path. Both are
right, so gradients at the outputs of one call are defined only by what arrives from other steps (SEMANTICS, rule 26).
An alias has exactly this gradient on both sides: the rest of the program uses the alias, and the call itself does not.
An alias that nothing else uses has no gradient, so ``autograd.grad`` returns ``None`` there instead of raising.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ci_autotest.program.ir import (
    CALL_METHOD,
    Program,
    Ref,
    Step,
    is_unpacking,
    maker_of,
    refs,
    renumbered_step,
    step_refs,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ci_autotest.alignment.single_step import Live
    from ci_autotest.backends.trace import Trace

_GRAD: Final = "torch.autograd.grad"
#: Steps by which a body reads or changes the gradient of a value that is no leaf.
READS_GRADIENT: Final = frozenset({
    "retain_grad", "register_hook", "backward", "torch.autograd.backward", _GRAD,
})  # fmt: skip


def with_aliases(live: Live) -> Live | None:
    """Return the program with aliases; ``None`` if it reads no gradient at one of several outputs of a call."""
    steps = live.program.steps
    read = {
        ref.index
        for step in steps
        if step.target in READS_GRADIENT
        for ref in _read_by(step)
        if is_unpacking(steps[ref.index])
    }
    if not read:
        return None
    body: list[Step] = []
    places: dict[int, int] = {}
    count = len(live.program.setup)
    for index, step in enumerate(steps):
        places[index] = index if index < count else count + len(body)
        if index < count:
            continue
        is_asked = step.target == _GRAD and any(ref.index in read for ref in _read_by(step))
        taken_on = renumbered_step(step, places)
        body.append(_with(taken_on, "allow_unused") if is_asked else taken_on)
        if index in read:
            taken = Ref(places[index])
            # From here on the steps use the alias.
            places[index] += 1
            # A view copies nothing, and autograd knows it as a tensor of its own.
            body.append(Step(CALL_METHOD, "view_as", (taken, taken), (), step.name))
    return live._replace(program=live.program.with_body(body))


def with_zeros(live: Live) -> Live:
    """Return the program with zeros for each ``None`` of ``autograd.grad``, so that later steps can compute with it."""
    body = tuple(
        _with(step, "materialize_grads") if dict(step.kwargs).get("allow_unused") else step
        for step in live.program.body
    )
    return live._replace(program=live.program.with_body(body))


def is_absent_on_one_side(program: Program, candidate: Trace, reference: Trace) -> bool:
    """Whether ``autograd.grad`` returns a gradient on one side and ``None`` for it on the other."""
    steps = program.steps
    for index, sides in enumerate(zip(candidate.observations, reference.observations, strict=False)):
        left, right = sides
        if left is None or right is None or steps[maker_of(steps, index)].target != _GRAD:
            continue
        if (left.data is None) is not (right.data is None):
            return True
    return False


def _read_by(step: Step) -> Iterable[Ref]:
    """Yield the values whose gradient a step reads; of ``autograd.grad`` these are its inputs, not its outputs."""
    if step.target != _GRAD:
        return step_refs(step)
    return refs(step.args[1] if len(step.args) > 1 else dict(step.kwargs)["inputs"])


def _with(step: Step, flag: str) -> Step:
    return step._replace(kwargs=tuple({**dict(step.kwargs), flag: True}.items()))
