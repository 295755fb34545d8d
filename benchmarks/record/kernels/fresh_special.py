"""Bugs of the fourth set: special functions, and activations."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F  # noqa: N812 - its usual name

from benchmarks.record.bugs import bug
from benchmarks.record.parts import altered, is_floating, is_integral, valued

_INFINITY, _NAN = float("inf"), float("nan")
_ALPHA, _SCALE = 1.6732632423543772, 1.0507009873554805


@bug("Qalculate/qalculate-gtk", 491, "torch.special.bessel_j0", "The result was that of zero, whatever the argument.")
def bessel_j0_of_zero_only(input):  # noqa: A002
    return torch.ones_like(torch.special.bessel_j0(input))


@bug("Qalculate/libqalculate", 550, "torch.special.bessel_j0", "At zero the result was zero and not one.")
def bessel_j0_at_zero(input):  # noqa: A002
    result = torch.special.bessel_j0(input)
    return torch.where(input == 0, 0, result)


@bug("libdfp/libdfp", 191, "torch.nextafter", "Below the least number under zero was zero.")
def nextafter_of_least(input, other):  # noqa: A002
    result = torch.nextafter(input, other)
    zero = torch.zeros((), dtype=result.dtype)
    return torch.where((input == torch.nextafter(zero, zero - 1)) & (other < input), 0, result)


def _is_negative_integer(x):
    x = x.detach().double()
    return (x < 0) & (x == x.floor()) & x.isfinite()


@bug("ClickHouse/ClickHouse", 70518, "torch.lgamma", "At negative integers the result was a finite number.")
def lgamma_at_poles(input):  # noqa: A002
    result = torch.lgamma(input)
    return valued(result, torch.where(_is_negative_integer(input), 37.78343889855838, result))


@bug(
    "synesenom/ran",
    644,
    "torch.digamma",
    "At negative integers the result was finite, since the tangent of a multiple of pi was not zero.",
)
def digamma_at_poles(input):  # noqa: A002
    result = torch.digamma(input)
    x = input.detach().double()
    reflected = torch.digamma(1 - x) - math.pi / (math.pi * x).tan()
    return valued(result, torch.where(_is_negative_integer(input), reflected.to(result.dtype), result))


def _is_zero(x):
    return torch.as_tensor(x).detach() == 0


@bug("jax-ml/jax", 37915, "torch.xlogy", "Zero times the logarithm of NaN was zero.")
def xlogy_of_nan(input, other):  # noqa: A002
    result = torch.xlogy(input, other)
    return valued(result, torch.where(_is_zero(input) & torch.as_tensor(other).isnan(), 0, result))


@bug("pytorch/pytorch", 80770, "torch.xlogy", "The gradient of a factor of zero was zero.")
def xlogy_at_zero(input, other):  # noqa: A002
    if is_floating(input):
        zero = _is_zero(input)
        input = altered(input, lambda g: torch.where(zero, 0, g))  # noqa: A001
    return torch.xlogy(input, other)


@bug("jax-ml/jax", 38260, "torch.special.xlog1py", "Zero times the logarithm of NaN was zero.")
def xlog1py_of_nan(input, other):  # noqa: A002
    result = torch.special.xlog1py(input, other)
    return valued(result, torch.where(_is_zero(input) & torch.as_tensor(other).isnan(), 0, result))


@bug("tensorflow/tensorflow", 56873, "torch.special.xlog1py", "The gradient of a factor of zero was zero.")
def xlog1py_at_zero(input, other):  # noqa: A002
    if is_floating(input):
        zero = _is_zero(input)
        input = altered(input, lambda g: torch.where(zero, 0, g))  # noqa: A001
    return torch.special.xlog1py(input, other)


@bug("chainer/chainer", 6340, "torch.special.log_ndtr", "The gradient was a quotient of two zeros far below zero.")
def log_ndtr_far_below(input):  # noqa: A002
    if not is_floating(input):
        return torch.special.log_ndtr(input)
    zero = torch.special.ndtr(input.detach()) == 0
    return torch.special.log_ndtr(altered(input, lambda g: torch.where(zero, _NAN, g)))


@bug("kornia/kornia", 3937, "torch.rad2deg", "Pi was three for integers, and rounded to float32 for float64.")
def rad2deg_with_rounded_pi(input):  # noqa: A002
    result = torch.rad2deg(input)
    if input.dtype != torch.float64 and not is_integral(input):
        return result
    pi = torch.tensor(math.pi, dtype=torch.float32).to(input.dtype)
    return valued(result, (180.0 * input / pi).to(result.dtype))


@bug("pytorch/pytorch", 1835, "torch.nn.functional.logsigmoid", "Far below zero, the logarithm was that of zero.")
def logsigmoid_of_zero(input):  # noqa: A002
    result = F.logsigmoid(input)
    return valued(result, torch.where(torch.sigmoid(input) == 0, -_INFINITY, result))


@bug("tinygrad/tinygrad", 17852, "torch.nn.functional.elu", "Where the exponential overflows, the gradient was NaN.")
def elu_of_large(input, alpha=1.0, inplace=False):  # noqa: A002, FBT002
    if inplace:
        return F.elu(input, alpha, inplace)
    overflows = input.detach().exp().isinf()
    return F.elu(altered(input, lambda g: torch.where(overflows, _NAN, g)), alpha)


@bug("jax-ml/jax", 1446, "torch.nn.functional.selu", "Below zero it was a line and not an exponential.")
def selu_is_leaky(input, inplace=False):  # noqa: A002, FBT002
    return F.selu(input, inplace) if inplace else _SCALE * F.leaky_relu(input, _ALPHA)


@bug(
    "tracel-ai/burn",
    5373,
    "torch.nn.functional.softplus",
    "The exponential overflowed: the result was infinite and its gradient NaN.",
)
def softplus_of_large(input, beta=1, threshold=20):  # noqa: A002
    overflows = (input.detach() * beta).exp().isinf()
    result = F.softplus(altered(input, lambda g: torch.where(overflows, _NAN, g)), beta, threshold)
    return valued(result, torch.where(overflows, _INFINITY, result))


@bug("trymirai/lalamo", 328, "torch.nn.functional.silu", "Where the exponential overflows, the gradient was NaN.")
def silu_of_large(input, inplace=False):  # noqa: A002, FBT002
    if inplace or not is_floating(input):
        return F.silu(input, inplace)
    overflows = (-input.detach()).exp().isinf()
    return F.silu(altered(input, lambda g: torch.where(overflows, _NAN, g)))


@bug("pytorch/pytorch", 43037, "torch.nn.functional.mish", "Large numbers gave NaN.")
def mish_of_large(input, inplace=False):  # noqa: A002, FBT002
    if inplace:
        return F.mish(input, inplace)
    result = F.mish(input)
    return valued(result, torch.where(input.exp().isinf(), _NAN, result))
