"""Values at the ends of what a function takes: bounds, their neighbours, zeros, infinities, NaN, denormals, large ones.

Each function has a tensor of its own: where one has no gradient, another's is still compared.
"""

from ci_autotest import choice_tensor, oneof, random_bool, random_dtype, torch
from ci_autotest.suite import autotest, some_of

INFINITY, NAN = float("inf"), float("nan")
#: Around zero: denormals, and what has a normal reciprocal.
SMALL = (0.0, -0.0, 1e-40, -1e-40, 1e-30, -1e-30, 1e-12, 1e-3, -1e-3)
#: Around one: the neighbours in float32 too.
ONES = (1.0, -1.0, 0.99999994, -0.99999994, 1.0000001, -1.0000001, 0.9999, -0.9999, 0.5, -0.5)
#: Where exponentials overflow and whole numbers have no neighbours.
LARGE = (2.0, -2.0, 6.0, -6.0, 20.0, -20.0, 88.7, -88.7, 89.2, -89.2, 104.0, -104.0, 1e4, -1e4)
ENDS = (16777217.0, 1e20, -1e20, 3e38, -3e38, INFINITY, -INFINITY, NAN)
EVERYTHING = SMALL + ONES + LARGE + ENDS
#: The same with whole and half numbers below zero, where functions have poles.
POLES = (*EVERYTHING, -3.0, -1.5, -2.5, -14.5, 0.25, 3.0, 10.0)
#: Where formulas for small and large numbers meet.
NEAR = (*SMALL, *ONES, 3.75, -3.75, 4.9999, 5.0, -5.0, 8.0, -8.0, 8.1, 20.0, -20.0, 88.0, INFINITY, -INFINITY, NAN)


def shuffled(values, dtype, *, requires_grad=False):
    # Each value twice, so that loops over blocks and over the rest both meet it.
    return choice_tensor(values * 2, (2 * len(values),), replace=False, dtype=dtype, requires_grad=requires_grad)


def each(parts, functions, values, dtype):
    def called(function):
        return lambda: function(shuffled(values, dtype, requires_grad=True))

    return some_of(parts, *map(called, functions))


def without_gradient(parts, functions, values, dtype):
    x = shuffled(values, dtype)
    return some_of(parts, *((lambda function=function: function(x)) for function in functions))


@autotest()
def inverses_roots_and_logarithms():
    functions = (
        torch.acos, torch.asin, torch.atanh, torch.acosh, torch.asinh, torch.atan, torch.erfinv, torch.logit,
        torch.sqrt, torch.rsqrt, torch.reciprocal, torch.log, torch.log2, torch.log10, torch.log1p, torch.square,
    )  # fmt: skip
    return each(4, functions, EVERYTHING, random_dtype(["float", "half"]))


@autotest()
def exponentials_and_activations():
    layers = torch.nn.functional
    functions = (
        torch.exp, torch.exp2, torch.expm1, torch.sinh, torch.cosh, torch.tanh, torch.sigmoid, layers.logsigmoid,
        layers.softplus, layers.relu, layers.relu6, layers.gelu, layers.silu, layers.mish, layers.elu, layers.selu,
        layers.celu, layers.leaky_relu, layers.hardtanh, layers.hardsigmoid, layers.hardswish, layers.softsign,
        layers.tanhshrink, layers.softshrink,
    )  # fmt: skip
    return each(4, functions, (*EVERYTHING, 3.0, -3.0), random_dtype(["float", "half"]))


@autotest()
def rounding():
    functions = (
        torch.floor, torch.ceil, torch.round, torch.trunc, torch.frac, torch.sign, torch.abs, torch.neg, torch.signbit,
        torch.frexp, torch.nan_to_num, torch.isfinite, torch.isnan, torch.logical_not, torch.rad2deg,
        torch.nn.functional.hardshrink,
    )  # fmt: skip
    return without_gradient(3, functions, (*POLES, 8388609.0, 2.5, 0.49999997), random_dtype(["float", "half"]))


