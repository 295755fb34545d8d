"""Gather and scatter: elements read from, and written to, the positions in an index tensor."""

from ci_autotest import index_tensor, nothing, oneof, random, random_bool, random_tensor, torch
from ci_autotest.suite import ANY, FLOATS, REALS, autotest


@autotest(dtypes=ANY)
def gather():
    rows = random(1, 8).to(int)
    x = random_tensor(ndim=2, dim0=rows)
    index = index_tensor(x, dim=1, dims=(rows, random(1, 8).to(int)))
    return torch.gather(x, oneof(1, -1), index)


@autotest(dtypes=ANY)
def scatter():
    # A number goes to every place: which of two writes comes last does not show.
    rows = random(1, 8).to(int)
    x = random_tensor(ndim=2, dim0=rows, dim1=random(1, 10).to(int))
    index = index_tensor(x, dim=1, dims=(rows, random(1, 8).to(int)))
    return torch.scatter(x, oneof(1, -1), index, random(-3, 4).to(float))


@autotest(dtypes=ANY)
def scatter_add():
    # Indices repeat: what falls on one element is summed.
    rows, columns = oneof(random(0, 12).to(int), 33), random(1, 8).to(int)
    x = random_tensor(ndim=2, dim0=random(1, 10).to(int), dim1=columns)
    index = index_tensor(x, dims=(rows, columns))
    source = random_tensor(ndim=2, dim0=rows, dim1=columns)
    return torch.scatter_add(x, oneof(0, -2), index, source)


@autotest(dtypes=(*FLOATS, "int64"))
def scatter_reduce():
    rows, columns = random(1, 12).to(int), random(1, 8).to(int)
    x = random_tensor(ndim=2, dim0=random(1, 10).to(int), dim1=columns)
    index = index_tensor(x, dims=(rows, columns))
    source = random_tensor(ndim=2, dim0=rows, dim1=columns)
    return torch.scatter_reduce(
        x, 0, index, source, reduce=oneof("sum", "mean", "prod", "amax", "amin"), include_self=random_bool() | nothing()
    )


@autotest(dtypes=ANY)
def index_put():
    # Accumulated: two writes to one place are summed.
    count = random(1, 8).to(int)
    x = random_tensor(ndim=2, dim0=random(1, 8).to(int), dim1=random(1, 8).to(int))
    rows, columns = index_tensor(x, dims=(count,), negative=True), index_tensor(x, dim=1, dims=(count,))
    source = random_tensor(dims=(oneof(1, count),))
    whole = random_tensor(dims=(count, 1))
    return torch.index_put(x, (rows, columns), source, accumulate=True), torch.index_put(
        x, (rows,), whole, accumulate=True
    )


@autotest(dtypes=REALS)
def masked_scatter():
    # At least as many elements to take from as there are places.
    rows, columns = random(1, 8).to(int), random(1, 8).to(int)
    x = random_tensor(dims=(rows, columns))
    source = random_tensor(dims=(rows, columns))
    return torch.masked_scatter(x, x > 0, source)


@autotest(dtypes=REALS)
def select_scatter():
    rows, columns = random(1, 8).to(int), random(1, 8).to(int)
    x = random_tensor(dims=(random(1, 5).to(int), rows, columns))
    source = random_tensor(dims=(rows, columns))
    return torch.select_scatter(x, source, 0, oneof(0, -1))


@autotest(dtypes=ANY)
def diagonal_scatter():
    size = random(1, 8).to(int)
    x = random_tensor(dims=(size, size))
    source = random_tensor(dims=(size,))
    return torch.diagonal_scatter(x, source)


@autotest(dtypes=REALS)
def slice_scatter():
    rows, columns = random(4, 9).to(int), random(1, 8).to(int)
    x = random_tensor(dims=(rows, columns))
    source = random_tensor(dims=(2, columns))
    y = torch.slice_scatter(x, source, start=oneof(0, nothing()), end=2)
    return y, torch.slice_scatter(x, source, 0, 1, 4, 2), torch.slice_scatter(x, source, dim=0, start=-2)


@autotest(dtypes=ANY)
def as_strided_scatter():
    x = random_tensor(dims=(random(4, 7).to(int), 4))
    source = random_tensor(dims=(2, 3))
    y = x * 2
    return torch.as_strided_scatter(y, source, (2, 3), oneof((3, 1), (1, 4)), oneof(0, 2, nothing())), torch.as_strided(
        y, (2, 3), oneof((3, 1), (1, 2)), storage_offset=oneof(0, 2, nothing())
    )


@autotest(dtypes=REALS)
def select_scatter_in_any_dimension():
    rows, columns = random(1, 8).to(int), random(2, 8).to(int)
    x = random_tensor(dims=(rows, columns))
    return torch.select_scatter(x, random_tensor(dims=(rows,)), oneof(1, -1), oneof(1, -2)), torch.diagonal_scatter(
        x, random_tensor(dims=(1,)), offset=columns - 1
    )
