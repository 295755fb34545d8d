"""Indexing: by integer tensors, masks, slices. Drawn indices stay below the least size that is indexed."""

from ci_autotest import autotest, oneof, random, random_tensor, torch

#: Size that every indexed dimension has at least.
LEAST = 5


@autotest()
def gather():
    rows = random(1, 8).to(int)
    x = random_tensor(ndim=2, dim0=rows, dim1=random(LEAST, 10).to(int))
    index = random_tensor(ndim=2, dim0=rows, low=0, high=LEAST, dtype=int)
    return torch.gather(x, oneof(1, -1), index)


@autotest()
def index_select():
    x = random_tensor(ndim=3, dim1=random(LEAST, 10).to(int))
    index = random_tensor(ndim=1, low=0, high=LEAST, dtype=oneof(torch.int32, torch.int64))
    return torch.index_select(x, oneof(1, -2), index)


@autotest()
def scatter_add():
    # Indices repeat: what falls on one element is summed.
    rows, columns = oneof(random(0, 12).to(int), 33), random(1, 8).to(int)
    x = random_tensor(ndim=2, dim0=random(LEAST, 10).to(int), dim1=columns)
    index = random_tensor(ndim=2, dim0=rows, dim1=columns, low=0, high=LEAST, dtype=int)
    source = random_tensor(ndim=2, dim0=rows, dim1=columns)
    return torch.scatter_add(x, oneof(0, -2), index, source)


@autotest()
def where():
    # One element broadcasts against any shape, so that `x` is free to be 0-dim.
    x = random_tensor()
    y = random_tensor(ndim=1, dim0=1)
    return torch.where(x > 0, x, oneof(y, random(-2, 3).to(float)))


@autotest()
def getitem():
    x = random_tensor(ndim=3, dim1=random(LEAST, 10).to(int), dim2=random(LEAST, 10).to(int))
    index = random_tensor(ndim=1, low=-LEAST, high=LEAST, dtype=int)
    taken = x[:, index, random(0, 3).to(int) : random(3, LEAST + 1).to(int) : random(1, 3).to(int)]
    return taken, x[..., random(-LEAST, LEAST).to(int)], x[x > 0], x[:, None]
