"""Plain tensors that represent recorded values: calls of plain torch with them are both recorded and executed.

A body that trains a plain ``torch.nn`` module holds its parameters and gradients as plain tensors. Operations on them,
for example an update by hand, ``clip_grad_norm_`` or a moving average, involve no recorded value. So after the
first backward pass, or the first recorded step that writes to a plain tensor, every call of torch is intercepted. If an
argument is a tensor that represents a recorded value, the call is recorded with that value. The plain call is executed
too, so that identity, views and plain Python code behave as in torch; its result represents the recorded result.
"""

from __future__ import annotations

from contextlib import contextmanager, suppress
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

import torch
from torch.overrides import TorchFunctionMode

from ci_autotest.backends.operators.identity import public_name
from ci_autotest.backends.sameness import is_same
from ci_autotest.errors import AuthorError
from ci_autotest.program.roles import VIEW_ATTRIBUTES
from ci_autotest.program.written_values import is_in_place
from ci_autotest.record.values import RecordedTensor
from ci_autotest.record.write_guard import unrecorded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from ci_autotest.record.recorder import Recorder

_FOREACH: Final = "_foreach_"
#: Counterparts for a single tensor of ``_foreach_`` functions, if they have another name.
_OF_ONE: Final = {"norm": torch.linalg.vector_norm}
#: Attributes that return a tensor; reading one is recorded as a step.
_VIEWS: Final = VIEW_ATTRIBUTES | {"data"}
#: Functions that turn elements into Python values, on which the body may branch.
_READING: Final = frozenset({"item", "tolist", "numpy", "__float__", "__int__", "__bool__", "__complex__", "__index__"})
#: Backward passes, which run on the recorded values only; the plain tensors get their gradients afterwards.
_BACKWARD: Final = frozenset({"torch.Tensor.backward", "torch.autograd.backward"})


