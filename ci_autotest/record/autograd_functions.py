"""Tracing of a user's ``torch.autograd.Function``: the forward becomes steps, the backward becomes steps of hooks.

``apply`` turns gradients off and calls the class's ``forward`` with recorded values. So while a body runs, the forward
of each user class is replaced by a function that

* runs the user's forward on the recorded values; its steps have no gradients, as in plain torch;
* connects the result with the graph of the inputs without changing a bit of it: ``where(False, input.sum(), result)``;
* registers the user's backward as a hook on the result, and on a view of each input a hook that returns the gradient
  which the backward gave for that input.

So a program names no user code. It runs on any backend that supports hooks, and is saved, printed and
localized like any other (``docs/decisions/user-functions-are-traced.md``). If the backward returns ``None`` for an
input, the input gets a gradient of zeros. A forward that calls a kernel outside of torch's operators cannot be traced.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import torch

from ci_autotest.errors import AuthorError
from ci_autotest.record.values import RecordedTensor, has_gradient

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_Function: Final = torch.autograd.Function
_PATCHED: Final = ("forward", "setup_context")
_plain_setup: Final[Any] = _Function.setup_context


class FunctionTracer:
    """Patches of the user's autograd functions, applied while a body runs. A test makes them once."""

    def __init__(self) -> None:
        # All classes are read before any is patched, because one may inherit from another.
        self._traced = [(one, _Tracing(one), _own(one)) for one in _user_functions()]

    def call(self, body: Callable[[], object]) -> object:
        """Call a body with the user's functions patched; return its result."""
        if not self._traced:
            return body()
        for one, tracing, _ in self._traced:
            tracing.setup_context.take()
            one.forward, one.setup_context = tracing.forward, tracing.setup_context
        try:
            return body()
        finally:
            for one, _, own in self._traced:
                for name in _PATCHED:
                    if name in own:
                        setattr(one, name, own[name])
                    else:
                        # A class that only inherited the function must not keep a copy of its own.
                        delattr(one, name)


def _user_functions() -> list[Any]:
    found: list[type] = []
    wanted = list(_Function.__subclasses__())
    while wanted:
        one = wanted.pop()
        wanted += one.__subclasses__()
        if not one.__module__.startswith("torch."):
            found.append(one)
    return found


def _own(function: type) -> dict[str, Any]:
    return {name: vars(function)[name] for name in _PATCHED if name in vars(function)}


def is_traced(function: type) -> bool:
    """Return true if a class is patched at the moment."""
    return isinstance(vars(function).get("setup_context"), _Setup)