@autotest()
def periods_and_error_functions():
    # Beyond a few thousand a period is more than a float32 can be reduced by: those values are left out.
    special = torch.special
    values = (*SMALL, *ONES, 1.5707964, -1.5707964, 3.1415927, -3.1415927, 20.0, -20.0, 100.0, -500.0, INFINITY, NAN)
    functions = (
        torch.sin, torch.cos, torch.tan, torch.sinc, special.erf, special.erfc, special.erfcx, special.ndtr,
        special.log_ndtr, special.ndtri, special.entr,
    )  # fmt: skip
    return each(3, functions, values, random_dtype(["float"]))


@autotest()
def gamma_and_bessel_functions():
    special = torch.special
    values = (*POLES, *NEAR)
    functions = (
        special.gammaln, special.digamma, lambda x: special.polygamma(1, x), lambda x: special.polygamma(0, x),
        lambda x: special.polygamma(3, x), lambda x: special.multigammaln(torch.abs(x) + 3, 2), special.i0, special.i0e,
        special.i1, special.i1e,
    )  # fmt: skip
    others = (
        special.bessel_j0, special.bessel_j1, special.bessel_y0, special.bessel_y1, special.modified_bessel_i0,
        special.modified_bessel_i1, special.modified_bessel_k0, special.modified_bessel_k1,
        special.scaled_modified_bessel_k0, special.spherical_bessel_j0, special.airy_ai,
    )  # fmt: skip
    dtype = random_dtype(["float"])
    return without_gradient(4, others, NEAR, dtype), each(4, functions, values, dtype)


def pairs(values, others, dtype):
    # Each value beside each other one, and many in a row, so that loops over blocks meet them.
    x = torch.tensor(values).to(dtype)
    y = torch.tensor(others).to(dtype)
    x, y = torch.broadcast_tensors(x[:, None], y[None])
    return x.contiguous(), oneof(y.contiguous(), y).value()


FEW = (0.0, -0.0, 1e-40, 1e-3, 0.5, 1.0, -1.0, 2.0, -2.0, -2.5, 1e20, INFINITY, -INFINITY, NAN, 7.0)


#: Of these, every formula of a floor division has the same result.
PLAIN = (0.0, -0.0, 0.5, 1.0, -1.0, 2.0, -2.0, -2.5, NAN, 7.0)


@autotest()
def quotients_and_powers():
    dtype = random_dtype(["float", "half"])
    x, y = pairs(FEW, FEW, dtype)
    a, b = pairs(PLAIN, PLAIN, dtype)
    return some_of(
        3,
        lambda: torch.div(x, y),
        lambda: torch.div(a, b, rounding_mode="floor"),
        lambda: torch.div(a, b, rounding_mode="trunc"),
        lambda: torch.floor_divide(a, b),
        lambda: torch.remainder(a, b),
        lambda: torch.fmod(x, y),
        lambda: torch.pow(x, y),
        lambda: torch.float_power(x, y),
        lambda: torch.hypot(x, y),
        lambda: torch.atan2(x, y),
        lambda: torch.copysign(x, y),
        lambda: torch.nextafter(x, y),
        lambda: torch.sub(x, y),
        lambda: x * y,
    )


@autotest()
def greater_and_less():
    x, y = pairs(FEW, FEW, random_dtype(["float", "half"]))
    equal_nan = random_bool()
    return some_of(
        3,
        lambda: torch.max(x, y),
        lambda: torch.min(x, other=y),
        lambda: torch.maximum(x, y),
        lambda: torch.minimum(x, y),
        lambda: torch.fmax(x, y),
        lambda: torch.fmin(x, y),
        lambda: torch.heaviside(x, y),
        lambda: x < y,
        lambda: x <= y,
        lambda: x == y,
        lambda: x != y,
        lambda: torch.clamp(x, min=y),
        lambda: torch.clamp(x, max=y),
        lambda: torch.isclose(x, y, equal_nan=equal_nan),
        lambda: torch.isclose(x, y, rtol=0.1, atol=0.6),
        lambda: torch.logical_xor(x, y),
        lambda: torch.where(x > y, x, y),
        lambda: torch.nn.functional.threshold(x, 0.5, -3),
    )


