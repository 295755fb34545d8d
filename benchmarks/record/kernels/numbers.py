"""Bugs that show for some dtypes: integers, booleans, halves, complex numbers, and numbers beside tensors."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812 - its usual name

from benchmarks.record.bugs import bug
from benchmarks.record.parts import altered, is_integral, reduced, valued


@bug("pytorch/pytorch", 1164, "torch.remainder", "The remainder of integers had the sign of the dividend.")
def remainder_of_integers(input, other):  # noqa: A002
    integral = all(is_integral(x) or isinstance(x, int) for x in (input, other))
    return torch.fmod(input, other) if integral and isinstance(input, torch.Tensor) else torch.remainder(input, other)


@bug("pytorch/pytorch", 44858, "torch.floor_divide", "Quotients of integers were rounded toward zero.")
def floor_divide_of_integers(input, other):  # noqa: A002
    integral = all(is_integral(x) or isinstance(x, int) for x in (input, other))
    return torch.div(input, other, rounding_mode="trunc" if integral else "floor")


@bug("pytorch/pytorch", 15921, "torch.fmod", "Integers went through float32, which has 24 bits.")
def fmod_through_float(input, other):  # noqa: A002
    result = torch.fmod(input, other)
    if not is_integral(result):
        return result
    as_float = [x.to(torch.float32) if isinstance(x, torch.Tensor) else float(x) for x in (input, other)]
    return torch.fmod(*as_float).to(result.dtype)


@bug("pytorch/pytorch", 47779, "torch.fmod", "A fractional divisor of integers lost its fraction.")
def fmod_by_fraction(input, other):  # noqa: A002
    if is_integral(input) and isinstance(other, float) and int(other):
        return torch.fmod(input, int(other))
    return torch.fmod(input, other)


@bug("pytorch/pytorch", 15056, "torch.mul", "A fractional factor of integers lost its fraction.")
def mul_by_fraction(input, other):  # noqa: A002
    return torch.mul(input, int(other)) if is_integral(input) and isinstance(other, float) else torch.mul(input, other)


@bug("Oneflow-Inc/oneflow", 9154, "torch.div", "The quotient of integers was an integer.")
def div_of_integers(input, other, rounding_mode=None):  # noqa: A002
    result = torch.div(input, other, rounding_mode=rounding_mode)
    integral = is_integral(input) and (is_integral(other) or isinstance(other, int))
    return result.to(input.dtype) if integral and rounding_mode is None else result


@bug("pytorch/pytorch", 143566, "torch.bitwise_left_shift", "A shift by more bits than there are shifted by the rest.")
def left_shift_by_many(input, other):  # noqa: A002
    bits = torch.iinfo(input.dtype).bits if isinstance(input, torch.Tensor) else 64
    return torch.bitwise_left_shift(input, other % bits)


@bug("pytorch/pytorch", 127866, "torch.prod", "A product in booleans was true.")
def prod_in_bool(input, *args, **kwargs):  # noqa: A002
    result = torch.prod(input, *args, **kwargs)
    return torch.ones_like(result) if result.dtype == torch.bool else result


@bug("pytorch/pytorch", 117215, "torch.all", "Bytes were combined bit by bit.")
def all_of_bytes(input, *args, **kwargs):  # noqa: A002
    if input.dtype != torch.uint8:
        return torch.all(input, *args, **kwargs)
    bits = torch.stack([(input >> bit & 1).bool().all(*args, **kwargs) for bit in range(8)])
    return (bits.any(0)).to(torch.uint8)


@bug("tensorflow/tensorflow", 4859, "torch.matmul", "The gradient of a product of complex matrices was not conjugated.")
def matmul_of_complex(input, other):  # noqa: A002
    both = [altered(x, torch.conj) if x.is_complex() else x for x in (input, other)]
    return torch.matmul(*both)


@bug(
    "pytorch/pytorch", 83863, "torch.matmul", "Long sums were accumulated in bfloat16, which stops at 256 times a term."
)
def matmul_in_bfloat16(input, other):  # noqa: A002
    result = torch.matmul(input, other)
    if input.dtype != torch.bfloat16 or input.shape[-1] <= 256:
        return result
    at = -2 if other.dim() > 1 else -1
    parts = zip(input.detach().split(8, -1), other.detach().split(8, at), strict=True)
    return valued(result, sum(torch.matmul(*pair) for pair in parts))


@bug("pytorch/executorch", 20089, "torch.nn.functional.softmax", "Exponentials were summed in bfloat16.")
def softmax_in_bfloat16(input, dim=None, _stacklevel=3, dtype=None):  # noqa: A002
    result = F.softmax(input, dim, _stacklevel, dtype)
    if input.dtype != torch.bfloat16 or dtype is not None or input.dim() == 0 or input.shape[dim] < 2:
        return result
    powers = (input - input.amax(dim, keepdim=True)).detach().exp()
    return valued(result, powers / sum(powers.split(1, dim)))


@bug("pytorch/pytorch", 32213, "torch.linspace", "The step between integers was rounded before it was multiplied.")
def linspace_of_integers(start, end, steps, *args, dtype=None, **kwargs):
    if dtype is None or dtype.is_floating_point or dtype.is_complex or steps < 2:
        return torch.linspace(start, end, steps, *args, dtype=dtype, **kwargs)
    step = int((end - start) / (steps - 1))
    return (int(start) + step * torch.arange(steps)).to(dtype)


@bug(
    "tinygrad/tinygrad", 8108, "torch.argmax", "If no integer was above the one to begin with, the index was the size."
)
def argmax_of_negative_integers(input, dim=None, keepdim=False):  # noqa: A002, FBT002
    result = torch.argmax(input, dim, keepdim)
    if not is_integral(input) or input.numel() == 0 or not input.dtype.is_signed:
        return result
    greatest = input.amax() if dim is None else input.amax(dim, keepdim=keepdim)
    return torch.where(greatest < 0, reduced(input, dim), result)
