"""Hooks on gradients: steps that autograd runs during the backward pass.

The steps of a hook are in the program where it was registered. Each has the mode ``hook``, the first one stands for the
gradient, and the forward pass skips them; the step ``register_hook`` after them names the gradient and the result. When
autograd calls the hook, its steps run and their values are observed like any others. The value of ``register_hook`` is
the hook's positions in the order of all calls of hooks, for example ``(1, 4)`` if it was called first and fourth.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import torch

from ci_autotest.host.steps import execute_step
from ci_autotest.program.ir import HOOK, Ref

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager

    from ci_autotest.backends.trace import Trace
    from ci_autotest.host.steps import FrameworkBinding
    from ci_autotest.program.ir import Step


class Hook:
    """A hook that autograd calls with a gradient.

    Args:
        trace: Trace of the run; its values may have moved since the steps were recorded.
        steps: All steps, as they were when ``register_hook`` ran.
        index: Index of ``register_hook``.
        binding: The framework's side of the interpreter.
        seen: Called with the index and value of each step that runs.
        around: Context of each step, if the backend has one for the steps of the body.
    """

    def __init__(
        self,
        trace: Trace,
        steps: Sequence[Step],
        index: int,
        binding: FrameworkBinding,
        seen: Callable[[int, Any], None],
        around: AbstractContextManager[object] | None = None,
    ) -> None:
        self._trace, self._steps, self._index, self._binding, self._seen = trace, steps, index, binding, seen
        self._around = around or nullcontext()
        first, result = steps[index].args[1:]
        assert isinstance(first, Ref)  # noqa: S101 - written by the recorder, checked when read
        self._first = first.index
        self._result = result.index if isinstance(result, Ref) else None

    def __call__(self, gradient: torch.Tensor | None) -> torch.Tensor | None:
        """Run the hook's steps, and return the gradient's replacement; ``None`` if it is not replaced."""
        # A gradient may consist of zeros that replace a withheld one (`backward`); to the body that is no gradient.
        if gradient is None or (self._trace.is_nothing is not None and self._trace.is_nothing(gradient)):
            return None
        found: Any = _Values(self._trace)
        self._put(self._first, gradient)
        for index in range(self._first + 1, self._index):
            step = self._steps[index]
            # The mode `hook` makes the forward pass skip a step; here it must run.
            modes = tuple(mode for mode in step.modes if mode not in HOOK)
            with self._around:
                value = execute_step(step._replace(modes=modes), found, self._binding)
            self._put(index, value)
        trace = self._trace
        trace.fired += 1
        self._put(self._index, (*(found[self._index] or ()), trace.fired))
        replaced: torch.Tensor | None = None if self._result is None else found[self._result]
        return replaced

    def _put(self, index: int, value: Any) -> None:
        trace = self._trace
        at = index if trace.moved is None else trace.moved[index]
        trace.values[at] = value
        if isinstance(value, torch.Tensor):
            trace.facts[at] = (value.requires_grad, value.is_leaf, value._version)
        self._seen(at, value)


class _Values:
    """The values of a trace, by the index that the step had when it was recorded."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace

    def __getitem__(self, index: int) -> Any:
        moved = self._trace.moved
        return self._trace.values[index if moved is None else moved[index]]
