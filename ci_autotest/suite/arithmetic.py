"""Arithmetic of tensors and numbers: broadcasting, type promotion, Python numbers."""

from ci_autotest import nothing, oneof, random, random_dtype, random_tensor, torch
from ci_autotest.suite import ANY, FLOATS, NUMBERS, REALS, autotest


@autotest(dtypes=ANY)
def add():
    columns = random(1, 8).to(int)
    x = random_tensor(ndim=2, dim1=columns)
    y = random_tensor(ndim=1, dim0=columns, dtype=random_dtype(["float", "half", "int64"]))
    return torch.add(x, oneof(y, random(-5, 6).to(int)), alpha=random(-3, 4).to(int) | nothing())


@autotest(dtypes=(*FLOATS, "complex64"))
def sub():
    rows = random(1, 8).to(int)
    x = random_tensor(ndim=2, dim0=rows, dtype=random_dtype(["float32", "half", "int64"]))
    y = random_tensor(ndim=2, dim0=rows, dim1=1)
    return torch.sub(x, y, alpha=random(-2, 3).to(float) | nothing())


@autotest()
def mul():
    # One element broadcasts against any shape, so that `x` is free to be 0-dim.
    x = random_tensor(dtype=random_dtype(["float", "half", "int", "complex"]))
    y = random_tensor(ndim=random(0, 2).to(int), dim0=1, dtype=random_dtype(["float32", "half", "int32"]))
    return x * y


@autotest(dtypes=(*FLOATS, "int64"))
def div():
    columns = random(1, 8).to(int)
    x = random_tensor(ndim=random(2, 4).to(int), dim1=columns, dim2=columns)
    y = random_tensor(ndim=1, dim0=columns)
    return torch.div(x, y, rounding_mode=oneof(None, "floor", "trunc", nothing()))


@autotest()
def pow():  # noqa: A001 - the operator's name
    x = random_tensor()
    y = random_tensor(ndim=random(0, 2).to(int), dim0=1, low=-2, high=3)
    z = torch.round(random_tensor(ndim=2, dim0=1))
    base = random_tensor(ndim=random(0, 2).to(int), dim0=1, low=0.5, high=2)
    powers = torch.pow(x, oneof(y, random(-2, 5).to(int), 0.5, -1.5))
    return powers, torch.pow(z, torch.round(z * 1.5)), torch.pow(oneof(base, 2, 0.5), x)


@autotest()
def floor_divide():
    # Divisors keep away from zero: integers by zero raise.
    x = random_tensor(low=-20, high=21, dtype=random_dtype(["float", "half", "int"]), requires_grad=False)
    return torch.floor_divide(x, oneof(random(1, 6).to(int), random(-5, 0).to(int), 1.5))


@autotest()
def remainder():
    x = random_tensor(low=-20, high=21, dtype=random_dtype(["float", "half", "int"]))
    return torch.remainder(x, oneof(random(1, 6).to(int), random(-5, 0).to(int), -2.5))


@autotest()
def fmod():
    x = random_tensor(low=-20, high=21, dtype=random_dtype(["float", "half", "int"]))
    return torch.fmod(x, oneof(random(1, 6).to(int), random(-5, 0).to(int), 2.5))


@autotest()
def neg():
    x = random_tensor(dtype=random_dtype(["float", "half", "int", "uint", "complex"]))
    return -x


@autotest()
def abs():  # noqa: A001 - the operator's name
    x = random_tensor(dtype=random_dtype(["float", "half", "int"]))
    return torch.abs(x)


@autotest()
def sign():
    x = random_tensor(dtype=random_dtype(["float", "half", "int", "uint"]))
    return torch.sign(x)


@autotest()
def reciprocal():
    x = random_tensor(low=0.25, high=4, dtype=random_dtype(["float", "half", "complex"]))
    return torch.reciprocal(x)


@autotest()
def square():
    x = random_tensor(dtype=random_dtype(["float", "half", "int", "complex"]))
    return torch.square(x)


@autotest(dtypes=REALS)
def maximum():
    x = random_tensor(dtype=random_dtype(["float", "half", "int"]))
    y = random_tensor(ndim=random(0, 2).to(int), dim0=1)
    return torch.maximum(x, y)


@autotest(dtypes=REALS)
def minimum():
    x = random_tensor(dtype=random_dtype(["float", "half", "int"]))
    y = random_tensor(ndim=random(0, 2).to(int), dim0=1)
    return torch.minimum(x, y)


@autotest()
def clamp():
    x = random_tensor(dtype=random_dtype(["float", "half", "int"]))
    low, high = (
        random_tensor(ndim=random(0, 2).to(int), dim0=1, low=-1, high=0.2),
        random_tensor(ndim=random(0, 2).to(int), dim0=1, low=-0.2, high=1),
    )
    numbers = torch.clamp(x, min=random(-2, 1).to(int), max=random(0, 3).to(int) | nothing())
    return numbers, torch.clamp(x, min=oneof(low, None), max=high), torch.clamp(x, max=random(-1, 2).to(int))


@autotest(dtypes=NUMBERS)
def addcmul():
    columns = random(1, 8).to(int)
    x = random_tensor(ndim=2, dim1=columns)
    y = random_tensor(ndim=2, dim0=1, dim1=oneof(1, columns))
    z = random_tensor(ndim=1, dim0=columns)
    return torch.addcmul(x, y, z, value=random(-2, 3) | nothing())


@autotest(dtypes=(*FLOATS, "complex64"))
def addcdiv():
    columns = random(1, 8).to(int)
    x = random_tensor(ndim=2, dim1=columns)
    y = random_tensor(ndim=1, dim0=oneof(1, columns))
    z = random_tensor(ndim=1, dim0=columns, low=0.5, high=2)
    return torch.addcdiv(x, y, z, value=random(-2, 3) | nothing())


