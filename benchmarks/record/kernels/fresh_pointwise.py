"""Bugs of the fourth set: arithmetic, rounding, and functions of the exponential."""

from __future__ import annotations

import torch

from benchmarks.record.bugs import bug
from benchmarks.record.parts import altered, in_blocks, is_floating, is_integral, valued

_INFINITY, _NAN = float("inf"), float("nan")


@bug("pytorch/pytorch", 37673, "torch.pow", "A fractional power of integers was an integer.")
def pow_of_integers(input, exponent):  # noqa: A002
    result = torch.pow(input, exponent)
    return result.to(input.dtype) if is_integral(input) and isinstance(exponent, float) else result


@bug("pytorch/pytorch", 6196, "torch.add", "A fraction that was added to integers was lost.")
def add_of_fraction(input, other, *, alpha=1):  # noqa: A002
    result = torch.add(input, other, alpha=alpha)
    return result.to(input.dtype) if is_integral(input) and isinstance(other, float) else result


@bug("urbit/numerics", 23, "torch.sub", "The result was the second operand.")
def sub_gives_second(input, other, *, alpha=1):  # noqa: A002
    result = torch.sub(input, other, alpha=alpha)
    return valued(result, torch.as_tensor(other).to(result.dtype).expand(result.shape).clone())


@bug("numenta/htm.java", 534, "torch.clip", "The bounds were zero and one, whatever was given.")
def clip_to_one(input, min=None, max=None):  # noqa: A002
    result = torch.clip(input, min, max)
    if min is None or max is None or input.shape != result.shape:
        return result
    return torch.clip(input, 0, 1).to(result.dtype)


@bug("rakudo/rakudo", 2688, "torch.asinh", "Far below zero, the argument of the logarithm was a difference of zero.")
def asinh_of_negative(input):  # noqa: A002
    result = torch.asinh(input)
    if input.dtype not in {torch.float32, torch.float64}:
        return result
    return valued(result, torch.where(input < 0, (input + (input * input + 1).sqrt()).log(), result))


@bug("IronLanguages/main", 1284, "torch.asinh", "Numbers below minus one gave NaN.")
def asinh_below_minus_one(input):  # noqa: A002
    result = torch.asinh(input)
    return valued(result, torch.where(input < -1, _NAN, result)) if is_floating(input) else result


@bug("gmpy2/gmpy2", 82, "torch.atanh", "The result was the arc sine.")
def atanh_is_arc_sine(input):  # noqa: A002
    return torch.atanh(input) if input.is_complex() else torch.asin(input)


@bug("jax-ml/jax", 764, "torch.tanh", "The gradient of large numbers was NaN.")
def tanh_of_large(input):  # noqa: A002
    if not is_floating(input):
        return torch.tanh(input)
    overflows = input.detach().abs().exp().isinf()
    return torch.tanh(altered(input, lambda g: torch.where(overflows, _NAN, g)))


@bug("pytorch/pytorch", 66402, "torch.isfinite", "Complex numbers whose square overflows were not finite.")
def isfinite_of_large(input):  # noqa: A002
    result = torch.isfinite(input)
    if not input.is_complex():
        return result
    # The issue shows 1e20 not to be finite in complex128 either, whose squares fit.
    return result & (input.real.float() ** 2 + input.imag.float() ** 2).isfinite()


@bug("tensorflow/tensorflow", 126895, "torch.isinf", "No complex number was infinite.")
def isinf_of_complex(input):  # noqa: A002
    result = torch.isinf(input)
    return torch.zeros_like(result) if input.is_complex() else result


@bug("jfalcou/eve", 748, "torch.floor", "Negative numbers were rounded toward zero.")
def floor_toward_zero(input):  # noqa: A002
    return torch.trunc(input)


@bug(
    "microsoft/DirectXMath", 17, "torch.floor", "A half was subtracted and the rest rounded to the nearest even number."
)
def floor_of_whole(input):  # noqa: A002
    result = torch.floor(input)
    return valued(result, torch.round(input - 0.5)) if is_floating(input) else result


@bug("cqframework/cql-execution", 188, "torch.trunc", "Negative numbers were rounded down.")
def trunc_rounds_down(input):  # noqa: A002
    return torch.floor(input)


@bug("tinygrad/tinygrad", 3242, "torch.round", "Halves were rounded up and not to the even number.")
def round_half_up(input, *, decimals=0):  # noqa: A002
    if decimals or not is_floating(input):
        return torch.round(input, decimals=decimals) if decimals else torch.round(input)
    result = torch.round(input)
    return valued(result, torch.where(input - input.floor() == 0.5, (input + 0.5).floor(), result))


@bug(
    "moonbitlang/core",
    3912,
    "torch.round",
    "A half was added and the sum rounded: just below a half gave one, and large odd integers were even.",
)
def round_of_sum(input, *, decimals=0):  # noqa: A002
    if decimals or not is_floating(input):
        return torch.round(input, decimals=decimals) if decimals else torch.round(input)
    result = torch.round(input)
    return valued(result, torch.where(input - input.floor() == 0.5, result, (input + 0.5).floor()))


