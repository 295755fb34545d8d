"""Indexing with integer tensors, masks and slices. Drawn indices are below the size of the indexed dimension."""

from ci_autotest import index_tensor, nothing, oneof, random, random_dtype, random_tensor, torch
from ci_autotest.suite import ANY, FLOATS, NUMBERS, REALS, autotest

#: Size that a dimension has at least where numbers of the test index it.
LEAST = 5


@autotest(dtypes=ANY)
def index_select():
    x = random_tensor(ndim=3)
    index = index_tensor(x, dim=1, ndim=1, dtype=random_dtype(["index"]))
    return torch.index_select(x, oneof(1, -2), index)


@autotest(dtypes=ANY)
def index_add():
    # Indices repeat: what falls on one row is summed.
    rows, columns = random(1, 8).to(int), random(1, 8).to(int)
    x = random_tensor(ndim=2, dim1=columns)
    index = index_tensor(x, dims=(rows,))
    source = random_tensor(dims=(rows, columns))
    return torch.index_add(x, 0, index, source, alpha=random(-2, 3))


@autotest(dtypes=NUMBERS)
def index_copy():
    # One row: of two that go to one place, which stays is anyone's guess.
    x = random_tensor(ndim=2, dim0=random(1, 8).to(int), dim1=random(1, 8).to(int))
    index = index_tensor(x, dims=(1,))
    return torch.index_copy(x, 0, index, x[:1] * 3)


@autotest(dtypes=(*FLOATS, "int64"))
def index_fill():
    x = random_tensor(ndim=3, dtype=random_dtype(["float", "half", "int"]))
    index = index_tensor(x, dim=1, ndim=1)
    return torch.index_fill(x, oneof(1, -2), index, random(-3, 4).to(int))


@autotest(dtypes=ANY)
def take():
    x = random_tensor(ndim=1)
    index = index_tensor(x, negative=True)
    return torch.take(x, index)


@autotest(dtypes=ANY)
def take_along_dim():
    rows = random(1, 8).to(int)
    x = random_tensor(ndim=2, dim0=rows)
    index = index_tensor(x, dim=1, dims=(oneof(1, rows), random(1, 5).to(int)))
    return torch.take_along_dim(x, index, dim=oneof(1, -1))


@autotest(dtypes=REALS)
def where():
    # One element broadcasts against any shape, so that `x` is free to be 0-dim.
    x = random_tensor()
    y = random_tensor(ndim=1, dim0=1)
    return torch.where(x > 0, x, oneof(y, random(-2, 3).to(float)))


@autotest()
def masked_fill():
    x = random_tensor(dtype=random_dtype(["float", "half", "int"]))
    return torch.masked_fill(x, x > 0, random(-3, 4).to(int))


@autotest(dtypes=ANY)
def masked_along_rows():
    # One element of the mask for a row.
    rows = random(1, 6).to(int)
    x = random_tensor(ndim=2, dim0=rows, dim1=oneof(random(1, 8).to(int), 8, 16))
    mask = random_tensor(dims=(rows, 1), dtype=bool)
    return torch.masked_fill(x, mask, 2), torch.where(mask, x, 0.5), torch.masked_select(x, mask)


@autotest()
def masked_select():
    x = random_tensor(dtype=random_dtype(["float", "half", "int"]))
    return torch.masked_select(x, x > 0)


@autotest()
def nonzero():
    # Of a computed value: a compiler runs an operator whose shape follows from data by itself, and compiles the rest.
    x = random_tensor(low=-2, high=3, dtype=random_dtype(["float", "half", "int"]), requires_grad=False)
    return torch.nonzero(torch.round(x))


@autotest()
def getitem():
    x = random_tensor(ndim=3, dim1=random(LEAST, 10).to(int), dim2=random(LEAST, 10).to(int))
    index = random_tensor(ndim=1, low=-LEAST, high=LEAST, dtype=int)
    taken = x[:, index, random(0, 3).to(int) : random(3, LEAST + 1).to(int) : random(1, 3).to(int)]
    return taken, x[..., random(-LEAST, LEAST).to(int)], x[x > 0], x[:, None]


@autotest(dtypes=ANY)
def setitem():
    # On a copy: a leaf that requires grad may not be written to, an expanded one neither.
    x = random_tensor(ndim=3, dim1=random(LEAST, 10).to(int), dim2=random(LEAST, 10).to(int)).clone()
    x[:, random(-LEAST, LEAST).to(int)] = random(-3, 4).to(float)
    x[..., random(0, 3).to(int) : random(3, LEAST + 1).to(int)] = x[:, :1, :1] * 2
    return x


@autotest(dtypes=ANY)
def select():
    x = random_tensor(ndim=random(2, 6).to(int), dim1=random(LEAST, 10).to(int))
    return torch.select(x, 1, random(-LEAST, LEAST))


@autotest(dtypes=ANY)
def narrow():
    x = random_tensor(ndim=random(2, 6).to(int), dim1=random(LEAST, 10).to(int))
    start, length = random(0, 3).to(int), random(0, 3).to(int)
    return torch.narrow(x, 1, start, length), torch.narrow_copy(x, 1, start, length)


@autotest(dtypes=ANY)
def diagonal():
    x = random_tensor(ndim=random(2, 6).to(int))
    return torch.diagonal(x, offset=random(-3, 4).to(int), dim1=0, dim2=oneof(1, -1))


@autotest()
def argwhere():
    # Of a computed value, as in `nonzero`.
    x = random_tensor(low=-2, high=3, dtype=random_dtype(["float", "half", "int"]), requires_grad=False)
    return torch.argwhere(torch.round(x)), torch.nonzero(torch.round(x), as_tuple=True)


@autotest()
def nonzero_static():
    x = random_tensor(low=-2, high=3, dtype=random_dtype(["int"]), requires_grad=False)
    return torch.nonzero_static(x, size=random(0, 9).to(int), fill_value=random(-3, 0).to(int) | nothing())


@autotest(dtypes=(*FLOATS, "complex64"))
def put():
    # Accumulated: two writes to one place are summed.
    count = random(1, 8).to(int)
    x = random_tensor(ndim=random(1, 3).to(int), dim0=random(2, 9).to(int))
    index = random_tensor(dims=(count,), low=-2, high=2, dtype=int)
    return x.put(index, random_tensor(dims=(count,)), accumulate=True)


@autotest()
def unravel_index():
    index = random_tensor(low=0, high=24, dtype=int)
    return torch.unravel_index(index, oneof((2, 3, 4), (24,), (6, 4)))


@autotest(dtypes=ANY)
def index_add_without_factor():
    rows, columns = random(1, 8).to(int), random(1, 8).to(int)
    x = random_tensor(ndim=2, dim1=columns, dtype=random_dtype(["float", "half", "int"]))
    index = index_tensor(x, dims=(rows,))
    source = random_tensor(dims=(rows, columns)).to(x.dtype)
    mask = random_tensor(ndim=2, dim0=1, dim1=columns, dtype=bool)
    value = random_tensor(dims=(), requires_grad=False).to(x.dtype)
    return torch.index_add(x, 0, index, source), torch.masked_fill(x, mask, value), torch.index_fill(x, 0, index, value)
