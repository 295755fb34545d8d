"""Steps that compute a differentiable gradient, and what is computed before them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ci_autotest.program.ir import step_refs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ci_autotest.program.ir import Step

#: Position of ``create_graph`` among the arguments of the calls that have it.
_CREATE_GRAPH: Final = {"torch.autograd.grad": 4, "torch.autograd.backward": 3, "backward": 3}


def creates_graph(step: Step) -> bool:
    """Whether a step computes a gradient that can be differentiated again (``create_graph=True``)."""
    position = _CREATE_GRAPH.get(step.target)
    if position is None:
        return False
    given = dict(step.kwargs).get("create_graph", step.args[position] if len(step.args) > position else False)
    return given is not False


def differentiated_twice(steps: Sequence[Step]) -> set[int]:
    """Return the steps that a differentiable gradient was computed from.

    Of their results only leaves have a gradient that mathematics defines: a second derivative goes through a result if
    the formula of its gradient uses it, as torch's softmax does, and around it if the formula uses the input instead.
    """
    found: set[int] = set()
    for index in range(len(steps) - 1, -1, -1):
        step = steps[index]
        if index in found or creates_graph(step):
            found.update(ref.index for ref in step_refs(step))
    return found
