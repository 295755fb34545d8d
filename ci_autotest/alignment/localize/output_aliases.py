"""Give each output whose gradient a body reads an alias of its own, so that the gradient comes from outside the call.

Inside torch's LSTM cell the hidden state is computed from the cell state. A hook on the cell state therefore sees the
gradient that arrives through the hidden state, too. A fused kernel computes both at once and has no such path. Both are
right, so gradients at the outputs of one call are defined only by what arrives from other steps (SEMANTICS, rule 26).
An alias has exactly this gradient on both sides: the rest of the program uses the alias, and the call itself does not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ci_autotest.program.ir import CALL_METHOD, Program, Ref, Step, is_unpacking, renumbered_step, step_refs

if TYPE_CHECKING:
    from ci_autotest.alignment.single_step import Live

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
        for ref in step_refs(step)
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
        body.append(_defined(renumbered_step(step, places)))
        if index in read:
            taken = Ref(places[index])
            places[index] += 1
            body.append(Step(CALL_METHOD, "view_as", (taken, taken), (), step.name))
    return live._replace(program=Program(live.program.setup, tuple(body), live.program.cotangents))


def _defined(step: Step) -> Step:
    """Return a step; ``autograd.grad`` gives zeros for an output that nothing else uses, where it would raise."""
    if step.target != _GRAD:
        return step
    kwargs = {**dict(step.kwargs), "allow_unused": True, "materialize_grads": True}
    return step._replace(kwargs=tuple(kwargs.items()))
