"""Creation: tensors from numbers, from another tensor's shape, from ranges."""

from ci_autotest import autotest, nothing, oneof, random, random_bool, random_dtype, random_tensor, torch


@autotest()
def zeros_like():
    x = random_tensor()
    return torch.zeros_like(x, dtype=random_dtype(["float", "int"]) | nothing())


@autotest()
def ones_like():
    x = random_tensor(dtype=random_dtype(["float", "int"]))
    return torch.ones_like(x, dtype=random_dtype(["float", "int"]) | nothing())


@autotest()
def full_like():
    x = random_tensor(dtype=random_dtype(["float", "int"]))
    return torch.full_like(x, random(-9, 10).to(int))


@autotest()
def new_zeros():
    x = random_tensor(dtype=random_dtype(["float", "int"]))
    return x.new_zeros((random(1, 5).to(int), random(0, 5).to(int)))


@autotest()
def full():
    return torch.full((random(0, 8).to(int), random(1, 8).to(int)), random(-9, 10).to(int), dtype=random_dtype())


@autotest()
def arange():
    start = random(-10, 10).to(int)
    return torch.arange(
        start, start + random(0, 30).to(int), random(1, 5).to(int), dtype=random_dtype(["float", "index"]) | nothing()
    )


@autotest()
def linspace():
    return torch.linspace(random(-5, 0).to(float), random(0, 5).to(float), steps=random(0, 40), dtype=torch.float64)


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
    x = random_tensor(low=0, high=oneof(1, 9), dtype=random_dtype(["float", "int", "bool"]))
    return x.to(random_dtype(["half", "float", "int", "uint", "bool"]), copy=random_bool())
