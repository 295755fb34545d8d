"""Sizes above those of the profiles: more than 65,536 elements, with a rest after a multiple of 64, and long sums."""

from ci_autotest import oneof, random, random_dtype, random_tensor, torch
from ci_autotest.suite import autotest

#: Elements: above 2 to the 16th, and one more than a multiple of 64.
MANY = 65_601
#: Terms of a long sum, as many as a boundary size has.
LONG = 1_025


@autotest()
def many_elements():
    x = random_tensor(dims=(MANY,))
    return torch.sigmoid(x), torch.where(x > 0, x, x * 2)


@autotest()
def many_reduced():
    x = random_tensor(dims=(MANY,), dtype=random_dtype(["float", "half", "int"]), requires_grad=False)
    return torch.sum(x), torch.amax(x), torch.cumsum(x, 0), torch.count_nonzero(x)


@autotest()
def many_rows():
    # Each of one element: the index of the greatest is zero.
    x = torch.arange(MANY)[:, None] % random(3, 9).to(int)
    return torch.argmax(x, 1), torch.amax(x, 1), torch.cat((x, x), 1)[-1]


@autotest()
def many_moved():
    x = random_tensor(dims=(LONG, 64), requires_grad=False)
    return x.mT.contiguous(), torch.index_select(x, 0, torch.arange(LONG).flip(0)), torch.cumsum(x, 0)


@autotest()
def long_products():
    rows, dtype = random(1, 4).to(int), random_dtype(["float", "half"])
    x = random_tensor(dims=(rows, LONG), low=0, high=1, dtype=dtype)
    y = random_tensor(dims=(LONG, 2), low=0, high=1, dtype=dtype)
    return x @ y, torch.mv(x, y[:, 0])


@autotest()
def long_rows():
    rows, dtype = random(1, 3).to(int), random_dtype(["float", "half"])
    x = random_tensor(dims=(rows, LONG), dtype=dtype)
    dim = oneof(1, -1)
    layers = torch.nn.functional
    return layers.softmax(x, dim), layers.layer_norm(x, (LONG,)), torch.sum(x, dim)


@autotest()
def long_embedding():
    table = random_tensor(dims=(random(5, 9).to(int), 3))
    index = torch.arange(LONG) % 5
    return torch.nn.functional.embedding(index, table, padding_idx=oneof(0, 2)), torch.index_select(table, 0, index)
