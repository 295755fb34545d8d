"""Make tensors from recorded data: a copy for each side, with the recorded layout, on its device."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import torch

from ci_autotest.backends.torch_constants import DTYPE_NAMES
from ci_autotest.program.ir import OWN_DEVICE, TensorSpec

CPU: Final = torch.device("cpu")


def contiguous_spec(tensor: torch.Tensor) -> TensorSpec:
    """Return the spec of a contiguous copy of a tensor, without ``requires_grad``."""
    return TensorSpec.plain(DTYPE_NAMES[tensor.dtype], tuple(tensor.shape))


def source_of(tensor: torch.Tensor, *, requires_grad: bool = False) -> tuple[torch.Tensor, TensorSpec]:
    """Return a copy of the part of a storage that a tensor's elements span, and the tensor's spec with strides."""
    value = tensor.detach().resolve_conj().resolve_neg().cpu()
    spec = replace(contiguous_spec(value), requires_grad=requires_grad)
    if value.is_contiguous():
        return value.clone(memory_format=torch.contiguous_format), spec
    held = span(value)
    flat = value.as_strided((held,), (1,)).clone()
    return flat, replace(spec, strides=tuple(value.stride()), storage_size=held)


def laid_out(source: torch.Tensor, spec: TensorSpec) -> torch.Tensor:
    """Return the view of a source that a spec describes."""
    return source if spec.is_contiguous else source.as_strided(spec.shape, spec.strides, spec.offset)


def span(tensor: torch.Tensor) -> int:
    """Return the number of elements of memory from a tensor's first one to its last one; it has some."""
    return 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))


def same_layout(source: torch.Tensor) -> torch.Tensor:
    """Return a copy with the strides of its source: slices stay slices, and expanded elements are shared."""
    if source.is_contiguous():
        return source.clone()
    return source.as_strided((span(source),), (1,)).clone().as_strided(source.shape, source.stride())


def place(source: torch.Tensor, spec: TensorSpec, device: torch.device) -> torch.Tensor:
    """Return a copy of a source as a leaf, in the layout of ``spec`` and on the device that its symbol names.

    Every call copies, because torch aligns all allocations alike, so that both sides read equally aligned memory
    (rule 16).
    """
    tensor = source.clone()
    if device is not CPU and spec.device == OWN_DEVICE and device.type != "cpu":
        tensor = tensor.to(device)
    tensor = laid_out(tensor, spec)
    return tensor.requires_grad_() if spec.requires_grad else tensor
