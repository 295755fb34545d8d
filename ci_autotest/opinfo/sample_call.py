"""Calls of an entry with a sample, recorded: its tensors become inputs, and everything else is recorded as usual."""

from __future__ import annotations

import unittest
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch.overrides import TorchFunctionMode

from ci_autotest.backends.input_copies import contiguous_spec, source_of
from ci_autotest.backends.nest import leaves
from ci_autotest.backends.operators.identity import public_name
from ci_autotest.backends.torch_constants import DTYPE_NAMES
from ci_autotest.errors import AuthorError
from ci_autotest.opinfo.names import CONJUGATE, ERROR, IN_PLACE, NON_CONTIGUOUS, ORDINARY, OUT
from ci_autotest.program.ir import OWN_DEVICE, Device, TensorSpec
from ci_autotest.record.function import Function
from ci_autotest.record.modules import RecordedModule
from ci_autotest.record.values import RecordedTensor
from ci_autotest.values.dtypes import DTYPES

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ci_autotest.opinfo.database import OpInfoEntry, OpInfoSample
    from ci_autotest.record.recorder import Recorder


def record_sample(recorder: Recorder, entry: OpInfoEntry, sample: OpInfoSample, variant: str) -> Any:
    """Record the call of an entry with a sample, and return its result.

    Raises:
        SkipTest: The sample has something that no program can hold, or the variant does not apply to it.
    """
    inputs = Inputs(recorder, variant)
    args, kwargs = inputs.of(sample.args), inputs.of(sample.kwargs)
    recorder.drawer.profile, recorder.notes.profile_applied = variant if inputs.is_varied else ORDINARY, True
    call = entry.call if sample.constructor is None else _module(recorder, entry, sample, inputs)
    if variant == ERROR:
        return _refused(recorder, sample, lambda: _call(recorder, call, args, kwargs))
    if variant == IN_PLACE and entry.in_place is not None:
        return _in_place(recorder, entry.in_place, args, kwargs)
    if variant == OUT:
        kwargs["out"] = inputs.of(_targets(entry, sample))
    return _call(recorder, call, args, kwargs)


def _module(recorder: Recorder, entry: OpInfoEntry, sample: OpInfoSample, inputs: Inputs) -> Any:
    """Construct a recorded module for a sample, in the dtype of its inputs and in its mode."""
    assert sample.constructor is not None  # noqa: S101 - the caller has checked it
    args, kwargs = inputs.of(sample.constructor)
    made = recorder.call_function(Function(entry.name, entry.call), args, kwargs)
    given = [*sample.args, *sample.kwargs.values()]
    floating = [one.dtype for one in given if isinstance(one, torch.Tensor) and one.is_floating_point()]
    if floating and floating[0] != torch.get_default_dtype():
        made = made.to(floating[0])
    return made if sample.is_training else made.eval()


class Inputs:
    """The inputs of one case: each tensor of the sample becomes one, also if it is passed twice."""

    def __init__(self, recorder: Recorder, variant: str) -> None:
        self.recorder, self._variant = recorder, variant
        #: Whether the variant shows: some change an input, and not every sample has one that it can change.
        self.is_varied = variant not in {NON_CONTIGUOUS, CONJUGATE}
        self._known: dict[int, Any] = {}

    def of(self, value: Any) -> Any:
        """Return an argument with recorded values in place of tensors."""
        if isinstance(value, torch.Tensor):
            if id(value) not in self._known:
                self._known[id(value)] = self._input(value)
            return self._known[id(value)]
        if type(value) in {list, tuple}:
            return type(value)(map(self.of, value))
        if type(value) is dict:
            return {key: self.of(one) for key, one in value.items()}
        return value

    def _input(self, tensor: torch.Tensor) -> Any:
        dtype = DTYPE_NAMES[tensor.dtype]
        if tensor.layout != torch.strided or tensor.is_nested or tensor.is_quantized or tensor.device.type != "cpu":
            return self.unusual(tensor)
        if dtype not in DTYPES:
            skip(f"it has a tensor of {dtype}, which no program can hold")
        plain = tensor.detach().resolve_conj().resolve_neg()
        # A variant with `out=` has no backward pass.
        requires_grad = tensor.requires_grad and self._variant != OUT
        if self._variant == NON_CONTIGUOUS and tensor.is_contiguous() and tensor.numel() > 1:
            self.is_varied = True
            return self.recorder.tensor(*_spread(plain, requires_grad=requires_grad))
        if self._variant == CONJUGATE and tensor.is_complex():
            self.is_varied = True
            value = self.recorder.tensor(*source_of(plain.conj(), requires_grad=requires_grad))
            return value.conj()
        return self.recorder.tensor(*source_of(plain, requires_grad=requires_grad))

    def unusual(self, tensor: torch.Tensor) -> Any:
        """Skip the case of a tensor that no program can hold."""
        return skip(f"it has a tensor that is {tensor.layout}, which no program can hold")


