"""The mode that observes the operator calls of a program, at the level at which people write them.

The rules of this module: the program computes what it would compute without the mode, and a call that was seen before
costs a few microseconds. So elements are looked at in few calls only. Memory is bounded, whatever the program calls.
"""

from __future__ import annotations

import sys
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import torch
from msgspec.structs import replace
from torch.overrides import TorchFunctionMode

from ci_autotest.backends.nest import holds_tensor
from ci_autotest.backends.torch_constants import DTYPE_NAMES
from ci_autotest.call_capture.arguments import (
    UnsupportedArgumentError,
    argument,
    call_key,
    elements_of,
    seen_again,
    spec_of,
    stored_bytes,
)
from ci_autotest.call_capture.callees import (
    callee_of,
    defaults_of,
    given_keywords,
    is_overwriting,
    keyword_of,
    sparse_layout,
)
from ci_autotest.call_capture.layouts import base_size, elements_shape
from ci_autotest.call_capture.observation import Capture, Elements, Observed, ObservedCall, ObservedTensor, Omission
from ci_autotest.call_capture.optimizer_steps import OptimizerSteps
from ci_autotest.program.ir import NO_GRAD, autocast_mode
from ci_autotest.program.json_values import plain_argument, plain_spec

if TYPE_CHECKING:
    from collections.abc import Callable

    from ci_autotest.call_capture.callees import Callee
    from ci_autotest.call_capture.journal import Journal, TensorSpool
    from ci_autotest.program.ir import TensorSpec

#: Different calls of one operator, and of all operators, that are kept.
_OF_ONE: Final = 128
_OF_ALL: Final = 4096
#: Rows of floats of one call that are kept.
_FLOATS: Final = 4
#: Elements are looked at when there are twice as many calls, and from ``_EARLY`` calls on ``_LATER`` times as many.
_EARLY: Final = 16
_LATER: Final = 8
#: Different reasons that are kept.
_REASONS: Final = 256
_TORCH: Final = str(Path(torch.__file__).parent)
_HERE: Final = str(Path(__file__).parent)
is_grad_enabled: Final = torch.is_grad_enabled
is_any_autocast_enabled: Final = torch._C._is_any_autocast_enabled  # noqa: SLF001 - torch has no public name for it
#: Kinds of device whose autocast every supported torch can be asked for.
_AUTOCAST_KINDS: Final = ("cpu", "cuda", "xpu")
_OWN_FUNCTION: Final = "it is an autograd function of the program's; the operators that it calls are captured"
#: Elements that are never read.
_ANY: Final = Elements(0.0, 1.0)


