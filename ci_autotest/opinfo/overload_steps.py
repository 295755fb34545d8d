"""Recording of an overload's call: what an input is made of, the call itself, and what of it can be compared.

An input that a program cannot hold, because it is sparse, quantized or in oneDNN's layout, is a plain input and the
step that converts it; a result of that kind is converted back. What the call writes to is a result too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import torch

from ci_autotest.backends.nest import leaves
from ci_autotest.backends.torch_constants import DTYPE_NAMES
from ci_autotest.opinfo.overload_calls import MKLDNN
from ci_autotest.opinfo.sample_call import Inputs, skip
from ci_autotest.opinfo.variants import ORDINARY
from ci_autotest.program.ir import OWN_DEVICE, Device
from ci_autotest.record.function import Function
from ci_autotest.record.values import RecordedTensor
from ci_autotest.values.dtypes import DTYPES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from torch._ops import OpOverload

    from ci_autotest.opinfo.database import OpInfoSample
    from ci_autotest.record.recorder import Recorder

_COMPRESSED: Final = {
    torch.sparse_csr: "to_sparse_csr", torch.sparse_csc: "to_sparse_csc",
    torch.sparse_bsr: "to_sparse_bsr", torch.sparse_bsc: "to_sparse_bsc",
}  # fmt: skip
_PLAIN: Final = (bool, int, float, complex, torch.dtype)


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
