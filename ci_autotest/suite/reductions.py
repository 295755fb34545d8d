"""Reductions and scans: over everything, over one dimension, over several."""

from ci_autotest import autotest, nothing, oneof, random, random_bool, random_tensor, torch


@autotest()
def sum():  # noqa: A001 - the operator's name
    x = random_tensor(ndim=random(2, 6).to(int), dtype=oneof(torch.float32, torch.int64))
    return torch.sum(x, dim=oneof(None, 0, -1, (0, -1)), keepdim=random_bool(), dtype=torch.float64 | nothing())


@autotest()
def mean():
    # 0 and -1 are the dimensions that every rank has, a 0-dim tensor too.
    x = random_tensor()
    return torch.mean(x, dim=oneof(None, 0, -1), keepdim=random_bool())


@autotest()
def max():  # noqa: A001 - the operator's name
    # The index of a tie is defined: the first.
    ndim = random(1, 5).to(int)
    x = random_tensor(ndim=ndim, dtype=oneof(torch.float32, torch.int64))
    return torch.max(x, dim=random(-ndim, ndim).to(int), keepdim=random_bool())


@autotest()
def argmax():
    # The index of a tie is defined: the first.
    x = random_tensor(dtype=oneof(torch.float32, torch.int64))
    return torch.argmax(x, dim=oneof(None, 0, -1), keepdim=random_bool())


@autotest()
def var():
    ndim = random(1, 5).to(int)
    x = random_tensor(ndim=ndim)
    dim = random(-ndim, ndim).to(int)
    return torch.var(x, dim=oneof(None, dim), correction=random(0, 3).to(int) | nothing(), keepdim=random_bool())


@autotest()
def cumsum():
    ndim = random(1, 5).to(int)
    x = random_tensor(ndim=ndim, dtype=oneof(torch.float32, torch.int32))
    return torch.cumsum(x, dim=random(-ndim, ndim).to(int), dtype=torch.float64 | nothing())


@autotest()
def logsumexp():
    x = random_tensor(ndim=random(2, 5).to(int))
    return torch.logsumexp(x, dim=oneof(0, -1, (0, -1)), keepdim=random_bool())
