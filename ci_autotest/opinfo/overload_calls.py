"""Calls of overloads of PyTorch's dispatcher, made of the calls that a sample of the database causes, and recorded.

A sample is called under two modes: one sees each overload that reaches a kernel, forward and backward, the other each
function of torch's, also those that are made of others. An overload is then called with the arguments of one of these
calls, its *donor*: itself, the sibling that it is the in-place or ``out=`` form of, or a function of the same name.

An input that a program cannot hold, because it is sparse, quantized or in oneDNN's layout, is recorded as a plain input
and the step that converts it; a result of that kind is converted back. What the call writes to is a result too.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import torch
from torch._ops import OpOverload
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from ci_autotest.backends.nest import leaves, mapped, tensors_in
from ci_autotest.backends.torch_constants import DTYPE_NAMES
from ci_autotest.opinfo.names import ORDINARY
from ci_autotest.opinfo.sample_call import Inputs, skip
from ci_autotest.program.ir import OWN_DEVICE, Device
from ci_autotest.record.function import Function
from ci_autotest.record.values import RecordedTensor
from ci_autotest.values.dtypes import DTYPES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from ci_autotest.opinfo.database import OpInfoEntry, OpInfoSample
    from ci_autotest.record.recorder import Recorder

#: Number of elements of a call's tensors up to which it is kept.
_ELEMENTS: Final = 1 << 14
#: The layout of oneDNN, which torch does not export by a public name.
MKLDNN: Final[torch.layout] = torch._mkldnn  # type: ignore[attr-defined]
_NUMBERS: Final = (bool, int, float, complex)
#: Types that a schema writes as a number.
_TORCHS: Final = (torch.dtype, torch.layout, torch.memory_format, torch.device)
_MISSING: Final = object()
_COMPRESSED: Final = {
    torch.sparse_csr: "to_sparse_csr", torch.sparse_csc: "to_sparse_csc",
    torch.sparse_bsr: "to_sparse_bsr", torch.sparse_bsc: "to_sparse_bsc",
}  # fmt: skip
_PLAIN: Final = (bool, int, float, complex, torch.dtype)


class OverloadCall(NamedTuple):
    """The arguments of a call, by position and by name."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]


class _Seen(Exception):  # noqa: N818 - it ends a sample early and is no error
    """The donor was called."""


class Observer:
    """The first call of each donor: ``aten.add.Tensor`` is an overload, ``add`` a function of torch's.

    Args:
        wanted: The donor that ends the observation; ``None`` to see all of them.
    """

    def __init__(self, wanted: str | None = None) -> None:
        self.calls: dict[str, OverloadCall] = {}
        self._wanted = wanted
        self._is_copying = False

    def see(self, donor: str, args: Sequence[Any], kwargs: Mapping[str, Any] | None) -> None:
        """Keep a copy of a call's arguments, because the call may write to them."""
        if self._is_copying or donor in self.calls or self._wanted not in {None, donor}:
            return
        self._is_copying = True  # What copies a tensor is no call of the sample.
        try:
            with torch._C.DisableTorchFunction(), torch.no_grad():
                self.calls[donor] = copied(OverloadCall(tuple(args), dict(kwargs or {})))
        finally:
            self._is_copying = False
        if self._wanted is not None:
            raise _Seen


