"""Forms of a case: other ways to make its calls, under autocast, with ``out=``, or with second derivatives.

The rule of this module: a form changes only calls that the reference supports in this form. ``out=`` and second
derivatives are tried outside of the recording first. If the reference refuses them, the call stays as written.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import torch

from ci_autotest.backends.input_copies import contiguous_spec
from ci_autotest.backends.nest import leaves, mapped
from ci_autotest.backends.operators.signatures import takes_out
from ci_autotest.backends.snapshots import keep_copy
from ci_autotest.backends.torch_constants import DTYPE_NAMES
from ci_autotest.program.ir import HOOK, PLACEHOLDER, REGISTERS, Ref, TensorSpec
from ci_autotest.record.arguments import split
from ci_autotest.record.context import outside
from ci_autotest.record.declaration import FORMS
from ci_autotest.record.draw.profiles import LARGE_SHAPES
from ci_autotest.record.recorder import Recorder
from ci_autotest.record.values import RecordedTensor, has_gradient
from ci_autotest.values.dtypes import DTYPES

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from ci_autotest.record.draw.draws import Drawer
    from ci_autotest.record.function import Function

AUTOCAST, OUT, SECOND_DERIVATIVES = FORMS
#: One case in so many has each form: one or two of the 20 cases of a plan.
_EVERY: Final = 14
#: Kinds of device whose autocast a step can store.
_CASTING: Final = ("cpu", "cuda")
#: The elements of ``out`` before the call, in any dtype. They reveal a kernel that adds to them or leaves some as is.
_HELD: Final = 7


def form_of(drawer: Drawer, forms: tuple[str, ...], number: int) -> str:
    """Return the form of an attempt by plan; empty if its calls are made as written.

    Args:
        drawer: The drawer of the attempt.
        forms: The forms that the test asks for.
        number: Number of the attempt; after a refusal, calls are made as written.
    """
    if not forms or drawer.profile == LARGE_SHAPES:
        return ""
    usual = _EVERY - len(forms)
    if number:
        at = drawer.choice("form", _EVERY, given=0)
    else:
        at = drawer.integer("form", 0, _EVERY, "choice", is_planned=True)
    return forms[at - usual] if at >= usual else ""


def recorder_of(form: str, drawer: Drawer, device: torch.device) -> Recorder:
    """Return the recorder of an attempt."""
    return OutRecorder(drawer, device) if form == OUT else Recorder(drawer, device)


def calling(form: str, device: torch.device) -> AbstractContextManager[Any]:
    """Return the context in which the body runs."""
    if form != AUTOCAST or device.type not in _CASTING:
        return nullcontext()
    return torch.autocast(device.type, dtype=torch.bfloat16, cache_enabled=False)


class OutRecorder(Recorder):
    """A recorder that gives each call an ``out=`` to write to, if it takes one; its tensors have no gradients."""

    __slots__ = ()

    def tensor(self, source: torch.Tensor, spec: TensorSpec, name: str | None = None) -> RecordedTensor:
        """Record a placeholder without a gradient, because torch writes no results with gradients to ``out``."""
        return Recorder.tensor(self, source, replace(spec, requires_grad=False) if spec.requires_grad else spec, name)

    def call_function(self, function: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Record a call; let it write its result to a new input if the reference can do so."""
        if (
            "out" not in kwargs
            and self.outside.plain_tensors is None
            and not function.is_random
            and takes_out(function.target)
        ):
            real_args, _, real_kwargs, _ = split(self, args, kwargs, function)
            results = _put_aside(function, real_args, real_kwargs)
            if results:
                rooms = tuple(map(self._room, results))
                kwargs = {**kwargs, "out": rooms if len(rooms) > 1 else rooms[0]}
        return Recorder.call_function(self, function, args, kwargs)

    def _room(self, result: torch.Tensor) -> RecordedTensor:
        """Return an input for a result: contiguous, or every second element of its memory."""
        spec = contiguous_spec(result)
        size = spec.shape
        if self.drawer.choice(f"out{len(self.steps)}", 2) and result.numel():
            spec = spec.spread()
            size = (spec.storage_size,)
        room = self.tensor(torch.full(size, _HELD, dtype=result.dtype), spec, OUT)
        self.notes.added.add(self.steps[room._ref.index].target)
        # The call will overwrite it, so both sides need a copy from their first run on.
        keep_copy(self.trace, room._ref.index, room._tensor)
        return room


def _put_aside(function: Function, args: list[Any], kwargs: dict[str, Any]) -> tuple[torch.Tensor, ...]:
    """Return the results of a call that the reference also makes with ``out=``; none if it does not."""
    # Call it with copies, because a few functions also write to an argument, for example to running statistics.
    args, kwargs = mapped((args, kwargs), lambda each: each.detach().clone().requires_grad_(each.requires_grad))
    try:
        found = function.real(*args, **kwargs)
        results = tuple(found) if isinstance(found, tuple | list) else (found,)
        if not all(isinstance(item, torch.Tensor) and DTYPE_NAMES[item.dtype] in DTYPES for item in results):
            return ()
        rooms = tuple(torch.empty(item.shape, dtype=item.dtype, device=item.device) for item in results)
        function.real(*args, **kwargs, out=rooms if len(rooms) > 1 else rooms[0])
    except Exception:  # noqa: BLE001 - whatever the reference has against it
        return ()
    return results


def with_second_derivatives(recorder: Recorder, returned: object) -> object:
    """Return a body's result with its gradients, so that the backward pass gives second derivatives.

    The backward pass of each output starts from the output itself, so that linear functions have second derivatives
    too. If that is not possible, return only the result.
    """
    hooks = {*HOOK, *REGISTERS}
    if (
        not recorder.keeps_graph
        or recorder.outside.plain_tensors is not None
        or any(hooks & {*s.modes} for s in recorder.steps)
    ):
        return returned
    outputs = list({id(value._tensor): value for value in filter(has_gradient, leaves(returned))}.values())
    inputs = [
        RecordedTensor(recorder.trace.values[index], Ref(index), recorder)
        for index, facts in enumerate(recorder.trace.facts)
        if facts is not None and facts[:2] == (True, True) and recorder.steps[index].op == PLACEHOLDER
    ]
    if not _has_second([value._tensor for value in outputs], [leaf._tensor for leaf in inputs]):
        return returned
    options = {"create_graph": True, "allow_unused": True}
    gradients = recorder.call_plain(torch.autograd.grad, (outputs, inputs, outputs), options)
    return returned, tuple(gradient for gradient in gradients if gradient is not None)


@outside
def _has_second(outputs: list[torch.Tensor], leaves: list[torch.Tensor]) -> bool:
    """Return true if the reference has second derivatives of outputs with respect to leaves."""
    if not outputs or not leaves:
        return False
    try:
        firsts: tuple[torch.Tensor | None, ...] = torch.autograd.grad(
            outputs, leaves, outputs, create_graph=True, allow_unused=True
        )
        deep = [gradient for gradient in firsts if gradient is not None and gradient.requires_grad]
        ones = [torch.ones_like(gradient) for gradient in deep]
        return bool(deep) and bool(torch.autograd.grad(deep, leaves, ones, retain_graph=True, allow_unused=True))
    except Exception:  # noqa: BLE001 - whatever the reference has against it
        return False
