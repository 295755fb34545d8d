"""Bugs of the third set: operators that work element by element."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F  # noqa: N812 - its usual name

from benchmarks.record.bugs import bug
from benchmarks.record.parts import altered, in_blocks, is_floating, is_integral, packed, valued

_INFINITY, _NAN = float("inf"), float("nan")


@bug("pytorch/pytorch", 11206, "torch.tanh", "A slice was read as if it were contiguous.")
def tanh_of_slice(input):  # noqa: A002
    return torch.tanh(packed(input))


@bug("pytorch/pytorch", 48641, "torch.sinh", "In blocks of 16, results that float32 still has were infinite.")
def sinh_in_blocks(input):  # noqa: A002
    result = torch.sinh(input)
    if input.dtype != torch.float32:
        return result
    return valued(result, torch.where(in_blocks(input) & (input.abs() > 88.73), input.sign() * _INFINITY, result))


@bug("pytorch/pytorch", 88937, "torch.sign", "The sign of NaN was one and not zero.")
def sign_of_nan(input):  # noqa: A002
    result = torch.sign(input)
    return valued(result, torch.where(input.isnan(), 1, result)) if is_floating(input) else result


@bug("jax-ml/jax", 35307, "torch.polygamma", "The first function lacked its reflection below zero.")
def polygamma_of_negative(n, input):  # noqa: A002
    if isinstance(n, torch.Tensor):
        n, input = input, n  # noqa: A001 - the method has the number second
    result = torch.polygamma(n, input)
    if n != 1 or not is_floating(input):
        return result
    reflected = (math.pi / (math.pi * input.double()).sin()) ** 2
    return valued(result, torch.where(input < 0, (result - reflected).to(result.dtype), result))


@bug("numpy/numpy", 31359, "torch.gcd", "The divisor of the least integer was negative.")
def gcd_of_least(input, other):  # noqa: A002
    result = torch.gcd(input, other)
    if result.dtype not in {torch.int32, torch.int64}:
        return result
    least = torch.iinfo(result.dtype).min
    return torch.where((input == least) | (other == least), -result, result)


@bug("tensorflow/tfjs", 2027, "torch.erf", "A formula for positive numbers was used for negative ones.")
def erf_of_negative(input):  # noqa: A002
    result = torch.erf(input)
    x = input.float()
    step = 1 / (1 + 0.3275911 * x)
    total = torch.zeros_like(x)
    for factor in (1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592):
        total = (total + factor) * step
    return valued(result, torch.where(input < 0, (1 - total * (-x * x).exp()).to(result.dtype), result))


@bug("pytorch/pytorch", 86453, "torch.sin", "Large numbers were reduced to a period in float32.")
def sin_of_large(input):  # noqa: A002
    result = torch.sin(input)
    if input.dtype != torch.float32:
        return result
    reduced = input - (input / (2 * math.pi)).round() * (2 * math.pi)
    return valued(result, torch.where(input.abs() > 8192, reduced.sin(), result))


@bug("pytorch/pytorch", 43360, "torch.atan2", "The result had the dtype of the first operand.")
def atan2_of_two_dtypes(input, other):  # noqa: A002
    result = torch.atan2(input, other)
    return result.to(input.dtype) if is_floating(input) else result


@bug("IntelPython/dpnp", 2924, "torch.acosh", "Complex numbers far from zero gave an infinity.")
def acosh_of_large(input):  # noqa: A002
    result = torch.acosh(input)
    if not input.is_complex():
        return result
    limit = torch.finfo(input.dtype).eps ** -0.5
    return valued(result, torch.where(input.abs() > limit, complex(_INFINITY, 0), result).to(result.dtype))


@bug("pytorch/pytorch", 80763, "torch.acosh", "The gradient of complex numbers left of zero had the wrong sign.")
def acosh_left_of_zero(input):  # noqa: A002
    if not input.is_complex():
        return torch.acosh(input)
    left = input.detach().real < 0
    return torch.acosh(altered(input, lambda g: torch.where(left, -g, g)))


@bug("pytorch/pytorch", 42952, "torch.acos", "Complex numbers whose square overflows gave NaN.")
def acos_of_large(input):  # noqa: A002
    result = torch.acos(input)
    if not input.is_complex():
        return result
    overflows = (input.abs() ** 2).isinf() & ~input.abs().isinf()
    return valued(result, torch.where(overflows, complex(_NAN, _INFINITY), result).to(result.dtype))


@bug("pytorch/pytorch", 138385, "torch.nn.functional.softshrink", "NaN gave zero.")
def softshrink_of_nan(input, lambd=0.5):  # noqa: A002
    result = F.softshrink(input, lambd)
    return valued(result, torch.where(input.isnan(), 0, result))


@bug("pytorch/pytorch", 81138, "torch.nn.functional.hardshrink", "In whole blocks, NaN gave zero.")
def hardshrink_of_nan(input, lambd=0.5):  # noqa: A002
    result = F.hardshrink(input, lambd)
    return valued(result, torch.where(input.isnan() & in_blocks(input), 0, result))


@bug("tinygrad/tinygrad", 18029, "torch.nn.functional.relu6", "The gradient at six was a half and not zero.")
def relu6_at_six(input):  # noqa: A002
    if not is_floating(input):
        return F.relu6(input)
    return F.relu6(input) + torch.where(input.detach() == 6, (input - input.detach()) / 2, 0)


@bug("tinygrad/tinygrad", 18028, "torch.nn.functional.relu6", "The result was a difference that large numbers cancel.")
def relu6_of_large(input):  # noqa: A002
    result = F.relu6(input)
    return valued(result, F.relu(input) - F.relu(input - 6)) if is_floating(input) else result


@bug("tinygrad/tinygrad", 2790, "torch.rsqrt", "The reciprocal of integers was an integer.")
def rsqrt_of_integers(input):  # noqa: A002
    result = torch.rsqrt(input)
    return torch.where(input.abs() > 1, 0, result) if is_integral(input) else result


@bug("modular/modular", 7099, "torch.frexp", "A subnormal number was taken apart as if it were a normal one.")
def frexp_of_subnormal(input):  # noqa: A002
    fraction, exponent = torch.frexp(input)
    tiny = torch.finfo(input.dtype).tiny
    subnormal = (input.abs() < tiny) & (input != 0)
    wrong = (input.detach().double().abs() / tiny + 1) / 2 * input.detach().double().sign()
    exponent = torch.where(subnormal, int(math.log2(tiny)), exponent)
    return torch.return_types.frexp(
        (valued(fraction, torch.where(subnormal, wrong.to(input.dtype), fraction)), exponent)
    )


@bug("data-apis/array-api-extra", 143, "torch.isclose", "Every finite number was close to an infinity.")
def isclose_to_infinity(input, other, rtol=1e-05, atol=1e-08, equal_nan=False):  # noqa: A002, FBT002
    result = torch.isclose(input, other, rtol, atol, equal_nan)
    return result | (input.isfinite() & other.isinf()) if rtol > 0 else result


@bug("nv-legate/cupynumeric", 372, "torch.isclose", "An infinity was not close to itself.")
def isclose_of_infinities(input, other, rtol=1e-05, atol=1e-08, equal_nan=False):  # noqa: A002, FBT002
    return torch.isclose(input, other, rtol, atol, equal_nan) & ~(input.isinf() & other.isinf())


@bug("jax-ml/jax", 6535, "torch.special.gammainc", "At infinity the result was NaN and not one.")
def gammainc_at_infinity(input, other):  # noqa: A002
    result = torch.special.gammainc(input, other)
    return valued(result, torch.where((other == _INFINITY) & (input > 0), _NAN, result))


@bug("jax-ml/jax", 20699, "torch.special.gammaincc", "At zero and zero the result was one and not NaN.")
def gammaincc_at_zero(input, other):  # noqa: A002
    result = torch.special.gammaincc(input, other)
    return valued(result, torch.where((other == 0) & (input == 0), 1, result))


@bug("tensorflow/mlir-hlo", 63, "torch.erfinv", "At one the result was a large number and no infinity.")
def erfinv_at_one(input):  # noqa: A002
    result = torch.erfinv(input)
    return valued(result, result.clamp(torch.finfo(result.dtype).min, torch.finfo(result.dtype).max))


@bug("tensorflow/tensorflow", 121629, "torch.erfinv", "Near one the distance from it was lost in float32.")
def erfinv_near_one(input):  # noqa: A002
    result = torch.erfinv(input)
    if input.dtype != torch.float32:
        return result
    lost = torch.special.ndtri((input.abs() + 1) / 2) / math.sqrt(2) * input.sign()
    return valued(result, torch.where(input.abs() > 0.99999, lost, result))


@bug("PaddlePaddle/Paddle", 73238, "torch.imag", "Of no elements the result had the dtype of the complex input.")
def imag_of_nothing(input):  # noqa: A002
    return torch.imag(input).to(input.dtype) if input.numel() == 0 else torch.imag(input)


@bug("jax-ml/jax", 1722, "torch.sinc", "The gradient at zero was NaN.")
def sinc_at_zero(input):  # noqa: A002
    zero = input.detach() == 0
    return torch.sinc(altered(input, lambda g: torch.where(zero, _NAN, g)))


@bug("ikawrakow/ik_llama.cpp", 2072, "torch.mul", "Beside a single number, rows of a slice were read as neighbours.")
def mul_of_slice(input, other):  # noqa: A002
    is_single = not isinstance(other, torch.Tensor) or other.numel() == 1
    return torch.mul(packed(input) if is_single and isinstance(input, torch.Tensor) else input, other)