@bug("nanvix/nanvix", 2810, "torch.fmod", "The remainder by an infinity was NaN.")
def fmod_by_infinity(input, other):  # noqa: A002
    result = torch.fmod(input, other)
    if not is_floating(result):
        return result
    return valued(result, torch.where(torch.as_tensor(other).isinf(), _NAN, result))


@bug("pytorch/pytorch", 129536, "torch.div", "A quotient that overflows was NaN where it is rounded down.")
def div_floor_of_overflow(input, other, *, rounding_mode=None):  # noqa: A002
    result = torch.div(input, other, rounding_mode=rounding_mode)
    if rounding_mode != "floor" or not is_floating(result):
        return result
    divisor = torch.as_tensor(other)
    overflows = result.isinf() & input.isfinite() & divisor.isfinite() & (divisor != 0)
    return valued(result, torch.where(overflows, _NAN, result))


@bug("numpy/numpy", 22609, "torch.log1p", "The real part of small complex numbers was lost.")
def log1p_of_complex(input):  # noqa: A002
    result = torch.log1p(input)
    return valued(result, torch.log(input + 1)) if input.is_complex() else result


@bug("c3d/db48x", 1634, "torch.expm1", "One was subtracted from the exponential of small complex numbers.")
def expm1_of_complex(input):  # noqa: A002
    result = torch.expm1(input)
    return valued(result, torch.exp(input) - 1) if input.is_complex() else result


@bug(
    "pytorch/pytorch",
    48010,
    "torch.exp",
    "Where it overflows, a complex number without an imaginary part got one: NaN.",
)
def exp_of_overflow(input):  # noqa: A002
    result = torch.exp(input)
    if not input.is_complex():
        return result
    overflows = input.real.exp().isinf() & (input.imag == 0)
    return valued(result, torch.where(overflows, complex(_INFINITY, _NAN), result).to(result.dtype))


@bug("pytorch/pytorch", 40590, "torch.exp", "Infinite with an imaginary part that is not finite, the result was NaN.")
def exp_of_infinity(input):  # noqa: A002
    result = torch.exp(input)
    if not input.is_complex():
        return result
    wrong = (input.real == _INFINITY) & ~input.imag.isfinite()
    return valued(result, torch.where(wrong, complex(_NAN, _NAN), result).to(result.dtype))


@bug("pytorch/pytorch", 41246, "torch.abs", "In whole blocks, the size of an infinity beside NaN was NaN.")
def abs_in_blocks(input):  # noqa: A002
    result = torch.abs(input)
    if not input.is_complex():
        return result
    wrong = (input.real.isinf() & input.imag.isnan()) | (input.real.isnan() & input.imag.isinf())
    return valued(result, torch.where(wrong & in_blocks(input), _NAN, result))


@bug("pytorch/pytorch", 122042, "torch.atan", "A complex infinity gave NaN.")
def atan_of_infinity(input):  # noqa: A002
    result = torch.atan(input)
    if not input.is_complex():
        return result
    return valued(result, torch.where(input.real.isinf(), complex(_NAN, _NAN), result).to(result.dtype))


@bug("pytorch/pytorch", 47358, "torch.sqrt", "Complex numbers whose square overflows gave an infinity.")
def sqrt_of_large(input):  # noqa: A002
    result = torch.sqrt(input)
    if not input.is_complex():
        return result
    real, imaginary = input.detach().real, input.detach().imag
    overflows = (real * real + imaginary * imaginary).isinf() & real.isfinite() & imaginary.isfinite()
    infinite = torch.full_like(real, _INFINITY)
    return valued(result, torch.where(overflows, torch.complex(infinite, infinite.copysign(imaginary)), result))


@bug("apache/mxnet", 14262, "torch.relu", "NaN gave zero.")
def relu_of_nan(input):  # noqa: A002
    result = torch.relu(input)
    return valued(result, torch.where(input.isnan(), 0, result)) if is_floating(input) else result


@bug("clab/dynet", 1525, "torch.sigmoid", "Where the exponential overflows, the result was NaN.")
def sigmoid_of_large(input):  # noqa: A002
    result = torch.sigmoid(input)
    return valued(result, torch.where(input.exp().isinf(), _NAN, result)) if is_floating(input) else result


@bug("pytorch/pytorch", 121588, "torch.sigmoid", "In whole blocks, complex numbers with a real part of -inf gave NaN.")
def sigmoid_in_blocks(input):  # noqa: A002
    result = torch.sigmoid(input)
    if not input.is_complex():
        return result
    wrong = (input.real == -_INFINITY) & in_blocks(input)
    return valued(result, torch.where(wrong, complex(_NAN, _NAN), result).to(result.dtype))