class PlainTensors(TorchFunctionMode):
    """Mode that records calls of plain torch with tensors that represent recorded values.

    Args:
        recorder: The recorder of the attempt.
    """

    def __init__(self, recorder: Recorder) -> None:
        super().__init__()
        self._recorder = recorder
        self._is_paused = False

    def __torch_function__(
        self, func: Callable[..., Any], types: object, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Execute a call; record it if an argument represents a recorded value and none is one itself."""
        kwargs = kwargs or {}
        given = list(_tensors((*args, *kwargs.values())))
        own_name = getattr(func, "__name__", "")
        if not self._concerns(own_name, given):
            return func(*args, **kwargs)
        if own_name.startswith(_FOREACH):
            return self._each(func, own_name.removeprefix(_FOREACH), args, kwargs)
        name = public_name(func) or ""
        if name.endswith(".__set__") or (name.endswith(".__get__") and name.split(".")[-2] not in _VIEWS):
            return func(*args, **kwargs)
        return self._both(func, name, (args, kwargs), given)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Record nothing while the reference runs a step, because its modules have plain tensors as parameters."""
        was, self._is_paused = self._is_paused, True
        try:
            yield
        finally:
            self._is_paused = was

    def _concerns(self, name: str, given: list[Any]) -> bool:
        """Return true to record a call. A call with a recorded value among its arguments records itself.

        A parameter that is seen for the first time is recorded too, because it may be a copy that averages others. It
        is not recorded if the call writes to it, because then it is just being initialized.
        """
        if self._is_paused or any(isinstance(one, RecordedTensor) for one in given):
            return False
        return any(id(one) in self._recorder.outside.captured for one in given) or (
            not is_in_place(name) and any(isinstance(one, torch.nn.Parameter) for one in given)
        )

    def _both(self, func: Callable[..., Any], name: str, how: tuple[Any, Any], given: list[Any]) -> Any:
        """Execute a call and record it; if it cannot be recorded, the write guard notices its writes later."""
        args, kwargs = how
        last = name.rpartition(".")[2]
        if name in _BACKWARD:
            return _record(self._recorder, func, last, args, kwargs)
        if is_in_place(last) or "out" in kwargs:
            return self._written(func, last, how, given)
        found = func(*args, **kwargs)
        if last in _READING or any(True for _ in _tensors([found])):
            with suppress(AuthorError):
                for one, value in _pairs(found, _record(self._recorder, func, last, args, kwargs)):
                    represent(self._recorder, one, value)
        return found

    def _written(self, func: Callable[..., Any], last: str, how: tuple[Any, Any], given: list[Any]) -> Any:
        """Record a call that writes to tensors, before executing it, so that new inputs get the elements before it."""
        args, kwargs = how
        recorder = self._recorder
        try:
            recorded = _record(recorder, func, last, args, kwargs)
        except AuthorError:
            return func(*args, **kwargs)
        before = [(one, one._version, one.detach().clone()) for one in given]
        found = func(*args, **kwargs)
        written = [one for one, version, _ in before if one._version != version]
        for one, version, elements in before:
            if one._version != version:
                recorder.outside.given_data.setdefault(id(one), (one, elements))
        _refresh(recorder, written)
        for one, value in _pairs(found, recorded):
            represent(recorder, one, value)
        return found

    def _each(self, func: Callable[..., Any], name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Execute a ``_foreach_`` call as one call for each element of its lists."""
        one = _OF_ONE.get(name) or getattr(torch.Tensor, name, None)
        if one is None:
            return func(*args, **kwargs)
        with self:
            return [
                one(*(arg[i] if isinstance(arg, list | tuple) else arg for arg in args), **kwargs)
                for i in range(len(args[0]))
            ]


def watch(recorder: Recorder) -> None:
    """Intercept calls of plain torch until the body ends, unless another mode is active."""
    if recorder.outside.plain_tensors is None and torch._C._len_torch_function_stack() == 0:
        recorder.outside.plain_tensors = PlainTensors(recorder)
        recorder.outside.plain_tensors.__enter__()  # type: ignore[no-untyped-call]


def stop_watching(recorder: Recorder) -> None:
    """Stop intercepting calls of plain torch."""
    mode, recorder.outside.plain_tensors = recorder.outside.plain_tensors, None
    if mode is not None:
        mode.__exit__(None, None, None)  # type: ignore[no-untyped-call]


def copy_written(recorder: Recorder, tensors: Iterable[object]) -> None:
    """Copy in-place results of a recorded step to the plain tensors that represent the written values."""
    for tensor in tensors:
        held = recorder.outside.captured.get(id(tensor))
        if held is None or not isinstance(tensor, torch.Tensor):
            continue
        if not _holds(tensor, held[1]):
            copy_data(recorder, tensor)
            watch(recorder)


def _holds(tensor: torch.Tensor, value: RecordedTensor) -> bool:
    """Return true if a tensor has its value's elements; writes to running statistics do not change its version."""
    with unrecorded():
        return is_same(tensor, value._tensor)


def copy_data(recorder: Recorder, tensor: torch.Tensor) -> None:
    """Copy the elements of the recorded value that a plain tensor represents to that tensor."""
    held = recorder.outside.captured.get(id(tensor))
    if held is None:
        return
    with unrecorded():
        recorder.outside.given_data.setdefault(id(tensor), (tensor, tensor.detach().clone()))
        tensor.data.copy_(held[1]._tensor.detach())
    _refresh(recorder, [tensor])


def represent(recorder: Recorder, tensor: torch.Tensor, value: RecordedTensor) -> None:
    """Let a plain tensor represent a recorded value; copy the elements, because a random operator gives others."""
    with unrecorded():
        now = value._tensor.detach()
        if tensor.shape == now.shape and not is_same(tensor, now):
            tensor.data.copy_(now)
        recorder.outside.captured[id(tensor)] = tensor, value, tensor._version
        recorder.outside.given[id(tensor)] = now.clone()


def _refresh(recorder: Recorder, written: list[torch.Tensor]) -> None:
    """Update the known elements of all tensors that share memory with one that was written to."""
    with unrecorded():
        memory = {one.untyped_storage().data_ptr() for one in written}
        for key, (tensor, value, _) in list(recorder.outside.captured.items()):
            if tensor.untyped_storage().data_ptr() in memory:
                recorder.outside.captured[key] = tensor, value, tensor._version
                recorder.outside.given[key] = tensor.detach().clone()


def _record(
    recorder: Recorder, func: Callable[..., Any], last: str, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Record a call with recorded values in place of plain tensors; tensors without a recorded value become inputs."""

    def one(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return recorder.capture(value)
        return type(value)(map(one, value)) if type(value) in {list, tuple} else value

    values, named = tuple(map(one, args)), {key: one(value) for key, value in kwargs.items()}
    if last.startswith("__") and last != "__get__" and isinstance(values[0], RecordedTensor):
        return getattr(values[0], last)(*values[1:])
    return recorder.call_plain(func, values, named)


def _tensors(values: Iterable[Any]) -> Iterator[Any]:
    """Yield the tensors and recorded values among arguments, including those in lists."""
    for value in values:
        if isinstance(value, torch.Tensor | RecordedTensor):
            yield value
        elif isinstance(value, list | tuple):
            yield from _tensors(value)


def _pairs(found: Any, recorded: Any) -> Iterator[tuple[torch.Tensor, RecordedTensor]]:
    """Yield each tensor of a result with the recorded value that it represents."""
    if isinstance(found, torch.Tensor) and isinstance(recorded, RecordedTensor):
        yield found, recorded
    elif isinstance(found, list | tuple) and isinstance(recorded, list | tuple):
        yield from chain.from_iterable(map(_pairs, found, recorded))
