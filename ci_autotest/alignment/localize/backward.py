"""Localize through a backward pass that the body runs itself: compare what differs after it as a gradient.

``loss.backward()`` and ``x.grad`` are steps, but no step alone is wrong if an operator's backward pass is. The body is
therefore cut at the pass, ci-autotest runs the pass, and the result is searched like any other program. Passes are
tried in program order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import torch

from ci_autotest.alignment.differences import is_of_hook
from ci_autotest.alignment.localize import search
from ci_autotest.alignment.localize.examination import examined
from ci_autotest.alignment.single_step import Live
from ci_autotest.program.backward_passes import GRAD, PASSES
from ci_autotest.program.edit import ending_at, follows_from
from ci_autotest.program.ir import List, Ref, Step, refs

if TYPE_CHECKING:
    from ci_autotest.alignment.localize.examination import Culprit, TrialSides
    from ci_autotest.backends.trace import Trace
    from ci_autotest.program.ir import Argument
    from ci_autotest.values.verdict import Misalignment


class PassSearch:
    """A search as ``search.StepSearch`` does it; after a backward pass, for the gradient.

    Args:
        live: The program.
        traces: The candidate's and the reference's trace of it, with snapshots.
        sides: The two backends.
    """

    def __init__(self, live: Live, traces: tuple[Trace, Trace], sides: TrialSides) -> None:
        self._live, self._traces, self._sides = live, traces, sides
        self._whole = search.StepSearch(live, traces, sides)
        #: The culprit of each pass, which many values after it may follow from; ``None`` where no gradient differs.
        self._of_passes: dict[int, Culprit | None] = {}

    def culprit(self, found: Misalignment) -> Culprit:
        """Return the culprit of one misalignment."""
        steps = self._live.program.steps
        # A hook's steps stand where it was registered, and get their values in a later pass.
        is_of_pass = is_of_hook(steps[found.step])
        passes = [i for i, step in enumerate(steps) if step.target in PASSES and (i < found.step or is_of_pass)]
        for at in passes if found.kind in {"value", "metadata", "shape", "dtype"} else ():
            if at not in self._of_passes:
                self._of_passes[at] = self._of_pass(at)
            culprit = self._of_passes[at]
            if culprit is not None:
                return culprit
        return _in_its_pass(self._whole.culprit(found))

    def _of_pass(self, at: int) -> Culprit | None:
        """Return the culprit of the first gradient of a pass that differs."""
        until = _until(self._live, at, self._traces[1])
        differences, candidate, reference = examined(until, self._sides)[:3]
        gradients = [item for item in differences if item.kind == "gradient"]
        if not gradients:
            return None
        return _in_its_pass(search.StepSearch(until, (candidate, reference), self._sides).culprit(gradients[0]))


def _in_its_pass(culprit: Culprit) -> Culprit:
    """Return a culprit, with a note if its gradient is wrong only after an earlier pass through the same calls."""
    program = culprit.live.program
    through = follows_from(program.steps, len(program.steps) - 1) & {index for index, _ in program.calls}
    earlier = (i for i, step in enumerate(program.steps) if step.target in PASSES)
    if culprit.is_alone or culprit.misalignment.kind != "gradient":
        return culprit
    if not any(through & follows_from(program.steps, index) for index in earlier):
        return culprit
    detail = "its gradient is right alone, and wrong in a later backward pass"
    misalignment = msgspec.structs.replace(culprit.misalignment, detail=detail)
    return culprit._replace(misalignment=misalignment, accumulated=False)


def _until(live: Live, first: int, reference: Trace) -> Live:
    """Return the program up to a backward pass, with the pass's roots as outputs and its weights as cotangents."""
    program, step = live.program, live.program.steps[first]
    roots = tuple(refs(step.args[0]))
    given = _given(step)
    cotangents = {
        position: _weight(given[position] if position < len(given) else None, reference.values[ref.index], reference)
        for position, ref in enumerate(roots)
    }
    earlier = ending_at(program, first - 1, roots)
    return Live(earlier, {key: live.sources[key] for key in earlier.specs}, cotangents)


def _given(step: Step) -> tuple[Argument, ...]:
    """Return the gradients that the body passes to a backward pass, one for each root."""
    keywords = dict(step.kwargs)
    # `grad` takes outputs, inputs and weights; `backward` takes tensors and weights.
    place = 2 if step.target == GRAD else 1
    default = step.args[place] if len(step.args) > place else None
    found = next((keywords[name] for name in ("gradient", "grad_tensors", "grad_outputs") if name in keywords), default)
    if isinstance(found, List):
        return found.items
    return found if isinstance(found, tuple) else (found,)


def _weight(given: Argument, value: Any, reference: Trace) -> torch.Tensor:
    if isinstance(given, Ref):
        weight: torch.Tensor = reference.values[given.index].detach().clone()
        return weight
    # torch starts a pass from a single number without a weight with 1.
    return torch.ones_like(value.detach())