class CallMode(TorchFunctionMode):
    """Observe every call of an operator while the mode is active.

    Args:
        journal: Where new calls are written down at once, so that they outlast a crash.
        spool: Where the elements of first calls are stored; by default they are not.
    """

    def __init__(self, journal: Journal | None = None, spool: TensorSpool | None = None) -> None:
        super().__init__()
        self._journal = journal
        self._spool = spool
        self._callees: dict[Any, Callee] = {}
        self._ignored: set[Any] = set()
        self._observed: dict[Any, Observed] = {}
        self._omitted: Counter[tuple[str, str]] = Counter()
        self._optimizers = OptimizerSteps(self, self._observed, self._omitted)
        self._start = Path.cwd()

    def __torch_function__(
        self, func: Callable[..., Any], types: object, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Execute a call and observe it."""
        if func in self._ignored:
            return func(*args, **kwargs) if kwargs else func(*args)
        # Gradients and autocast change what an operator does.
        head: list[Any] = [func, is_grad_enabled(), is_any_autocast_enabled() and _autocast()]
        try:
            key, floats = call_key(head, args, kwargs)
        except RuntimeError:  # a sparse tensor has no strides
            key, floats = (func, "no strides"), []
        found = self._observed.get(key)
        if found is None:
            return self._first(func, key, floats, args, kwargs or {})
        count = found.count = found.count + 1
        if floats and len(found.floats) < _FLOATS and floats not in found.floats:
            found.floats.append(floats)
        if count == found.next_look and found.call is not None:
            found.next_look *= 2 if count < _EARLY else _LATER
            self._look_again(found, args, kwargs or {})
        return func(*args, **kwargs) if kwargs else func(*args)

    def __enter__(self) -> CallMode:  # noqa: PYI034 - Python 3.10 has no Self
        """Begin; calls of the program's own autograd functions are counted too."""
        apply = self._apply = torch.autograd.Function.__dict__["apply"]
        omit = self._omit

        def counted(function: Any, *args: Any, **kwargs: Any) -> Any:
            if not function.__module__.startswith("torch."):
                omit(f"{function.__module__}.{function.__qualname__}", _OWN_FUNCTION)
            return apply.__get__(None, function)(*args, **kwargs)

        torch.autograd.Function.apply = classmethod(counted)  # type: ignore[method-assign, assignment]
        self._optimizers.begin()
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, *error: object) -> None:
        """End."""
        torch.autograd.Function.apply = self._apply  # type: ignore[method-assign]
        self._optimizers.end()
        super().__exit__(*error)  # type: ignore[no-untyped-call]

    def capture(self, *, is_complete: bool = True) -> Capture:
        """Return what was captured so far."""
        omitted = Counter(self._omitted)
        calls = []
        for found in self._observed.values():
            if found.call is None:
                omitted[found.omission] += found.count + found.unobserved
                continue
            call = found.call
            tensors = [replace(one, elements=seen) for one, seen in zip(call.tensors, found.elements, strict=True)]
            calls.append(
                ObservedCall(
                    number=call.number, op=call.op, target=call.target, args=call.args, kwargs=call.kwargs,
                    modes=call.modes, tensors=tensors, place=call.place,
                    count=found.count + found.unobserved, floats=tuple([*map(repr, row)] for row in found.floats),
                )
            )  # fmt: skip
        omissions = tuple(Omission(*what, count) for what, count in omitted.most_common())
        return Capture(tuple(calls), omissions, str(torch.__version__).partition("+")[0], is_complete)

    def _first(
        self, func: Callable[..., Any], key: tuple[Any, ...], floats: list[float], args: Any, kwargs: Any
    ) -> Any:
        """Execute a call that is new, and keep it if it is an operator's that returned."""
        callee = self._callees.get(func) or callee_of(func)
        if callee is None:
            self._ignored.add(func)
            return func(*args, **kwargs)
        self._callees[func] = callee
        if callee.kept >= _OF_ONE or len(self._observed) >= _OF_ALL:
            result = func(*args, **kwargs)
            if callee.is_operator or holds_tensor(result):
                self._omit(callee.name, f"more than {min(_OF_ONE, callee.kept)} different calls")
            return result
        found = self._observe(callee, args, given_keywords(kwargs, defaults_of(func)))
        # Written down before the call, because the call may be what crashes the process.
        if self._journal is not None and found.call is not None:
            self._journal.add(found.call)
        try:
            result = func(*args, **kwargs)
        except BaseException:
            self._withdraw(found)
            raise
        callee.is_operator = callee.is_operator or holds_tensor(result)
        if not callee.is_operator:
            self._ignored.add(func)
            self._withdraw(found)
            return result
        layout = sparse_layout(result)
        if layout and found.call is not None:
            self._withdraw(found)
            found = Observed(None, [], (callee.name, f"a result with layout {layout}"))
        found.floats = [floats] if floats else []
        self._observed[key] = found
        callee.kept += 1
        return result

    def _observe(self, callee: Callee, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Observed:
        if callee.reason:
            return Observed(None, [], (callee.name, callee.reason))
        elsewhere = [kind for kind, _ in _autocast() if kind != "cpu"]
        if elsewhere:
            return Observed(None, [], (callee.name, f"a call under autocast for {elsewhere[0]}, not for cpu"))
        tensors: list[torch.Tensor] = []
        with_grad = torch.is_grad_enabled()
        try:
            given = [plain_argument(argument(value, tensors, keyword_of(callee, value))) for value in args]
            named = [(name, plain_argument(argument(value, tensors, name))) for name, value in kwargs.items()]
            elements = [*map(elements_of, tensors)]
            if is_overwriting(callee) and tensors:
                elements[0] = _ANY
            out = kwargs.get("out")
            seen = [
                self._seen(
                    tensor, spec_of(tensor, with_grad=with_grad), one, is_read=one is not _ANY and tensor is not out
                )
                for tensor, one in zip(tensors, elements, strict=True)
            ]
        except UnsupportedArgumentError as error:
            return Observed(None, [], (callee.name, str(error)))
        except Exception as error:  # noqa: BLE001 - reading a tensor runs foreign code, and the program must go on
            return Observed(None, [], (callee.name, f"an argument or tensor cannot be read ({type(error).__name__})"))
        call = ObservedCall(
            number=len(self._observed),
            op=callee.op,
            target=callee.target,
            args=given[::-1] if callee.is_reflected else given,
            kwargs=named,
            modes=_modes(with_grad=with_grad),
            tensors=seen,
            place=self._place(),
        )
        return Observed(call, elements, ("", ""))

    def _seen(self, tensor: torch.Tensor, spec: TensorSpec, elements: Elements, *, is_read: bool) -> ObservedTensor:
        """Return what is kept of a tensor of a first call; its elements are stored if the call reads them."""
        spool = self._spool
        if spool is None or not is_read:
            return ObservedTensor(plain_spec(spec), elements)
        place = None
        if spool.has_room_for(base_size(spec) * tensor.itemsize):
            place = spool.add(stored_bytes(tensor, elements_shape(spec)))
        return ObservedTensor(plain_spec(spec), elements, () if place is None else (place,), place is None)

    def _look_again(self, found: Observed, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        tensors: list[torch.Tensor] = []
        # What was read once can be read again, but for tensors inside of a transform of torch.func.
        with suppress(UnsupportedArgumentError, RuntimeError):
            for value in (*args, *kwargs.values()):
                argument(value, tensors)
            found.elements = [
                seen if seen is _ANY else seen_again(seen, tensor)
                for seen, tensor in zip(found.elements, tensors, strict=True)
            ]

    def _withdraw(self, found: Observed) -> None:
        if found.call is None:
            return
        if self._journal is not None:
            self._journal.withdraw(found.call.number)
        places = [place for tensor in found.call.tensors for place in tensor.data]
        if self._spool is not None and places:
            self._spool.rewind(places[0])

    def _omit(self, name: str, reason: str) -> None:
        if (name, reason) not in self._omitted and len(self._omitted) >= _REASONS:
            name, reason = "others", "more names than are kept"
        self._omitted[name, reason] += 1

    def _place(self) -> str:
        """Return file and line of the innermost frame that is neither torch's nor ours."""
        frame = sys._getframe(1)  # noqa: SLF001 - the documented way to the caller
        while frame.f_back is not None and frame.f_code.co_filename.startswith((_TORCH, _HERE)):
            frame = frame.f_back
        file = Path(frame.f_code.co_filename)
        if file.is_relative_to(self._start):
            file = file.relative_to(self._start)
        elif "site-packages" in file.parts:
            file = Path(*file.parts[file.parts.index("site-packages") + 1 :])
        return f"{file.as_posix()}:{frame.f_lineno}"


def _autocast() -> tuple[tuple[str, torch.dtype | None], ...]:
    """Return the kinds of device for which autocast is on, each with the dtype to which it casts."""
    on = [(kind, torch.get_autocast_dtype(kind)) for kind in _AUTOCAST_KINDS if torch.is_autocast_enabled(kind)]
    return tuple(on) if on or not is_any_autocast_enabled() else (("another device", None),)


def _modes(*, with_grad: bool) -> list[str]:
    """Return the modes in force, as a step has them."""
    modes = [] if with_grad else list(NO_GRAD)
    if torch.is_autocast_enabled("cpu"):
        modes.append(autocast_mode(DTYPE_NAMES[torch.get_autocast_dtype("cpu")]))
    return modes
