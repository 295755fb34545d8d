"""Record a hook: run its function once on a gradient of ones, and keep its calls as steps.

The reference then runs those steps too, and not the function: both sides carry out the same. So a hook may compute and
may keep the gradient for later; it may not branch on it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import torch

from ci_autotest.backends.hooks import Hook
from ci_autotest.backends.torch_steps import TorchSteps
from ci_autotest.errors import AuthorError
from ci_autotest.program.ir import (
    CALL_FUNCTION,
    CALL_METHOD,
    HOOK,
    HOOKED,
    NO_GRAD,
    PLACEHOLDER,
    REGISTERS,
    UNHOOKED,
    Ref,
    Step,
)
from ci_autotest.program.refusal import refusals
from ci_autotest.record.values import Value

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch.utils.hooks import RemovableHandle
    from typing_extensions import Self

    from ci_autotest.record.protocol import Recorder

_ASKING: Final = frozenset({
    "builtins.bool", "builtins.int", "builtins.float", "builtins.len", "item", "tolist", "numpy",
})  # fmt: skip


class Handle:
    """Stand for what ``register_hook`` returns: removes the hook, which is a step.

    Args:
        recorder: Of the attempt.
        real: The reference's handle.
        ref: The step that registered the hook.
    """

    def __init__(self, recorder: Recorder, real: RemovableHandle, ref: Ref) -> None:
        self._recorder, self._real, self._ref = recorder, real, ref

    def remove(self) -> None:
        """Record the removal."""
        step = Step(CALL_FUNCTION, UNHOOKED, (self._ref,), (), "handle", REGISTERS)
        self._recorder.run(step, self._real.remove, [], {})

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()


def register_hook(recorder: Recorder, receiver: Value, function: Callable[[Any], Any]) -> Handle:
    """Record the registration of a hook, with what its function does.

    Raises:
        AuthorError: The function branches on the gradient, makes tensors with plain torch, or returns no tensor.
    """
    trace, steps, start = recorder.trace, recorder.steps, len(recorder.steps)
    created = recorder.begin_hook()
    try:
        gradient = recorder.keep(
            Step(CALL_FUNCTION, HOOKED, (receiver._ref,), (), "gradient"), torch.ones_like(receiver._tensor.detach())
        )
        with torch.enable_grad():
            result = function(gradient)
    finally:
        recorder.end_hook()
    index = len(steps)
    _refuse(steps[start:], result)
    for i in range(start, index):
        modes = tuple(mode for mode in steps[i].modes if mode not in NO_GRAD)
        steps[i] = steps[i]._replace(modes=(*modes, *HOOK))
        trace.values[i], trace.facts[i] = None, None
    said = result._ref if isinstance(result, Value) else None
    recorder.silent(Step(CALL_METHOD, "register_hook", (receiver._ref, Ref(start), said), (), "hook", REGISTERS))
    live = {value._ref.index: value for value in created if isinstance(value, Value)}
    binding = TorchSteps(str(recorder.device)).binding(recorder.sources)
    seen = _Kept(recorder, live)
    real = receiver._tensor.register_hook(Hook(trace, steps, index, binding, seen))  # type: ignore[no-untyped-call]
    return Handle(recorder, real, Ref(index))


class _Kept:
    """Give the values that a hook's function kept what autograd called it with."""

    def __init__(self, recorder: Recorder, live: dict[int, Value]) -> None:
        self._recorder, self._live = recorder, live

    def __call__(self, index: int, value: Any) -> None:
        kept = self._live.get(index) if self._recorder.trace.moved is None else None
        if kept is not None:
            kept._tensor = value


def _refuse(steps: list[Step], result: object) -> None:
    if refusals(steps):
        message = "a hook catches what the reference refuses, which is not recorded. Take it out of the hook."
        raise AuthorError(message)
    asked = next((step for step in steps if step.target in _ASKING), None)
    if asked is not None:
        message = "a hook asks its gradient for a number: what it does then is not recorded. Use torch.where or clamp."
        raise AuthorError(message)
    if any(step.op == PLACEHOLDER or step.in_setup for step in steps):
        message = "a hook makes a tensor or a module with plain torch. Make it before the hook is registered."
        raise AuthorError(message)
    if result is not None and not isinstance(result, Value):
        message = f"a hook returns {type(result).__name__}. Return a recorded tensor, or nothing to keep the gradient."
        raise AuthorError(message)
