"""Arithmetic of two operands: broadcasting, promotion of types, Python numbers."""

from ci_autotest import autotest, nothing, oneof, random, random_tensor, torch


@autotest()
def add():
    columns = random(1, 8).to(int)
    x = random_tensor(ndim=2, dim1=columns)
    y = random_tensor(ndim=1, dim0=columns, dtype=oneof(torch.float32, torch.float64, torch.int64))
    return torch.add(x, oneof(y, random(-5, 6).to(int)), alpha=random(-3, 4).to(int) | nothing())


@autotest()
def sub():
    rows = random(1, 8).to(int)
    x = random_tensor(ndim=2, dim0=rows, dtype=oneof(torch.float32, torch.int64))
    y = random_tensor(ndim=2, dim0=rows, dim1=1)
    return torch.sub(x, y, alpha=random(-2, 3).to(float) | nothing())


@autotest()
def mul():
    # One element broadcasts against any shape, so that `x` is free to be 0-dim.
    x = random_tensor()
    y = random_tensor(ndim=1, dim0=1, dtype=oneof(torch.float32, torch.int32))
    return x * y


@autotest()
def div():
    columns = random(1, 8).to(int)
    x = random_tensor(ndim=random(2, 4).to(int), dim1=columns, dim2=columns)
    y = random_tensor(ndim=1, dim0=columns)
    return torch.div(x, y, rounding_mode=oneof(None, "floor", "trunc", nothing()))


@autotest()
def pow():  # noqa: A001 - the operator's name
    x = random_tensor()
    y = random_tensor(ndim=1, dim0=1, low=-2, high=3)
    return torch.pow(x, oneof(y, random(-2, 5).to(int), 0.5, -1.5))
