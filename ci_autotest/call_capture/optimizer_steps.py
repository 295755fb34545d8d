"""Steps of torch's optimizers: observed in few of them, and counted in all.

An optimizer makes most of the calls of a small training step, and the same ones in every step. So a step is observed
when there were twice as many before, and at last every ``_RARELY`` steps; in between the mode is left, and the calls
of the last observed step are counted again. A step with a closure runs the model, and is always observed. Dropping the
gradients calls no operator, so the mode is left for it too.
"""

from __future__ import annotations

import functools
from collections import Counter
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch.optim import Optimizer
from torch.overrides import TorchFunctionMode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from ci_autotest.call_capture.observation import Observed

    Step = Callable[..., Any]

#: Steps between two that are observed, at most.
_RARELY: Final = 64
#: The mode that is called first. Torch has no public name for it.
_top_mode: Final = torch.overrides._get_current_function_mode  # noqa: SLF001


class Repetition(NamedTuple):
    """What the last observed step of an optimizer did.

    Args:
        number: Number of the step.
        gradients: Number of parameters that had a gradient.
        calls: The calls with one key that it made, with their number.
        omitted: Number of its other calls by what was called and why they are not kept.
    """

    number: int
    gradients: int
    calls: list[tuple[Observed, int]]
    omitted: Counter[tuple[str, str]]


class OptimizerSteps:
    """The steps of torch's own optimizers while a mode is active.

    Args:
        mode: The mode.
        observed: The calls that it has observed, by key.
        omitted: Number of those that it does not keep.
    """

    def __init__(
        self, mode: TorchFunctionMode, observed: Mapping[Any, Observed], omitted: Counter[tuple[str, str]]
    ) -> None:
        self._mode = mode
        self._observed = observed
        self._omitted = omitted
        self._steps: WeakKeyDictionary[Optimizer, int] = WeakKeyDictionary()
        self._last: WeakKeyDictionary[Optimizer, Repetition] = WeakKeyDictionary()
        self._replaced: list[tuple[type[Optimizer], Step, Step]] = []
        self._zero_grad: Step = Optimizer.zero_grad

    def begin(self) -> None:
        """Take the place of ``step`` in torch's optimizers, inside of the hooks of a step, and of ``zero_grad``."""
        self._zero_grad = Optimizer.zero_grad
        Optimizer.zero_grad = self._unobserved(self._zero_grad)  # type: ignore[method-assign]
        for kind in _kinds(Optimizer):
            step: Any = kind.__dict__["step"]
            is_hooked = getattr(step, "hooked", False)
            if is_hooked and not hasattr(step, "__wrapped__"):
                continue  # somebody else has replaced it; each of its steps is observed
            counted = self._counted(step.__wrapped__ if is_hooked else step)
            self._replaced.append((kind, step, counted))
            kind.step = _with_hooks(counted) if is_hooked else counted  # type: ignore[method-assign]

    def end(self) -> None:
        """Put them back."""
        Optimizer.zero_grad = self._zero_grad  # type: ignore[method-assign]
        for kind, step, counted in self._replaced:
            # An optimizer adds the hooks when the first object of its class is made, which may have been meanwhile.
            is_hooked = getattr(step, "hooked", False) or kind.__dict__["step"] is counted
            kind.step = step if is_hooked else _with_hooks(step)  # type: ignore[method-assign]
        self._replaced = []

    def _counted(self, step: Step) -> Step:
        @functools.wraps(step)
        def counted(optimizer: Optimizer, *args: Any, **kwargs: Any) -> Any:
            has_closure = any(one is not None for one in (*args, *kwargs.values()))
            if has_closure or _top_mode() is not self._mode:  # type: ignore[no-untyped-call]
                return step(optimizer, *args, **kwargs)
            _leave(self._mode)
            try:
                gradients = sum(one.grad is not None for group in optimizer.param_groups for one in group["params"])
                if not self._is_repeated(optimizer, gradients):
                    return self._tallied(optimizer, gradients, step)
                return step(optimizer)
            finally:
                _reenter(self._mode)

        return counted

    def _unobserved(self, zero_grad: Step) -> Step:
        @functools.wraps(zero_grad)
        def unobserved(optimizer: Optimizer, set_to_none: bool = True) -> None:  # noqa: FBT001, FBT002 - torch's
            if not set_to_none or _top_mode() is not self._mode:  # type: ignore[no-untyped-call]
                zero_grad(optimizer, set_to_none=set_to_none)
                return
            _leave(self._mode)
            try:
                zero_grad(optimizer)
            finally:
                _reenter(self._mode)

        return unobserved

    def _is_repeated(self, optimizer: Optimizer, gradients: int) -> bool:
        """Whether a step does what the last observed one did; its calls are counted if so."""
        number = self._steps[optimizer] = self._steps.get(optimizer, 0) + 1
        last = self._last.get(optimizer)
        if last is None or last.gradients != gradients or number >= min(2 * last.number, last.number + _RARELY):
            return False
        for found, count in last.calls:
            found.unobserved += count
        self._omitted.update(last.omitted)
        return True

    def _tallied(self, optimizer: Optimizer, gradients: int, step: Step) -> Any:
        """Run a step in the mode, and keep which calls it made."""
        before = {key: found.count for key, found in self._observed.items()}
        omitted = Counter(self._omitted)
        _reenter(self._mode)
        try:
            result = step(optimizer)
        finally:
            _leave(self._mode)
        counts = [(found, found.count - before.get(key, 0)) for key, found in self._observed.items()]
        calls = [(found, count) for found, count in counts if count]
        self._last[optimizer] = Repetition(self._steps[optimizer], gradients, calls, self._omitted - omitted)
        return result


def _leave(mode: TorchFunctionMode) -> None:
    """Leave a mode; its own ``__exit__`` would end the capture."""
    TorchFunctionMode.__exit__(mode, None, None, None)  # type: ignore[no-untyped-call]


def _reenter(mode: TorchFunctionMode) -> None:
    TorchFunctionMode.__enter__(mode)  # type: ignore[no-untyped-call]


def _kinds(kind: type[Optimizer]) -> Iterator[type[Optimizer]]:
    """Yield torch's own optimizers that have a step of their own."""
    for one in kind.__subclasses__():
        if f"{one.__module__}.".startswith("torch.optim."):
            yield from [one] if "step" in one.__dict__ else []
            yield from _kinds(one)


def _with_hooks(step: Step) -> Step:
    """Return a step as an optimizer's constructor leaves it in its class."""
    hooked: Any = Optimizer.profile_hook_step(step)
    hooked.hooked = True
    return hooked  # type: ignore[no-any-return]