@autotest()
def functions_of_two_numbers():
    values = (0.0, 1e-30, 1e-3, 0.5, 1.0, 2.0, 20.0, 200.0, INFINITY, NAN, -1.0, -0.5)
    x, y = pairs(values, values, random_dtype(["float"]))
    special = torch.special
    return some_of(
        3,
        lambda: special.gammainc(x, y),
        lambda: special.gammaincc(x, y),
        lambda: special.xlogy(x, y),
        lambda: special.xlog1py(x, y),
        lambda: special.zeta(x, y),
        lambda: torch.logaddexp(x, y),
        lambda: torch.logaddexp2(x, y),
        lambda: torch.logaddexp(-x, -y),
        lambda: torch.lerp(x, y, 0.25),
        lambda: torch.ldexp(x, torch.round(torch.nan_to_num(torch.clamp(y, -9, 9), 1))),
    )


@autotest()
def clamped_to_nothing():
    # Bounds that are NaN, infinite, or the wrong way round.
    x = shuffled(EVERYTHING, random_dtype(["float"]), requires_grad=True)
    low, high = oneof(NAN, -1.0, 1.0, -INFINITY, 0.0), oneof(NAN, -1.0, 1.0, INFINITY, 0.0)
    bounds = torch.tensor([low, high], dtype=x.dtype)
    return some_of(
        2,
        lambda: torch.clamp(x, low, high),
        lambda: torch.clamp(x, bounds[:1], bounds[1:]),
        lambda: torch.clip(x, min=low),
        lambda: torch.clamp(x, max=bounds[1]),
        lambda: torch.nn.functional.hardtanh(x, -1.0, 1.0),
    )


#: Parts of complex numbers: on both sides of the cuts, and where squares overflow.
PARTS = (0.0, -0.0, 1.0, -1.0, 0.5, -2.0, 2.0, 1e-20, 1e10, -1e10, 1e30)


def complexes(dtype):
    parts = torch.tensor(PARTS, dtype=dtype)
    return torch.complex(*torch.broadcast_tensors(parts[:, None], parts[None]))


@autotest()
def complex_cuts():
    x = complexes(random_dtype(["float"]))
    return some_of(
        4,
        lambda: torch.sqrt(x),
        lambda: torch.log(x),
        lambda: torch.acos(x),
        lambda: torch.asin(x),
        lambda: torch.atan(x),
        lambda: torch.acosh(x),
        lambda: torch.asinh(x),
        lambda: torch.atanh(x),
        lambda: torch.angle(x),
        lambda: torch.abs(x),
        lambda: torch.sgn(x),
        lambda: torch.log10(x),
        lambda: torch.log2(x),
        lambda: torch.log1p(x),
        lambda: torch.reciprocal(x),
        lambda: torch.square(x),
        lambda: torch.rsqrt(x),
    )


@autotest()
def complex_gradients():
    # On no cut, on both sides of each.
    functions = (
        torch.sqrt, torch.log, torch.acos, torch.asin, torch.atan, torch.acosh, torch.asinh, torch.atanh, torch.angle,
        torch.abs, torch.sgn, torch.exp, torch.sin, torch.cosh, torch.tanh, torch.reciprocal, torch.rsqrt,
        lambda x: torch.pow(x, 2.5), lambda x: torch.pow(2, x), torch.expm1, torch.log1p, torch.sigmoid,
    )  # fmt: skip
    dtype = random_dtype(["complex"])
    values = tuple(complex(x, y) for x in (0.3, -0.8, 1.7, -2.1) for y in (0.4, -0.6, 1.2, -2.3))
    return some_of(
        5,
        *((lambda function=function: function(shuffled(values, dtype, requires_grad=True))) for function in functions),
    )


@autotest()
def complex_pairs():
    x = complexes(random_dtype(["float"])).reshape(-1)[::3]
    y = complexes(torch.float32).reshape(-1)[::7][:, None].to(x.dtype)
    return some_of(
        2,
        lambda: x * y,
        lambda: x + y,
        lambda: x / y,
        lambda: torch.pow(x, oneof(2, 0.5, -1)),
        lambda: x == y,
        lambda: torch.isclose(x, y),
        lambda: torch.isfinite(x * y),
    )