class _Setup:
    """Replacement of ``setup_context``: ``apply`` looks it up before it turns gradients off, so it sees that mode."""

    def __init__(self, original: Any) -> None:
        self.original = original
        self.is_defined = original is not _plain_setup
        self._with_grad = False

    def __get__(self, instance: object, owner: type) -> Any:
        self._with_grad = self._with_grad or torch.is_grad_enabled()
        return self._unless_recorded if self.is_defined else _plain_setup

    def take(self) -> bool:
        """Return whether gradients were on when ``apply`` was called, and reset."""
        with_grad, self._with_grad = self._with_grad, False
        return with_grad

    def _unless_recorded(self, ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        if not _any_recorded(inputs):
            self.original(ctx, inputs, output)


class _Tracing:
    """Replacement of the forward of one class."""

    def __init__(self, function: Any) -> None:
        self._name = function.__name__
        self._forward: Callable[..., Any] = function.forward
        self._backward: Callable[..., Any] = function.backward
        self.setup_context = _Setup(function.setup_context)
        self.forward = staticmethod(self._called)

    def _called(self, *args: Any, **kwargs: Any) -> Any:
        """Handle a call of ``forward``, by ``apply`` or directly by another forward."""
        if args and isinstance(args[0], _Context):
            return self._forward(*args, **kwargs)
        with_grad = self.setup_context.take()
        inputs = args if self.setup_context.is_defined else args[1:]
        if not _any_recorded(inputs):
            return self._forward(*args, **kwargs)
        ctx = _Context(tuple(has_gradient(item) for item in inputs))
        if self.setup_context.is_defined:
            result = self._forward(*inputs, **kwargs)
            self.setup_context.original(ctx, inputs, result)
        else:
            result = self._forward(ctx, *inputs, **kwargs)
        if not (with_grad and any(ctx.needs_input_grad)):
            return _no_input(result, inputs)
        if not isinstance(result, RecordedTensor):
            message = (
                f"{self._name}.forward returns a {type(result).__name__}, but only a torch.autograd.Function that "
                "returns one recorded tensor can be recorded. Split it, or make it a candidate: `backend: substitute`."
            )
            raise AuthorError(message)
        if ctx.is_plain(result) or not _is_differentiable(result):
            return _no_input(result, inputs)
        with torch.enable_grad():
            return self._connected(ctx, inputs, result)

    def _connected(self, ctx: _Context, inputs: tuple[Any, ...], result: RecordedTensor) -> RecordedTensor:
        """Return the result connected with the graph of the inputs, with the user's backward in between."""
        recorder = result._recorder
        never = recorder.capture(torch.zeros((), dtype=torch.bool))
        views = {i: item.view_as(item) for i, item in enumerate(inputs) if ctx.needs_input_grad[i]}
        # A forward may return an input unchanged; the graph of that input must not reach the result.
        value: Any = result.detach() if result._tensor.requires_grad else result
        for view in views.values():
            value = recorder.call_plain(torch.where, (never, _summed(view, result._tensor.dtype), value), {})
        gradients: list[Any] = []
        value.register_hook(lambda gradient: self._run_backward(ctx, gradient, len(inputs), gradients))
        for i, view in views.items():
            view.register_hook(lambda _, i=i: gradients[i])
        connected: RecordedTensor = value
        return connected

    def _run_backward(self, ctx: _Context, gradient: RecordedTensor, count: int, gradients: list[Any]) -> None:
        found = self._backward(ctx, gradient)
        gradients[:] = found if isinstance(found, tuple) else (found,)
        if len(gradients) != count:
            message = (
                f"{self._name}.backward returns {len(gradients)} gradients for {count} inputs. Return one for each."
            )
            raise AuthorError(message)


class _Context:
    """The ``ctx`` argument of one call."""

    def __init__(self, needs_input_grad: tuple[bool, ...]) -> None:
        self.needs_input_grad = needs_input_grad
        self.saved_tensors: tuple[object, ...] = ()
        self._plain: tuple[object, ...] = ()

    def save_for_backward(self, *tensors: object) -> None:
        """Keep tensors for the backward pass."""
        self.saved_tensors = tensors

    def save_for_forward(self, *_: object) -> None:
        """Do nothing, because forward-mode differentiation is not recorded."""

    def set_materialize_grads(self, value: bool) -> None:  # noqa: FBT001 - torch's
        """Do nothing: there is one result, and it has a gradient whenever the backward runs."""

    def mark_non_differentiable(self, *tensors: object) -> None:
        """Exclude results from the graph."""
        self._plain = tensors

    def mark_dirty(self, *_: object) -> None:
        """Refuse a function that writes to its input.

        Raises:
            AuthorError: Always, because the result and its input would be the same node of the graph.
        """
        message = "a Function that writes to its input (ctx.mark_dirty) cannot be recorded. Return a new tensor."
        raise AuthorError(message)

    def is_plain(self, result: RecordedTensor) -> bool:
        """Return true if a result was marked as not differentiable."""
        return any(item is result for item in self._plain)


def _no_input(result: Any, inputs: tuple[Any, ...]) -> Any:
    """Return a result as a new object if it is an input, because ``apply`` would make a view of it, which is a step."""
    is_input = isinstance(result, RecordedTensor) and any(result is item for item in inputs)
    return RecordedTensor(result._tensor, result._ref, result._recorder) if is_input else result


def _any_recorded(values: Iterable[object]) -> bool:
    return any(isinstance(value, RecordedTensor) for value in values)


def _summed(view: Any, dtype: torch.dtype) -> Any:
    """Return the sum of a view in a dtype. Any other scalar that depends on the view would do as well."""
    if view._tensor.is_complex() and not dtype.is_complex:
        view = torch.view_as_real(view)
    total = view.sum()
    return total if total._tensor.dtype is dtype else total.to(dtype)


def _is_differentiable(value: RecordedTensor) -> bool:
    return value._tensor.is_floating_point() or value._tensor.is_complex()
