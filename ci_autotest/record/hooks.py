"""Hooks on gradients: the hook's function runs once, on a gradient of ones, and its calls are recorded as steps.

The reference then runs those steps instead of the function, so that both sides do the same. So a hook may compute with
the gradient and store it, but may not branch on it.
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
from ci_autotest.record.values import RecordedTensor

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch.utils.hooks import RemovableHandle
    from typing_extensions import Self

    from ci_autotest.record.recorder import Recorder

#: Targets that turn elements of a gradient into Python numbers.
_READING: Final = frozenset({
    "builtins.bool", "builtins.int", "builtins.float", "builtins.len", "item", "tolist", "numpy",
})  # fmt: skip


class HookHandle:
    """The result of ``register_hook``; removing the hook is a step.

    Args:
        recorder: The recorder of the attempt.
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


def register_hook(recorder: Recorder, receiver: RecordedTensor, function: Callable[[Any], Any]) -> HookHandle:
    """Record the registration of a hook and the steps of its function.

    Raises:
        AuthorError: The function branches on the gradient, makes tensors with plain torch, or returns no tensor.
    """
    trace, steps, start = recorder.trace, recorder.steps, len(recorder.steps)
    created = recorder.hook_values = []
    try:
        gradient = recorder.keep(
            Step(CALL_FUNCTION, HOOKED, (receiver._ref,), (), "gradient"), torch.ones_like(receiver._tensor.detach())
        )
        with torch.enable_grad():
            result = function(gradient)
    finally:
        recorder.hook_values = None
    index = len(steps)
    _refuse(steps[start:], result)
    for i in range(start, index):
        modes = tuple(mode for mode in steps[i].modes if mode not in NO_GRAD)
        steps[i] = steps[i]._replace(modes=(*modes, *HOOK))
        # Computed from a gradient of ones, these values mean nothing for a comparison.
        trace.values[i], trace.facts[i] = None, None
    returned = result._ref if isinstance(result, RecordedTensor) else None
    recorder.silent(Step(CALL_METHOD, "register_hook", (receiver._ref, Ref(start), returned), (), "hook", REGISTERS))
    live = {value._ref.index: value for value in created}
    binding = TorchSteps(str(recorder.device)).binding(recorder.sources)
    stored = _StoredValues(recorder, live)
    real = receiver._tensor.register_hook(Hook(trace, steps, index, binding, stored))  # type: ignore[no-untyped-call]
    return HookHandle(recorder, real, Ref(index))


class _StoredValues:
    """Callback that updates values which a hook's function stored, when autograd runs the hook with a real gradient."""

    def __init__(self, recorder: Recorder, live: dict[int, RecordedTensor]) -> None:
        self._recorder, self._live = recorder, live

    def __call__(self, index: int, value: Any) -> None:
        stored = self._live.get(index) if self._recorder.trace.moved is None else None
        if stored is not None:
            stored._tensor = value


def _refuse(steps: list[Step], result: object) -> None:
    if refusals(steps):
        message = "a hook catches an error of the reference, which cannot be recorded. Move that call out of the hook."
        raise AuthorError(message)
    if any(step.target in _READING for step in steps):
        message = (
            "a hook turns its gradient into a Python number, and branches on it cannot be recorded. Use torch.where or "
            "clamp."
        )
        raise AuthorError(message)
    if any(step.op == PLACEHOLDER or step.in_setup for step in steps):
        message = "a hook makes a tensor or a module with plain torch. Make it before the hook is registered."
        raise AuthorError(message)
    if result is not None and not isinstance(result, RecordedTensor):
        message = f"a hook returns {type(result).__name__}. Return a recorded tensor, or nothing to keep the gradient."
        raise AuthorError(message)
