"""Creation: tensors from numbers, from another tensor's shape, from ranges."""

from ci_autotest import nothing, oneof, random, random_bool, random_dtype, random_tensor, torch
from ci_autotest.suite import autotest


@autotest()
def zeros_like():
    x = random_tensor()
    return torch.zeros_like(x, dtype=random_dtype(["float", "half", "int"]) | nothing())


@autotest()
def ones_like():
    x = random_tensor(dtype=random_dtype(["float", "half", "int"]))
    return torch.ones_like(x, dtype=random_dtype(["float", "half", "int"]) | nothing())


@autotest()
def full_like():
    x = random_tensor(dtype=random_dtype(["float", "half", "int"]))
    return torch.full_like(x, random(-9, 10).to(int), dtype=random_dtype(["float", "half", "int"]) | nothing())


@autotest()
def new_zeros():
    x = random_tensor(dtype=random_dtype(["float", "half", "int"]))
    return x.new_zeros(
        (random(1, 5).to(int), random(0, 5).to(int)), dtype=random_dtype(["float", "half", "int"]) | nothing()
    )


@autotest()
def full():
    return torch.full((random(0, 8).to(int), random(1, 8).to(int)), random(-9, 10).to(int), dtype=random_dtype())


@autotest()
def arange():
    start = random(-10, 10).to(int)
    return torch.arange(
        start,
        start + random(0, 30).to(int),
        random(1, 5).to(int),
        dtype=random_dtype(["float", "half", "index"]) | nothing(),
    )


@autotest()
def linspace():
    low, high, steps = random(-5, 0).to(float), random(0, 5).to(float), random(0, 40).to(int)
    whole = torch.linspace(random(-9, 0).to(int), random(0, 30).to(int), steps=oneof(2, 4, 11, 33), dtype=torch.int64)
    return torch.linspace(low, high, steps=steps, dtype=torch.float64), whole


@autotest()
def logspace():
    return torch.logspace(random(-2, 0).to(float), random(0, 2).to(float), steps=random(0, 20), dtype=torch.float64)


@autotest()
def eye():
    return torch.eye(random(0, 8), random(1, 8).to(int) | nothing(), dtype=random_dtype())


@autotest()
def tril_indices():
    return torch.tril_indices(random(1, 8).to(int), random(1, 8).to(int), offset=random(-2, 3).to(int))


@autotest()
def one_hot():
    x = random_tensor(low=0, high=5, dtype=int)
    return torch.nn.functional.one_hot(x, random(5, 9))


@autotest()
def to():
    # From values that every dtype holds.
    x = random_tensor(low=0, high=oneof(1, 9), dtype=random_dtype(["float", "half", "int", "bool"]))
    return x.to(random_dtype(["float", "half", "int", "uint", "bool"]), copy=random_bool())


@autotest()
def windows():
    length, periodic = random(1, 20).to(int), random_bool() | nothing()
    dtype = torch.float64 | nothing()
    return (
        torch.bartlett_window(length, periodic=periodic, dtype=dtype),
        torch.blackman_window(length, periodic=periodic, dtype=dtype),
        torch.hann_window(length, periodic=periodic, dtype=dtype),
    )


@autotest()
def windows_with_a_form():
    length, periodic = random(1, 20).to(int), random_bool()
    beta = random(1, 15).to(float)
    return (
        torch.kaiser_window(length), torch.kaiser_window(length, periodic=periodic, beta=beta, dtype=torch.float64),
        torch.hamming_window(length), torch.hamming_window(length, periodic, 0.5, 0.4),
    )  # fmt: skip


@autotest()
def zeros_ones():
    size, dtype = (
        (random(0, 5).to(int), random(1, 5).to(int)),
        random_dtype(["float", "half", "int", "bool"]) | nothing(),
    )
    return torch.zeros(size, dtype=dtype), torch.ones(size, dtype=dtype)


@autotest()
def empty():
    # What is in it is undefined until it is filled.
    x = random_tensor(dtype=random_dtype(["float", "half", "int"]))
    dtype = random_dtype(["float", "half", "int"]) | nothing()
    size = (random(0, 5).to(int), random(1, 5).to(int))
    return torch.empty_like(x, dtype=dtype).fill_(2), torch.empty(size, dtype=dtype).fill_(3)


@autotest()
def tensor():
    number = random(-5, 6).to(int)
    dtype = random_dtype(["float", "half", "int"]) | nothing()
    return torch.tensor([1, number], dtype=dtype), torch.tensor(oneof(1.5, True, 3))


@autotest()
def triu_indices():
    rows, columns, offset = random(1, 8).to(int), random(1, 8).to(int), random(-3, 4).to(int) | nothing()
    return torch.triu_indices(rows, columns, offset=offset), torch.tril_indices(rows, columns, offset=offset)


@autotest()
def linspace_of_tensors():
    x = random_tensor(dims=(), low=-3, high=0, requires_grad=False)
    y = random_tensor(dims=(), low=0, high=3, requires_grad=False)
    steps, dtype = oneof(0, 1, 2, 5, 12), torch.float64 | nothing()
    return (
        torch.linspace(x, y, steps, dtype=dtype), torch.linspace(-1.5, y, steps), torch.linspace(x, 2.0, steps),
    )  # fmt: skip


@autotest()
def logspace_of_tensors():
    x = random_tensor(dims=(), low=-2, high=0, requires_grad=False)
    y = random_tensor(dims=(), low=0, high=2, requires_grad=False)
    steps, base = oneof(0, 1, 2, 5, 12), oneof(2.0, nothing())
    return (
        torch.logspace(x, y, steps, base=base, dtype=torch.float64), torch.logspace(-1.5, y, steps, base=base),
        torch.logspace(x, 2.0, steps, base=base), torch.logspace(0, 3, steps, dtype=oneof(torch.int64, nothing())),
    )  # fmt: skip
