"""Steps that run a backward pass: which do, what they keep, and what is computed before them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ci_autotest.program.edit import follows_from, used_by

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ci_autotest.program.ir import Argument, Program, Step

GRAD: Final = "torch.autograd.grad"
#: The steps that run a backward pass, each with the position of ``retain_graph``, which ``create_graph`` follows.
PASSES: Final = {GRAD: 3, "torch.autograd.backward": 2, "backward": 2}

#: Steps by which a body reads or changes the gradient of a value that is no leaf.
READS_GRADIENT: Final = frozenset({"retain_grad", "register_hook", *PASSES})


def creates_graph(step: Step) -> bool:
    """Whether a step computes a gradient that can be differentiated again (``create_graph=True``)."""
    return step.target in PASSES and _given(step, "create_graph", PASSES[step.target] + 1) is not False


def with_kept_graphs(program: Program) -> Program:
    """Return the program in which each backward pass but the last keeps its graph; no value changes."""
    passes = [i for i, step in enumerate(program.steps) if step.target in PASSES]
    steps = [*program.steps]
    for i in passes[:-1]:
        step, position = steps[i], PASSES[steps[i].target]
        kwargs = {key: value for key, value in step.kwargs if key != "retain_graph"}
        if len(step.args) > position:
            steps[i] = step._replace(args=(*step.args[:position], True, *step.args[position + 1 :]))
        else:
            steps[i] = step._replace(kwargs=tuple({**kwargs, "retain_graph": True}.items()))
    return program.with_steps(steps) if len(passes) > 1 else program


def goes_through_earlier_calls(program: Program) -> bool:
    """Whether a backward pass goes through calls that were made before another pass."""
    steps = program.steps
    passes = [i for i, step in enumerate(steps) if step.target in PASSES]
    calls = {i for i, _ in program.calls}
    return any(calls & {i for i in follows_from(steps, later) if i < passes[0]} for later in passes[1:])


def _given(step: Step, name: str, position: int) -> Argument:
    return dict(step.kwargs).get(name, step.args[position] if len(step.args) > position else False)


def differentiated_twice(steps: Sequence[Step]) -> set[int]:
    """Return the steps that a differentiable gradient was computed from.

    Of their results only leaves have a gradient that mathematics defines: a second derivative goes through a result if
    the formula of its gradient uses it, as torch's softmax does, and around it if the formula uses the input instead.
    """
    return follows_from(steps, *used_by(filter(creates_graph, steps)))
