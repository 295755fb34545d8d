"""Localize through a backward pass of the body's own: what differs after it is looked for as a gradient.

``loss.backward()`` and ``x.grad`` are steps, and no step alone is wrong where an operator's backward pass is. So the
body up to its first pass is taken as one that leaves the pass to us, and searched like any other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from ci_autotest.alignment import localize as search
from ci_autotest.alignment.isolate import Live
from ci_autotest.program.ir import OUTPUT, PLACEHOLDER, List, Program, Ref, Step, refs

if TYPE_CHECKING:
    from ci_autotest.alignment.localize import Culprit, Sides
    from ci_autotest.backends.trace import Trace
    from ci_autotest.judgement import Misalignment
    from ci_autotest.program.ir import Argument

_PASSES = frozenset({"backward", "torch.autograd.backward", "torch.autograd.grad"})


def localize(live: Live, found: Misalignment, traces: tuple[Trace, Trace], sides: Sides) -> Culprit:
    """Return the culprit of one misalignment, as ``localize.localize``; behind a backward pass, of the gradient."""
    first = next((i for i, step in enumerate(live.program.steps) if step.target in _PASSES), None)
    if first is not None and found.step > first and found.kind in {"value", "metadata", "shape", "dtype"}:
        until = _until(live, first, traces[1])
        differences, candidate, reference = search.examined(until, sides)[:3]
        gradients = [item for item in differences if item.kind == "gradient"]
        if gradients:
            return search.localize(until, gradients[0], (candidate, reference), sides)
    return search.localize(live, found, traces, sides)


def _until(live: Live, first: int, reference: Trace) -> Live:
    """Return the program up to its first backward pass, which begins from the outputs with what the body gave it."""
    program, step = live.program, live.program.steps[first]
    roots = tuple(refs(step.args[0]))
    given = _given(step)
    cotangents = {
        position: _weight(given[position] if position < len(given) else None, reference.values[ref.index], reference)
        for position, ref in enumerate(roots)
    }
    body = (*program.body[: first - len(program.setup)], Step(OUTPUT, "output", roots, (), "output"))
    kept = {item.target for item in (*program.setup, *body) if item.op == PLACEHOLDER}
    sources = {key: source for key, source in live.sources.items() if key in kept}
    return Live(Program(program.setup, body), sources, cotangents)


def _given(step: Step) -> tuple[Argument, ...]:
    """Return the gradients that a pass is given, for each of its outputs."""
    keywords = dict(step.kwargs)
    place = 2 if step.target == "torch.autograd.grad" else 1
    default = step.args[place] if len(step.args) > place else None
    found = next((keywords[name] for name in ("gradient", "grad_tensors", "grad_outputs") if name in keywords), default)
    if isinstance(found, List):
        return found.items
    return found if isinstance(found, tuple) else (found,)


def _weight(given: Argument, value: Any, reference: Trace) -> torch.Tensor:  # noqa: ANN401 - an output
    if isinstance(given, Ref):
        weight: torch.Tensor = reference.values[given.index].detach().clone()
        return weight
    return torch.ones_like(value.detach())
