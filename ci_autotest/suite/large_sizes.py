"""Sizes above those of the profiles: more than 65,536 elements, with a rest after a multiple of 64, and long sums."""

from ci_autotest import autotest, oneof, random, random_dtype, random_tensor, torch

#: Elements: above 2 to the 16th, and one more than a multiple of 64.
MANY = 65_601
#: Terms of a long sum, as many as a boundary size has.
LONG = 1_025


@autotest()
def many_elements():
    x = random_tensor(dims=(MANY,))
    return torch.exp(x), x + x.flip(0), torch.where(x > 0, x, -x), torch.clamp(x, -0.5, 0.5)


@autotest()
def many_integers():
    x = random_tensor(dims=(MANY,), dtype=random_dtype(["int", "uint", "bool"]))
    return torch.sum(x), torch.cumsum(x, 0), torch.any(x), torch.count_nonzero(x), x.to(torch.float32), x == x.flip(0)


@autotest()
def many_reduced():
    x = random_tensor(dims=(MANY,), dtype=random_dtype(["half", "float"]))
    return torch.sum(x), torch.mean(x), torch.amax(x), torch.logsumexp(x, 0), torch.softmax(x, 0)


@autotest()
def many_rows():
    # Each of one element: the index of the greatest is zero.
    x = random_tensor(dims=(MANY, 1), requires_grad=False)
    return (
        torch.argmax(x, 1),
        torch.amax(x, 1),
        torch.cumsum(x, 1),
        torch.softmax(x, 1),
        torch.sort(x, dim=0, stable=True)[0],
    )


@autotest()
def many_moved():
    x = random_tensor(dims=(LONG, 64), requires_grad=False)
    index = torch.arange(LONG).flip(0)
    return (
        x.mT.contiguous(),
        torch.cat((x, x)),
        torch.index_select(x, 0, index),
        torch.cumsum(x, 0),
        torch.roll(x, 7, 0),
    )


@autotest()
def million_scanned():
    # Along the first of two dimensions.
    x = (torch.arange(LONG * LONG) % random(5, 99).to(int)).reshape(LONG, LONG)
    return torch.cumsum(x, 0)[-1], torch.argmax(x, 0)


@autotest()
def long_products():
    rows, dtype = random(1, 4).to(int), random_dtype(["half", "float"])
    x = random_tensor(dims=(rows, LONG), low=0, high=1, dtype=dtype)
    y = random_tensor(dims=(LONG, 2), low=0, high=1, dtype=dtype)
    return x @ y, torch.mv(x, y[:, 0]), torch.nn.functional.linear(x, y.mT)


@autotest()
def long_rows():
    rows, dtype = random(1, 3).to(int), random_dtype(["half", "float"])
    x = random_tensor(dims=(rows, LONG), dtype=dtype)
    dim = oneof(1, -1)
    layers = torch.nn.functional
    return layers.softmax(x, dim), layers.log_softmax(x, dim), layers.layer_norm(x, (LONG,)), torch.sum(x, dim)


@autotest()
def long_embedding():
    table = random_tensor(dims=(random(5, 9).to(int), 3))
    index = torch.arange(LONG) % 5
    return torch.nn.functional.embedding(index, table, padding_idx=oneof(0, 2)), torch.index_select(table, 0, index)