def _spread(tensor: torch.Tensor, *, requires_grad: bool) -> tuple[torch.Tensor, TensorSpec]:
    """Return a tensor's elements as every second one of a storage, from an offset; those between are its own too."""
    spec = replace(contiguous_spec(tensor), requires_grad=requires_grad).spread()
    flat = tensor.contiguous().reshape(-1)
    source = flat[-1:].repeat(spec.storage_size)
    source[spec.offset :: 2] = flat
    source[spec.offset + 1 :: 2] = flat.flip(0)
    return source, spec


class _Factories(TorchFunctionMode):
    """Record calls of torch without a recorded value: what a function of the database's own makes of numbers alone."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__()
        self._recorder = recorder

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if any(isinstance(one, torch.Tensor) for one in args) or public_name(func) is None:
            return func(*args, **(kwargs or {}))
        return _call(self._recorder, func, args, kwargs or {})


def _call(recorder: Recorder, call: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Record a call; return its tensors, because a body returns nothing else."""
    if isinstance(call, RecordedModule):
        return _tensors(call(*args, **kwargs))
    if public_name(call) is not None:
        # The device that the database gives is the one that a side runs on.
        placed = {name: Device(OWN_DEVICE) if _is_device(name, value) else value for name, value in kwargs.items()}
        name = getattr(call, "__name__", "")
        if args and isinstance(args[0], RecordedTensor) and name in vars(RecordedTensor):
            return _tensors(getattr(args[0], name)(*args[1:], **placed))
        return _tensors(recorder.call_plain(call, tuple(args), placed))
    if any(isinstance(one, RecordedTensor) for one in leaves([args, kwargs])):
        return _tensors(call(*args, **kwargs))
    with _Factories(recorder):
        return _tensors(call(*args, **kwargs))


def _tensors(found: Any) -> Any:
    if isinstance(found, tuple | list):
        return tuple(one for one in map(_tensors, found) if one is not None)
    if not isinstance(found, RecordedTensor):
        return None
    tensor = found._tensor  # noqa: SLF001 - a step for each question would be in the program
    if tensor.layout != torch.strided or DTYPE_NAMES[tensor.dtype] not in DTYPES:
        skip(f"its result is a tensor of {tensor.dtype} that is {tensor.layout}, which cannot be compared")
    return found


def _is_device(name: str, value: Any) -> bool:
    return name == "device" and value is not None and torch.device(value).type == "cpu"


def _in_place(recorder: Recorder, call: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Record an in-place variant on a copy of the first argument: a leaf that requires grad takes no write."""
    target = args[0].clone() if args[0]._tensor.requires_grad else args[0]  # noqa: SLF001
    return _call(recorder, call, [target, *args[1:]], kwargs)


def _targets(entry: OpInfoEntry, sample: OpInfoSample) -> Any:
    """Return tensors for ``out=``, of the result's form and with other elements."""
    with torch.no_grad():
        expected = entry.call(*sample.args, **sample.kwargs)
    if isinstance(expected, torch.Tensor):
        return torch.ones_like(expected, memory_format=torch.contiguous_format)
    if isinstance(expected, tuple | list) and all(isinstance(one, torch.Tensor) for one in expected):
        return tuple(torch.ones_like(one, memory_format=torch.contiguous_format) for one in expected)
    return skip("its result is no tensor")


def _refused(recorder: Recorder, sample: OpInfoSample, call: Callable[[], Any]) -> None:
    """Record a call that every side must refuse."""
    assert sample.error is not None  # noqa: S101 - samples of errors have one
    try:
        call()
    except AuthorError as error:
        skip(f"no program can hold the call: {error}")
    except sample.error as error:
        if recorder.refusal is None or recorder.refusal[1] is not error:
            skip("the call is refused before it reaches an operator")
        recorder.demand(error)
        return
    skip("the reference accepts it on this machine")


def skip(why: str) -> Any:
    """Skip the case."""
    raise unittest.SkipTest(why)
