"""The backend of a mutant: torch, in which the calls of one operator are wrong, and a mode that notes the calls."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import torch
from torch.overrides import TorchFunctionMode

from ci_autotest.backends.eager.backend import TorchBackend
from ci_autotest.backends.nest import tensors_in
from ci_autotest.backends.operators.user_operators import path_of
from ci_autotest.backends.substitute.backend import called_operator, overwritten_by
from ci_autotest.power.call import ModuleFunction, OperatorCall

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from contextlib import AbstractContextManager

    from typing_extensions import Self

    from ci_autotest.backends.trace import Trace
    from ci_autotest.program.ir import Program

#: Elements of all tensors of a call of which a copy is kept.
_ELEMENTS_AT_MOST: Final = 1 << 18


class OperatorCallMode(TorchFunctionMode):
    """Hand every call of an operator of torch or of the user to a method, and every call of a module of the user."""

    def __init__(self) -> None:
        super().__init__()
        #: How modules were called before, the latest last: a step of a hook enters the mode within a backward pass.
        self._before: list[Callable[..., Any]] = []

    def __enter__(self) -> Self:
        """Take over the calls of modules, too."""
        self._before.append(torch.nn.Module.__call__)
        call = self._before[0]

        def called(module: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
            kind = type(module)
            if kind.__module__.partition(".")[0] == "torch":
                return call(module, *args, **kwargs)  # The functions that it calls are the operators.
            own = OperatorCall(ModuleFunction(module, call), args, kwargs)
            return self.answer(path_of(kind), own, is_in_place=False)

        torch.nn.Module.__call__ = called  # type: ignore[method-assign]
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, *how: object) -> None:
        """Give them back."""
        super().__exit__(*how)  # type: ignore[no-untyped-call]
        torch.nn.Module.__call__ = self._before.pop()  # type: ignore[method-assign]

    def __torch_function__(
        self, func: Callable[..., Any], types: object, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Answer one call."""
        operator, is_in_place = called_operator(func)
        return self.answer(operator, OperatorCall(func, args, kwargs or {}), is_in_place=is_in_place)

    def answer(self, operator: str, call: OperatorCall, *, is_in_place: bool) -> Any:
        """Return the result of a call."""
        raise NotImplementedError


class Mutating(OperatorCallMode):
    """Answer the calls of one operator with a mistake.

    Args:
        operator: The operator.
        change: Runs a call with the mistake.
    """

    def __init__(self, operator: str, change: Callable[[OperatorCall], Any]) -> None:
        super().__init__()
        self.operator, self.change = operator, change

    def answer(self, operator: str, call: OperatorCall, *, is_in_place: bool) -> Any:
        """Return the result of a call."""
        if operator != self.operator:
            return call.run()
        return answered(self.change, call, is_in_place=is_in_place)


def answered(change: Callable[[OperatorCall], Any], call: OperatorCall, *, is_in_place: bool) -> Any:
    """Return the result of a call with a mistake, in the tensor to which an in-place call writes."""
    receiver = call.args[0] if call.args else None
    is_in_place |= bool(call.kwargs.get("inplace"))
    if not (is_in_place and isinstance(receiver, torch.Tensor)):
        return change(call)
    # A mistake in what is written is made beside the receiver, whose own version autograd must see.
    return overwritten_by(receiver, change(call.given(0, receiver.clone())))


class MutatedTorch(TorchBackend):
    """Torch with a mode around each call.

    Args:
        mode: The mode.
        device: As for ``TorchBackend``.
        in_backward: Whether the mode is also around the backward pass.
    """

    def __init__(self, mode: AbstractContextManager[object], device: str = "cpu", *, in_backward: bool = False) -> None:
        super().__init__(device)
        self._mode, self._in_backward = mode, in_backward

    def run(
        self,
        program: Program,
        sources: Mapping[str, Any],
        *,
        snapshots: bool = False,
        copied: Collection[int] = (),
        around: AbstractContextManager[object] | None = None,  # noqa: ARG002 - the mode is what is around
    ) -> Trace:
        """Run the steps forward in the mode."""
        trace = super().run(program, sources, snapshots=snapshots, copied=copied, around=self._mode)
        trace.around = self._mode
        return trace

    def backward(self, program: Program, trace: Trace, cotangents: Mapping[int, Any]) -> None:
        """Run the backward pass, in the mode if that concerns it."""
        if not self._in_backward:
            super().backward(program, trace, cotangents)
            return
        with self._mode:
            super().backward(program, trace, cotangents)


class Noted(NamedTuple):
    """A call that a case of a test makes.

    Attributes:
        call: The call, with copies of its tensors as they were.
        case: Number of the case.
        is_in_place: Whether the function writes to its first argument.
        is_grad_enabled: Whether it is made with gradients on.
        asks_gradient: Whether the case has a backward pass.
    """

    call: OperatorCall
    case: int
    is_in_place: bool
    is_grad_enabled: bool
    asks_gradient: bool


class Noting(OperatorCallMode):
    """Note the calls that return tensors.

    Args:
        case: Number of the case that runs.
        asks_gradient: Whether it has a backward pass.

    Attributes:
        calls: The calls by operator.
        unkept: Operators with a call that is too large to be kept.
    """

    def __init__(self, case: int, *, asks_gradient: bool) -> None:
        super().__init__()
        self._case, self._asks_gradient = case, asks_gradient
        self.calls: dict[str, list[Noted]] = {}
        self.unkept: set[str] = set()

    def answer(self, operator: str, call: OperatorCall, *, is_in_place: bool) -> Any:
        """Note one call, and return its result."""
        # Under autocast it is another call than its arguments say. Tests make the same ones without it.
        if not operator or torch.is_autocast_enabled("cpu"):
            return call.run()
        copied = self._copied(operator, call)
        before = _version(call)
        result = call.run()
        # A module does not say by its name what it writes to.
        self._note(operator, copied, result, is_in_place=is_in_place or _version(call) != before)
        return result

    def _copied(self, operator: str, call: OperatorCall) -> OperatorCall | None:
        """Return a call with copies of its tensors; ``None`` if they are too large."""
        given = tensors_in([*call.args, *call.kwargs.values()])
        if sum(tensor.numel() for tensor in given) > _ELEMENTS_AT_MOST:
            self.unkept.add(operator)
            return None
        kept = call.mapped(_copy)
        function = call.function
        return kept._replace(function=function.kept()) if isinstance(function, ModuleFunction) else kept

    def _note(self, operator: str, copied: OperatorCall | None, result: object, *, is_in_place: bool) -> None:
        if copied is not None and tensors_in(result):
            noted = Noted(copied, self._case, is_in_place, torch.is_grad_enabled(), self._asks_gradient)
            self.calls.setdefault(operator, []).append(noted)


def _version(call: OperatorCall) -> int:
    """Return how often its first argument has been written to."""
    receiver = next(iter(call.args), None)
    return receiver._version if isinstance(receiver, torch.Tensor) else 0  # noqa: SLF001 - documented for autograd


def _copy(tensor: torch.Tensor) -> torch.Tensor:
    # Strides are kept, because an operator may depend on them.
    return tensor.detach().clone().requires_grad_(tensor.requires_grad)