class _Dispatched(TorchDispatchMode):  # type: ignore[no-untyped-call]
    def __init__(self, observer: Observer) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._observer = observer

    def __torch_dispatch__(
        self, func: OpOverload, types: object, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Show the observer what reaches a kernel."""
        self._observer.see(str(func), args, kwargs)
        return func(*args, **(kwargs or {}))


class _Called(TorchFunctionMode):
    def __init__(self, observer: Observer) -> None:
        super().__init__()
        self._observer = observer

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Show the observer which function of torch's is called."""
        name = getattr(func, "__name__", "")
        if name not in {"", "__get__", "__set__"} and not isinstance(func, OpOverload):
            self._observer.see(name, args, kwargs)
        return func(*args, **(kwargs or {}))


def observed(call: Callable[..., Any], sample: OpInfoSample, donor: str | None = None) -> dict[str, OverloadCall]:
    """Return the calls that a sample causes, forward and backward, by donor; of a given donor its first one alone."""
    observer = Observer(donor)
    args, kwargs = copied(OverloadCall(sample.args, sample.kwargs), with_grad=True)
    try:
        with torch.enable_grad(), warnings.catch_warnings(), _Called(observer), _Dispatched(observer):
            warnings.simplefilter("ignore")
            found = [
                one for one in tensors_in(call(*args, **kwargs)) if one.requires_grad and one.layout == torch.strided
            ]
            if found:
                torch.autograd.backward(found, [torch.randn_like(one) for one in found])
    except _Seen:
        pass
    except Exception:  # noqa: BLE001 - what was called before is what was asked for
        return observer.calls
    return observer.calls


def copied(call: OverloadCall, *, with_grad: bool = False) -> OverloadCall:
    """Return a call with copies of its tensors; a tensor that is passed twice is one copy."""
    known: dict[int, torch.Tensor] = {}

    def copy(tensor: torch.Tensor) -> torch.Tensor:
        if id(tensor) not in known:
            known[id(tensor)] = tensor.detach().clone().requires_grad_(with_grad and tensor.requires_grad)
        return known[id(tensor)]

    return OverloadCall(*mapped((call.args, call.kwargs), copy))


def call_of(entry: OpInfoEntry, sample: OpInfoSample, donor: str, overload: OpOverload) -> OverloadCall | None:
    """Return the call of an overload that a sample gives; ``None`` if the sample does not reach the donor."""
    given = observed(entry.call, sample, donor).get(donor)
    return adapted(overload, given, donor) if given is not None else None


def adapted(overload: OpOverload, given: OverloadCall, donor: str) -> OverloadCall | None:
    """Return the call of an overload with a donor's arguments; ``None`` if the reference refuses all of them.

    Arguments go by their places and, if the donor is an overload, by their names; the first call that the reference
    accepts is taken. Tensors for ``out=`` have the form of the result and other elements.
    """
    for args in _fits(overload, given, donor):
        if sum(one.numel() for one in tensors_in([args.args, args.kwargs])) > _ELEMENTS:
            continue
        try:
            with torch.no_grad(), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                call = OverloadCall(args.args, {**args.kwargs, **_targets(overload, args)})
                tried = copied(call)
                overload(*tried.args, **tried.kwargs)
        except Exception:  # noqa: BLE001, S112 - the arguments were another operator's
            continue
        return call
    return None


def _fits(overload: OpOverload, given: OverloadCall, donor: str) -> Iterator[OverloadCall]:
    parameters = [one for one in overload._schema.arguments if not one.is_out]
    named = {_SPELLED.get(name, name): value for name, value in given.kwargs.items()}
    places: list[list[Any]] = [[
        named.get(one.name, given.args[place] if place < len(given.args) else _MISSING)
        for place, one in enumerate(parameters)
    ]]  # fmt: skip
    if donor.startswith("aten.") and given.args is not None:
        names = [one.name for one in overload_of(donor)._schema.arguments]
        by_name = {**dict(zip(names, given.args, strict=False)), **named}
        places.insert(0, [by_name.get(one.name, _MISSING) for one in parameters])
    for values in places:
        call = _converted(parameters, values)
        if call is not None:
            yield call


#: Names of arguments in Python that are others in a schema.
_SPELLED: Final = {"input": "self", "axis": "dim", "keepdims": "keepdim"}


def overload_of(name: str) -> OpOverload:
    """Return an overload by its name, ``aten.add.Tensor``."""
    found: Any = torch.ops
    for part in name.split("."):
        found = getattr(found, part)
    assert isinstance(found, OpOverload)  # noqa: S101 - names come from the table, which a test compares with torch
    return found


def _converted(parameters: Sequence[Any], values: Sequence[Any]) -> OverloadCall | None:
    """Return the values as arguments of a schema; ``None`` if one of them cannot be."""
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    for parameter, value in zip(parameters, values, strict=True):
        kind = str(parameter.real_type)
        is_optional = kind.startswith("Optional[")
        found = _as(kind[len("Optional[") : -1] if is_optional else kind, value, parameter.N, is_optional=is_optional)
        if found is _MISSING:
            if not parameter.has_default_value():
                return None
        elif parameter.kwarg_only or len(args) < len(parameters[: parameters.index(parameter)]):
            kwargs[parameter.name] = found
        else:
            args.append(found)
    return OverloadCall(tuple(args), kwargs)


def _as(kind: str, value: Any, length: int | None, *, is_optional: bool) -> Any:
    """Return a value as an argument of a type of a schema, ``_MISSING`` if it cannot be one."""
    if kind == "Generator":
        return None  # A program has no generators, and None is the global one.
    if value is None:
        return None if is_optional else _MISSING
    if value is _MISSING:
        return _MISSING
    if kind.startswith("List["):
        inner = kind[len("List[") : -1]
        may_be_none = inner.startswith("Optional[")
        return _as_list(inner[len("Optional[") : -1] if may_be_none else inner, value, length, may_be_none=may_be_none)
    is_tensor = isinstance(value, torch.Tensor)
    if kind == "Tensor":
        return value if is_tensor else torch.tensor(value) if isinstance(value, _NUMBERS) else _MISSING
    if kind in {"number", "Scalar"}:
        first = value.reshape(-1)[0].item() if is_tensor and value.layout == torch.strided and value.numel() else value
        return first if isinstance(first, _NUMBERS) else _MISSING
    if isinstance(value, _TORCHS):
        return value
    if kind == "float":
        return float(value) if isinstance(value, int | float) else _MISSING
    wanted = {"int": int, "bool": bool, "str": str, "complex": complex, "SymInt": int}.get(kind)
    return value if wanted is not None and isinstance(value, wanted) else _MISSING


def _as_list(kind: str, value: Any, length: int | None, *, may_be_none: bool) -> Any:
    items = list(value) if isinstance(value, list | tuple) else [value] * (length or 1)
    found = [None if one is None and may_be_none else _as(kind, one, None, is_optional=False) for one in items]
    return _MISSING if any(one is _MISSING for one in found) else found


def _targets(overload: OpOverload, call: OverloadCall) -> dict[str, Any]:
    """Return tensors for the ``out=`` arguments of an overload."""
    names = [one for one in overload._schema.arguments if one.is_out]
    if not names:
        return {}
    tried, functional = copied(call), functional_of(overload)
    if functional is None:
        first = next(iter(tensors_in([call.args, call.kwargs])), None)
        return {one.name: torch.empty(0, dtype=first.dtype if first is not None else None) for one in names}
    found: Any = functional(*tried.args, **tried.kwargs)
    found = [found] if len(functional._schema.returns) == 1 else found
    return {one.name: _filled(value) for one, value in zip(names, found, strict=False)}


def _filled(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        if value.layout in {torch.sparse_coo, MKLDNN}:
            return value.clone().zero_()
        return torch.ones_like(value, memory_format=torch.contiguous_format)
    return [_filled(one) for one in value]


def functional_of(overload: OpOverload) -> OpOverload | None:
    """Return the overload that returns what another one writes to its ``out=`` arguments."""
    wanted = [(one.name, str(one.type)) for one in overload._schema.arguments if not one.is_out]
    name = overload._schema.name.removeprefix("aten::")
    for spelled in (name, name.removesuffix("_out"), f"{name}_functional", name.removesuffix("_forward")):
        packet = getattr(torch.ops.aten, spelled, None)
        for each in packet.overloads() if packet is not None else ():
            found: OpOverload = getattr(packet, each)
            own = {one.name: one for one in found._schema.arguments}
            is_called_so = all(name in own and str(own[name].type) == kind for name, kind in wanted)
            names = {name for name, _ in wanted}
            is_whole = all(name in names or one.has_default_value() for name, one in own.items())
            if is_called_so and is_whole and not found._schema.is_mutable:
                return found
    return None


def record_overload(recorder: Recorder, overload: OpOverload, sample: OpInfoSample) -> Any:
    """Record the call of an overload, and return its results and the arguments that it writes to.

    Raises:
        SkipTest: The sample does not reach the overload with this seed, or no program can hold the call.
    """
    if sample.error is not None:
        skip("with this seed the sample does not reach the overload")
    inputs = _OverloadInputs(recorder)
    args, kwargs = inputs.of(list(sample.args)), inputs.of(sample.kwargs)
    recorder.drawer.profile, recorder.notes.profile_applied = ORDINARY, True
    found = recorder.call_function(Function(f"torch.ops.{overload}", overload), tuple(args), kwargs)
    results = *_comparable(found), *_comparable(list(_written(overload, args, kwargs)))
    # One that returns nothing and writes nothing is accepted or refused; a body must return something.
    return results or tuple(one for one in _comparable([*args, *kwargs.values()]) if isinstance(one, RecordedTensor))


class _OverloadInputs(Inputs):
    """Inputs of which some are converted after they were recorded."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__(recorder, ORDINARY)
        #: Tensors that were made here: an input is known by its identity, which another one must not get.
        self._held: list[torch.Tensor] = []

    def of(self, value: Any) -> Any:
        """Return an argument with recorded values for tensors, and each side's own device for the CPU."""
        if isinstance(value, torch.device) and value.type == "cpu":
            return Device(OWN_DEVICE)
        return super().of(value)

    def _plain(self, tensor: torch.Tensor) -> Any:
        self._held.append(tensor)
        return self.of(tensor)

    def unusual(self, tensor: torch.Tensor) -> Any:
        """Record a tensor that a program cannot hold as a plain one and its conversion."""
        if tensor.is_quantized:
            return self._quantized(tensor)
        if tensor.layout == torch.sparse_coo and not tensor.is_coalesced():
            parts = self._plain(tensor._indices()), self._plain(tensor._values()), tuple(tensor.shape)
            return self.recorder.call_plain(torch.sparse_coo_tensor, parts, {})
        if tensor.layout == torch.sparse_coo:
            return self._plain(tensor.to_dense()).to_sparse(tensor.sparse_dim())
        if tensor.layout in _COMPRESSED:
            blocks = tensor.values().shape[1:] if "bs" in _COMPRESSED[tensor.layout] else None
            plain = self._plain(tensor.to_dense())
            convert = getattr(plain, _COMPRESSED[tensor.layout])
            return convert(tuple(blocks)) if blocks is not None else convert()
        if tensor.layout == MKLDNN:
            return self._plain(tensor.to_dense()).to_mkldnn()
        return super().unusual(tensor)

    def _quantized(self, tensor: torch.Tensor) -> Any:
        plain = self._plain(tensor.dequantize())
        if tensor.qscheme() == torch.per_tensor_affine:
            numbers = tensor.q_scale(), tensor.q_zero_point()
            return self.recorder.call_plain(torch.quantize_per_tensor, (plain, *numbers, tensor.dtype), {})
        channels = (self._plain(tensor.q_per_channel_scales()), self._plain(tensor.q_per_channel_zero_points()))
        arguments = (plain, *channels, tensor.q_per_channel_axis(), tensor.dtype)
        return self.recorder.call_plain(torch.quantize_per_channel, arguments, {})


def _comparable(found: Any) -> Iterator[Any]:
    """Yield results in a form that can be compared."""
    for one in leaves(found):
        if isinstance(one, RecordedTensor):
            tensor = one._tensor
            if tensor.is_quantized:
                yield one.dequantize()
            elif tensor.layout != torch.strided:
                yield one.to_dense()
            elif DTYPE_NAMES[tensor.dtype] in DTYPES:
                yield one
            else:
                yield one.to(torch.complex64 if tensor.is_complex() else torch.int64)
        elif isinstance(one, _PLAIN):
            yield one


def _written(overload: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Iterator[Any]:
    """Yield the arguments that a call writes to."""
    for place, one in enumerate(overload._schema.arguments):
        if one.alias_info is not None and one.alias_info.is_write:
            yield kwargs.get(one.name, args[place] if place < len(args) else None)
