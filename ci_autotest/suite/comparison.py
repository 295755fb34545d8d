"""Comparison and logic of numbers and booleans. A fault in these operators flips elements instead of scaling them."""

from ci_autotest import nothing, oneof, random, random_bool, random_dtype, random_tensor, torch
from ci_autotest.suite import FLOATS, REALS, autotest


@autotest()
def eq():
    # Few integers, so that many are equal.
    x = random_tensor(low=0, high=3, dtype=random_dtype(["int", "uint", "bool"]))
    y = random_tensor(ndim=random(0, 2).to(int), dim0=1, low=0, high=3, dtype=int)
    return x == y


@autotest()
def ne():
    x = random_tensor(low=0, high=3, dtype=random_dtype(["int", "uint", "bool"]))
    return x != oneof(random(0, 3).to(int), 1.0)


@autotest(dtypes=REALS)
def lt():
    x = random_tensor(dtype=random_dtype(["float", "half", "int"]))
    y = random_tensor(ndim=random(0, 2).to(int), dim0=1)
    return x < y


@autotest()
def le():
    x = random_tensor(low=-3, high=4, dtype=random_dtype(["int"]))
    return x <= random(-3, 4)


@autotest(dtypes=REALS)
def gt():
    x = random_tensor(dtype=random_dtype(["float", "half"]))
    y = random_tensor(ndim=random(0, 2).to(int), dim0=1)
    return x > y


@autotest()
def ge():
    x = random_tensor(low=-3, high=4, dtype=random_dtype(["int"]))
    return x >= random(-3, 4)


@autotest(dtypes=(*FLOATS, "complex64"))
def isclose():
    x = random_tensor()
    return torch.isclose(x, x * 1.001, rtol=random(1e-4, 1e-2).to(float), atol=random(0, 1e-3).to(float))


@autotest()
def isnan():
    x = random_tensor(dtype=random_dtype(["float", "half", "int"]))
    return torch.isnan(x), torch.isnan(x / torch.round(x) * 0)


@autotest()
def isinf():
    x = random_tensor(dtype=random_dtype(["float", "half"]))
    return torch.isinf(x / torch.round(x))


@autotest()
def isfinite():
    x = random_tensor(dtype=random_dtype(["float", "half"]))
    return torch.isfinite(x / torch.round(x))


@autotest()
def signbit():
    x = random_tensor(dtype=random_dtype(["float", "half", "int"]))
    return torch.signbit(x)


@autotest()
def logical_and():
    x = random_tensor(low=0, high=2, dtype=random_dtype(["bool", "int", "uint"]))
    y = random_tensor(
        ndim=random(0, 2).to(int), dim0=1, low=0, high=3, dtype=random_dtype(["bool", "int64", "float32", "half"])
    )
    return torch.logical_and(x, y)


@autotest()
def logical_or():
    x = random_tensor(low=0, high=2, dtype=random_dtype(["bool", "int", "uint"]))
    y = random_tensor(
        ndim=random(0, 2).to(int), dim0=1, low=0, high=3, dtype=oneof(torch.bool, torch.int64, torch.float32)
    )
    return torch.logical_or(x, y)


@autotest()
def logical_xor():
    x = random_tensor(low=0, high=2, dtype=random_dtype(["bool", "int", "uint"]))
    y = random_tensor(
        ndim=random(0, 2).to(int), dim0=1, low=0, high=3, dtype=random_dtype(["bool", "int64", "float32", "half"])
    )
    return torch.logical_xor(x, y)


@autotest()
def logical_not():
    x = random_tensor(low=0, high=2, dtype=random_dtype(["float", "half", "int", "bool"]))
    return torch.logical_not(x)


@autotest()
def isin():
    x = random_tensor(low=0, high=5, dtype=random_dtype(["int"]))
    y = random_tensor(ndim=1, low=0, high=5, dtype=int)
    return torch.isin(x, y, assume_unique=oneof(False, nothing()), invert=random_bool() | nothing())


@autotest(dtypes=REALS)
def fmax_fmin():
    x = random_tensor(dtype=random_dtype(["float", "half", "int"]))
    y = random_tensor(ndim=random(0, 2).to(int), dim0=1)
    return torch.fmax(x, y), torch.fmin(x, y)


@autotest()
def isneginf_isposinf():
    x = random_tensor(dtype=random_dtype(["float", "half", "int"]))
    y = x / torch.round(x)
    return torch.isneginf(x), torch.isposinf(x), torch.isneginf(y), torch.isposinf(y)


@autotest()
def isreal():
    x = random_tensor(dtype=random_dtype(["float", "half", "complex"]))
    return torch.isreal(x), torch.isreal(x * 0 + 1)


@autotest(dtypes=(*FLOATS, "complex64"))
def equal_allclose():
    # Whole tensors: one number is the answer.
    x = random_tensor(requires_grad=False)
    y = x * oneof(1.0, 1.000001, 1.001)
    close = torch.allclose(
        x, y, rtol=oneof(1e-2, nothing()), atol=oneof(1e-3, nothing()), equal_nan=random_bool() | nothing()
    )
    return torch.full((2,), close), torch.full((2,), torch.equal(x, y))
