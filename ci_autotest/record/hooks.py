"""Hooks on gradients: the hook's function runs once when it is registered, and its calls are recorded as steps.

The reference then runs those steps instead of the function, so that both sides do the same. The gradient is not known
yet, so the function gets ones. If it reads elements of them (prints them, branches on them), the body is recorded again
with the gradient that the reference gave to the hook, until both are the same. A number that was read is a constant of
the program, as it is everywhere else in a body.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import torch

from ci_autotest.backends.hooks import Hook
from ci_autotest.backends.sameness import is_same
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
    from collections.abc import Callable, Sequence

    from torch.utils.hooks import RemovableHandle
    from typing_extensions import Self

    from ci_autotest.record.recorder import Recorder

#: Targets that turn elements of a gradient into Python numbers. In a hook they are not recorded as steps.
READING: Final = frozenset({
    "builtins.bool", "builtins.int", "builtins.float", "item", "tolist", "numpy",
    "is_nonzero", "equal", "allclose", "torch.is_nonzero", "torch.equal", "torch.allclose",
})  # fmt: skip


class HookGradients:
    """The first gradient of each hook of a body, in order of registration, kept from one recording to the next.

    Attributes:
        are_read: True if the function of a hook has read elements of a value.
    """

    def __init__(self) -> None:
        self.are_read = False
        self._known: list[torch.Tensor | None] = []
        self._seen: list[torch.Tensor | None] = []
        self._calls: list[int] = []
        self._read_numbers: set[int] = set()

    def add(self) -> int:
        """Return the number of a hook that is being registered."""
        self._seen.append(None)
        self._calls.append(0)
        return len(self._seen) - 1

    def known(self, number: int) -> torch.Tensor | None:
        """Return the gradient that a hook got when the body was recorded before; ``None`` if it got none."""
        gradient = self._known[number] if number < len(self._known) else None
        return None if gradient is None else gradient.clone()

    @property
    def is_last_known(self) -> bool:
        """True if the gradient of the last registered hook is known, so that it may be shown."""
        number = len(self._seen) - 1
        return number < len(self._known) and self._known[number] is not None

    def read_number(self) -> None:
        """Note that the last registered hook turns elements into Python numbers."""
        self.are_read = True
        self._read_numbers.add(len(self._seen) - 1)

    def see(self, number: int, gradient: torch.Tensor) -> None:
        """Count a call of a hook by autograd, and keep the first gradient if any hook reads elements."""
        self._calls[number] += 1
        if self.are_read and self._seen[number] is None:
            self._seen[number] = gradient.detach().clone()

    def has_news(self) -> bool:
        """Return true if a hook got another gradient than it was recorded with; the next recording uses the new ones.

        Raises:
            AuthorError: A hook that reads numbers was called more than once, and they would differ between the calls.
        """
        if any(self._calls[number] > 1 for number in self._read_numbers):
            message = (
                "a hook branches on its gradient, or turns it into a Python number, and is called more than once in a "
                "case: the number would be another in each call. Use torch.where or clamp."
            )
            raise AuthorError(message)
        known = [*self._known, *[None] * (len(self._seen) - len(self._known))]
        got = [(i, gradient) for i, gradient in enumerate(self._seen) if gradient is not None]
        has_news = False
        for i, gradient in got:
            old = known[i]
            has_news = has_news or old is None or not is_same(old, gradient)
            known[i] = gradient
        self._known, self._seen, self._calls, self._read_numbers = known, [], [], set()
        return has_news


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
        AuthorError: The function makes a tensor or a module with plain torch, catches an error of the reference, or
            returns something else than a recorded tensor or nothing.
    """
    trace, steps, start = recorder.trace, recorder.steps, len(recorder.steps)
    gradients = recorder.hook_gradients
    number = gradients.add()
    known, is_provisional = gradients.known(number), False
    created = recorder.hook_values = []
    result: Any = None
    try:
        ones = torch.ones_like(receiver._tensor.detach()) if known is None else known
        gradient = recorder.keep(Step(CALL_FUNCTION, HOOKED, (receiver._ref,), (), "gradient"), ones)
        with torch.enable_grad():
            result = function(gradient)
    except AuthorError:
        raise
    except Exception:
        if known is not None:
            raise
        # With ones this is no error yet: if autograd calls the hook, the body is recorded again with the gradient.
        gradients.are_read = is_provisional = True
    finally:
        recorder.hook_values = None
    index = len(steps)
    _refuse(() if is_provisional else steps[start:], result)
    for i in range(start, index):
        modes = tuple(mode for mode in steps[i].modes if mode not in NO_GRAD)
        steps[i] = steps[i]._replace(modes=(*modes, *HOOK))
        # These values do not belong to the run: autograd calls the hook later, and perhaps with another gradient.
        trace.values[i], trace.facts[i] = None, None
    returned = result._ref if isinstance(result, RecordedTensor) else None
    recorder.silent(Step(CALL_METHOD, "register_hook", (receiver._ref, Ref(start), returned), (), "hook", REGISTERS))
    live = {value._ref.index: value for value in created}
    binding = TorchSteps(str(recorder.device)).binding(recorder.sources)
    stored = _StoredValues(recorder, live, start, number)
    hook = stored.see if is_provisional else Hook(trace, steps, index, binding, stored)
    real = receiver._tensor.register_hook(hook)  # type: ignore[no-untyped-call]
    return HookHandle(recorder, real, Ref(index))


class _StoredValues:
    """Callback that updates the values that a hook's function stored, when autograd calls the hook with its gradient.

    Args:
        recorder: The recorder of the attempt.
        live: The values that the function has created, by the index of their step.
        first: Index of the step that stands for the gradient.
        number: Number of the hook.
    """

    def __init__(self, recorder: Recorder, live: dict[int, RecordedTensor], first: int, number: int) -> None:
        self._recorder, self._live, self._first, self._number = recorder, live, first, number

    def __call__(self, index: int, value: Any) -> None:
        moved = self._recorder.trace.moved
        if index == (self._first if moved is None else moved[self._first]):
            self.see(value)
        stored = self._live.get(index) if moved is None else None
        if stored is not None:
            stored._tensor = value

    def see(self, gradient: torch.Tensor | None) -> None:
        """Keep the gradient of the hook."""
        if gradient is not None:
            self._recorder.hook_gradients.see(self._number, gradient)


def _refuse(steps: Sequence[Step], result: object) -> None:
    if refusals(steps):
        message = "a hook catches an error of the reference, which cannot be recorded. Move that call out of the hook."
        raise AuthorError(message)
    if any(step.op == PLACEHOLDER or step.in_setup for step in steps):
        message = "a hook makes a tensor or a module with plain torch. Make it before the hook is registered."
        raise AuthorError(message)
    if result is not None and not isinstance(result, RecordedTensor):
        message = f"a hook returns {type(result).__name__}. Return a recorded tensor, or nothing to keep the gradient."
        raise AuthorError(message)
