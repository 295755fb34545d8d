"""Pointwise functions of one number, with inputs where they are defined; rounding and bitwise operators."""

from ci_autotest import nothing, oneof, random, random_dtype, random_tensor, torch
from ci_autotest.suite import FLOATS, NUMBERS, autotest


@autotest()
def exp():
    x = random_tensor(low=-5, high=5, dtype=random_dtype(["float", "half", "complex"]))
    return torch.exp(x)


@autotest()
def exp2():
    x = random_tensor(low=-5, high=5, dtype=random_dtype(["float", "half", "int"]))
    return torch.exp2(x)


@autotest()
def expm1():
    # Near zero, where exp(x) - 1 cancels.
    x = random_tensor(dtype=random_dtype(["float", "half", "int"]))
    return torch.expm1(x)


@autotest()
def log():
    x = random_tensor(low=0.01, high=5, dtype=random_dtype(["float", "half"]))
    return torch.log(x)


@autotest()
def log2():
    x = random_tensor(low=0.01, high=5, dtype=random_dtype(["float", "half"]))
    return torch.log2(x)


@autotest()
def log10():
    x = random_tensor(low=1, high=50, dtype=random_dtype(["float", "half", "int"]))
    return torch.log10(x)


@autotest()
def log1p():
    x = random_tensor(low=-0.9, high=2, dtype=random_dtype(["float", "half"]))
    return torch.log1p(x)


@autotest()
def sqrt():
    x = random_tensor(low=0.01, high=5, dtype=random_dtype(["float", "half"]))
    return torch.sqrt(x)


@autotest()
def rsqrt():
    x = random_tensor(low=0.05, high=5, dtype=random_dtype(["float", "half"]))
    return torch.rsqrt(x)


@autotest()
def sin():
    x = random_tensor(low=-7, high=7, dtype=random_dtype(["float", "half", "int"]))
    return torch.sin(x)


@autotest()
def cos():
    x = random_tensor(low=-7, high=7, dtype=random_dtype(["float", "half", "int"]))
    return torch.cos(x)


@autotest()
def tan():
    x = random_tensor(dtype=random_dtype(["float", "half"]))
    return torch.tan(x)


@autotest()
def asin():
    x = random_tensor(low=-0.95, high=0.95, dtype=random_dtype(["float", "half"]))
    return torch.asin(x)


@autotest()
def acos():
    x = random_tensor(low=-0.95, high=0.95, dtype=random_dtype(["float", "half"]))
    return torch.acos(x)


@autotest()
def atan():
    x = random_tensor(dtype=random_dtype(["float", "half", "int"]))
    return torch.atan(x)


@autotest()
def sinh():
    x = random_tensor(low=-4, high=4, dtype=random_dtype(["float", "half"]))
    return torch.sinh(x)


@autotest()
def cosh():
    x = random_tensor(low=-4, high=4, dtype=random_dtype(["float", "half"]))
    return torch.cosh(x)


@autotest()
def asinh():
    x = random_tensor(low=-4, high=4, dtype=random_dtype(["float", "half"]))
    return torch.asinh(x)


@autotest()
def acosh():
    x = random_tensor(low=1.05, high=6, dtype=random_dtype(["float", "half"]))
    return torch.acosh(x)


@autotest()
def atanh():
    x = random_tensor(low=-0.95, high=0.95, dtype=random_dtype(["float", "half"]))
    return torch.atanh(x)


@autotest()
def floor():
    x = random_tensor(low=-5, high=5, dtype=random_dtype(["float", "half", "int"]))
    return torch.floor(x)


@autotest()
def ceil():
    x = random_tensor(low=-5, high=5, dtype=random_dtype(["float", "half", "int"]))
    return torch.ceil(x)


@autotest()
def round():  # noqa: A001 - the operator's name
    # Halves go to the even neighbour.
    x = random_tensor(low=-20, high=21, dtype=torch.int64).to(torch.float32) / 2
    return torch.round(x), torch.round(random_tensor(), decimals=random(0, 4).to(int))


@autotest()
def trunc():
    x = random_tensor(low=-5, high=5, dtype=random_dtype(["float", "half", "int"]))
    return torch.trunc(x)


@autotest()
def frac():
    x = random_tensor(low=-5, high=5, dtype=random_dtype(["float", "half"]))
    return torch.frac(x)


@autotest()
def nan_to_num():
    # Not numbers and infinities come from the profile of special values, and from what is divided by zero here.
    x = random_tensor(dtype=random_dtype(["float32", "half"]))
    y = oneof(x / torch.round(x), x / torch.round(x) * 0)
    return torch.nan_to_num(
        y,
        nan=random(-2, 3).to(float) | nothing(),
        posinf=random(5, 9).to(float) | nothing(),
        neginf=oneof(-7.0, nothing()),
    )


@autotest()
def bitwise_and():
    x = random_tensor(dtype=random_dtype(["int", "uint", "bool"]))
    y = random_tensor(ndim=random(0, 2).to(int), dim0=1, low=0, dtype=random_dtype(["int"]))
    return x & y


@autotest()
def bitwise_or():
    x = random_tensor(dtype=random_dtype(["int", "uint", "bool"]))
    y = random_tensor(ndim=random(0, 2).to(int), dim0=1, low=0, dtype=random_dtype(["int"]))
    return x | y


@autotest()
def bitwise_xor():
    x = random_tensor(dtype=random_dtype(["int", "uint", "bool"]))
    y = random_tensor(ndim=random(0, 2).to(int), dim0=1, low=0, dtype=random_dtype(["int"]))
    return x ^ y


@autotest()
def bitwise_not():
    x = random_tensor(dtype=random_dtype(["int", "uint", "bool"]))
    return ~x


@autotest()
def bitwise_left_shift():
    x = random_tensor(dtype=random_dtype(["int", "uint"]))
    # By more bits than there are, nothing is left.
    return torch.bitwise_left_shift(x, oneof(random(0, 5).to(int), 40, 70))


@autotest(dtypes=(*FLOATS, "int64"))
def heaviside():
    x = random_tensor(requires_grad=False)
    y = random_tensor(ndim=random(0, 2).to(int), dim0=1, requires_grad=False)
    return torch.heaviside(torch.round(x), y)


@autotest()
def degrees():
    x = random_tensor(dtype=random_dtype(["float", "half", "int"]))
    return torch.deg2rad(x), torch.rad2deg(x), torch.positive(x)


@autotest()
def frexp():
    x = random_tensor(low=-5, high=5, dtype=random_dtype(["float", "half"]))
    return torch.frexp(x.detach())


@autotest()
def nextafter():
    x = random_tensor(dtype=random_dtype(["float", "half"]), requires_grad=False)
    return torch.nextafter(x, -x), torch.nextafter(x, x + 1)


@autotest(dtypes=NUMBERS)
def gradient():
    x = random_tensor(ndim=random(1, 4).to(int), dim0=random(3, 8).to(int))
    return torch.gradient(x, spacing=oneof(2.0, nothing()), dim=0, edge_order=oneof(1, 2, nothing()))


@autotest()
def bitwise_shift_by_tensor():
    x = random_tensor(dtype=random_dtype(["int"]))
    shift = random_tensor(ndim=random(0, 2).to(int), dim0=1, low=0, high=5, dtype=int)
    return torch.bitwise_left_shift(x, shift)
