"""Outputs of a body: its return value, flattened, becomes the output of the program."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import torch

from ci_autotest.errors import AuthorError
from ci_autotest.program.ir import CALL_FUNCTION, EXPECT, OUTPUT, PLACEHOLDER, Ref, Step, step_refs
from ci_autotest.program.targets import SIDE_ATTRIBUTES
from ci_autotest.record.gradient_calls import unread
from ci_autotest.record.values import GradFn, Value

if TYPE_CHECKING:
    from ci_autotest.record.recorder import Recorder

_SHOWN_AT_MOST: Final = 80
#: Results of steps and attributes besides tensors.
_PLAIN: Final = (bool, int, float, complex, str, torch.Size, torch.dtype, torch.device, torch.layout)


def record_output(recorder: Recorder, returned: object) -> None:
    """Record the outputs of a body. If it returned no tensor, every tensor that no step computes with is an output too.

    Raises:
        AuthorError: The body returned something that no step gave.
    """
    found = tuple(_returned(returned, recorder))
    # A graph shows its outputs alone: beside a size, its tensor has to be one of them.
    if not any(recorder.trace.facts[ref.index] is not None for ref in found):
        found += _unused(recorder)
    if not recorder.keeps_graph:
        found += tuple(gradient._ref for leaf in unread(recorder) if isinstance(gradient := leaf.grad, Value))
    # Last, so that a program without its expectations has the same other outputs.
    found += tuple(Ref(i) for i, step in enumerate(recorder.steps) if step.target == EXPECT)
    recorder.outputs = found
    recorder.silent(Step(OUTPUT, "output", found, (), "output"))


def _returned(value: object, recorder: Recorder) -> list[Ref]:
    if isinstance(value, Value):
        return [value._ref]
    held = recorder.outside.captured.get(id(value))
    if held is not None:  # a plain tensor with a recorded value, for example the gradient of a plain parameter
        return [held[1]._ref]
    if value is None or isinstance(value, GradFn):  # whether there is one is `requires_grad`, which is compared
        return []
    if isinstance(value, _PLAIN):
        return _given(value, recorder)
    if isinstance(value, dict):
        value = tuple(value.values())
    if isinstance(value, tuple | list):
        return [ref for item in value for ref in _returned(item, recorder)]
    message = f"the body returns {_kind(value)}. Return a recorded tensor, a tuple of them, or nothing."
    raise AuthorError(message)


def _given(value: object, recorder: Recorder) -> list[Ref]:
    """Return all steps that gave a number, a boolean or another plain value: which of them it is from is unknown.

    An attribute that is equal to it becomes a step here.

    Raises:
        AuthorError: No step did: comparing a constant would always pass.
    """
    values = recorder.trace.values
    read = [key for key, found in recorder.reads.items() if _gave(found, value)]
    for ref, name in read:
        tensor = values[ref.index]
        if name not in SIDE_ATTRIBUTES and _gave(getattr(tensor, name), value):
            step = Step(CALL_FUNCTION, "builtins.getattr", (ref, name), (), name)
            recorder.run(step, getattr, [tensor, name], {})
    given = [Ref(i) for i, found in enumerate(values) if _gave(found, value) and not recorder.steps[i].in_setup]
    if given or any(name in SIDE_ATTRIBUTES for _, name in read):
        return given
    message = (
        f"the body returns {_kind(value)}, which no recorded step gave: every side would return the same. Return what "
        "a step gives, such as x.size(0) or len(x), or a recorded tensor."
    )
    raise AuthorError(message)


def _gave(found: object, value: object) -> bool:
    """Whether what a step or an attribute gave is a plain value, or a shape that has it as a size."""
    if isinstance(found, torch.Size) and type(value) is int:
        return value in found
    return type(found) is type(value) and (found is value or bool(found == value))


def _unused(recorder: Recorder) -> tuple[Ref, ...]:
    """Return the tensors of which steps read nothing but plain values, such as a size."""
    steps, trace = recorder.steps, recorder.trace
    used = {
        ref.index
        for i, step in enumerate(steps)
        if step.target != EXPECT and type(trace.values[i]) not in _PLAIN
        for ref in step_refs(step)
    }
    return tuple(
        Ref(i)
        for i, step in enumerate(steps)
        if i not in used
        and not step.in_setup
        and step.op != PLACEHOLDER
        and step.target != EXPECT
        and trace.facts[i] is not None
    )


def _kind(value: object) -> str:
    is_short = isinstance(value, int | float | str) and len(str(value)) < _SHOWN_AT_MOST
    return f"{type(value).__name__}{f' {value!r}' if is_short else ''}"