@autotest(dtypes=(*FLOATS, "complex64"))
def lerp():
    # At a weight of one half the formula changes.
    x = random_tensor()
    y, weight = (
        random_tensor(ndim=random(0, 2).to(int), dim0=1),
        random_tensor(ndim=random(0, 2).to(int), dim0=1, low=0),
    )
    return torch.lerp(x, y, oneof(weight, 0.5, -0.25, 0.75, random(-1, 2).to(float)))


@autotest()
def hypot():
    x = random_tensor(low=0.1, high=2)
    y = random_tensor(ndim=random(0, 2).to(int), dim0=1, low=0.1, high=2)
    return torch.hypot(x, y)


@autotest()
def atan2():
    x = random_tensor()
    y = random_tensor(ndim=random(0, 2).to(int), dim0=1, low=0.5, high=2)
    return torch.atan2(x, oneof(y, -y))


@autotest(dtypes=REALS)
def copysign():
    x = random_tensor(dtype=random_dtype(["float", "half", "int"]))
    y = random_tensor(ndim=random(0, 2).to(int), dim0=1)
    return torch.copysign(x, oneof(y, random(-2, 3).to(float)))


@autotest()
def numbers_beside_tensors():
    # A fraction makes floats of integers, and a boolean is a number.
    x = random_tensor(dtype=random_dtype(["float", "half", "int", "bool"]))
    number = oneof(2, -0.5, 1.5)
    return x * number, x + number, number - x * 1, x / number, torch.maximum(x * 1, torch.tensor(1))


@autotest(dtypes=REALS)
def clamp_between_tensors():
    x = random_tensor(dtype=random_dtype(["float", "half"]))
    low, high = random_tensor(ndim=random(0, 2).to(int), dim0=1), random_tensor(ndim=random(0, 2).to(int), dim0=1)
    return torch.clamp(x, min=low, max=oneof(high, None)), torch.clamp(x, max=high), torch.clamp(x, -1, oneof(1, 0))


@autotest()
def integers_near_the_ends():
    # Beyond the integers that floats hold; a product may wrap around.
    x = random_tensor(dtype=random_dtype(["int"])) * random_tensor(
        dims=(), low=1, high=oneof(2, 100), dtype=torch.int64
    )
    big = x.to(torch.int64) * oneof(1, 2**40 + 1) + oneof(0, 2**53 + 1)
    return big % 7, torch.fmod(big, 7), big // 3, big == big + 1, torch.maximum(big, big + 1), big - 1, torch.abs(big)


@autotest(dtypes=(*FLOATS, "complex64"))
def add_in_place():
    # On a copy: a leaf that requires grad may not be written to, an expanded one neither.
    columns = random(1, 8).to(int)
    x = random_tensor(ndim=2, dim1=columns).clone()
    y = random_tensor(ndim=1, dim0=columns)
    x += y
    return x.mul_(random(-2, 3).to(float))


@autotest()
def gcd_lcm():
    # Few numbers, so that zeros and equal ones occur.
    x = random_tensor(low=-12, high=13, dtype=random_dtype(["int"]))
    y = random_tensor(ndim=random(0, 2).to(int), dim0=1, low=-4, high=5, dtype=random_dtype(["int"]))
    return torch.gcd(x, y), torch.lcm(x, y)


@autotest()
def float_power():
    x = random_tensor(low=0.25, high=3, dtype=random_dtype(["float", "half"]))
    y = random_tensor(ndim=random(0, 2).to(int), dim0=1, low=-2, high=3, dtype=random_dtype(["float", "half", "int"]))
    return torch.float_power(x, oneof(y, random(-2, 4).to(int)))


@autotest()
def ldexp():
    x = random_tensor(dtype=random_dtype(["float", "half", "int"]))
    y = random_tensor(
        ndim=random(0, 2).to(int), dim0=1, low=-5, high=6, dtype=random_dtype(["float32", "half", "int64"])
    )
    return torch.ldexp(x, y)


@autotest()
def logaddexp2():
    x = random_tensor(low=-5, high=5, dtype=random_dtype(["float", "half"]))
    y = random_tensor(ndim=random(0, 2).to(int), dim0=1)
    return torch.logaddexp2(x, y)


@autotest()
def bitwise_right_shift():
    x = random_tensor(dtype=random_dtype(["int", "uint"]))
    shift = random_tensor(ndim=random(0, 2).to(int), dim0=1, low=0, high=5, dtype=int)
    return torch.bitwise_right_shift(x, oneof(shift, random(0, 5).to(int)))


@autotest(dtypes=NUMBERS)
def subtract_from_number():
    x = random_tensor(dtype=random_dtype(["float", "half", "int"]))
    y = random_tensor(ndim=random(0, 2).to(int), dim0=1)
    alpha = random(-2, 3).to(int) | nothing()
    return random(-3, 4).to(int) - x, torch.rsub(x, oneof(y, random(-3, 4).to(int)), alpha=alpha)


@autotest()
def divide_with_tensor():
    # Divisors keep away from zero: integers by zero raise.
    x = random_tensor(low=-20, high=21, dtype=random_dtype(["float", "half", "int"]), requires_grad=False)
    y = random_tensor(ndim=random(0, 2).to(int), dim0=1, low=1, high=6, dtype=int)
    sign = oneof(1, -1)
    return torch.remainder(x, y * sign), torch.fmod(x, y * sign), torch.floor_divide(x, y * sign)
