"""Linear algebra: products of matrices, vectors and batches of them; sums of products."""

from ci_autotest import nothing, oneof, random, random_bool, random_dtype, random_tensor, torch
from ci_autotest.suite import ANY, FLOATS, NUMBERS, autotest


@autotest(dtypes=NUMBERS)
def matmul():
    # A matrix or a batch of them, times a vector or a matrix; sizes beyond the drawn rank are not used.
    inner = random(1, 17).to(int)
    x = random_tensor(ndim=random(2, 4).to(int), dim1=inner, dim2=inner)
    y = random_tensor(ndim=random(1, 3).to(int), dim0=inner)
    return x @ y


@autotest()
def mm():
    inner, dtype = oneof(random(1, 17).to(int), 0, 33), random_dtype(["float", "half", "int", "complex"])
    x = random_tensor(ndim=2, dim1=inner, dtype=dtype)
    y = random_tensor(ndim=2, dim0=inner, dtype=dtype)
    return torch.mm(x, y)


@autotest(dtypes=NUMBERS)
def mv():
    inner = random(1, 17).to(int)
    x = random_tensor(ndim=2, dim1=inner)
    y = random_tensor(ndim=1, dim0=inner)
    return torch.mv(x, y)


@autotest()
def dot():
    size, dtype = oneof(random(0, 17).to(int), 129), random_dtype(["float", "half", "int"])
    x = random_tensor(ndim=1, dim0=size, dtype=dtype)
    y = random_tensor(ndim=1, dim0=size, dtype=dtype)
    return torch.dot(x, y)


@autotest(dtypes=ANY)
def outer():
    x = random_tensor(ndim=1, dtype=random_dtype(["float", "half", "int"]))
    y = random_tensor(ndim=1)
    return torch.outer(x, y)


@autotest(dtypes=NUMBERS)
def bmm():
    batch, inner = random(1, 5).to(int), oneof(random(1, 17).to(int), 0, 33)
    x = random_tensor(ndim=3, dim0=batch, dim2=inner)
    y = random_tensor(ndim=3, dim0=batch, dim1=inner)
    return torch.bmm(x, y)


@autotest(dtypes=None)
def linear():
    features = random(1, 17).to(int)
    module = torch.nn.Linear(features, random(1, 17), bias=random_bool())
    x = random_tensor(ndim=random(2, 4).to(int), dim1=features, dim2=features)
    return module(x)


@autotest(dtypes=(*FLOATS, "int64"))
def bilinear():
    batch, left, right = random(1, 5).to(int), random(1, 6).to(int), random(1, 6).to(int)
    outer_size = random(1, 6).to(int)
    x = random_tensor(ndim=2, dim0=batch, dim1=left)
    y = random_tensor(ndim=2, dim0=batch, dim1=right)
    weight = random_tensor(dims=(outer_size, left, right))
    bias = random_tensor(dims=(outer_size,))
    return torch.nn.functional.bilinear(x, y, weight, bias=oneof(bias, nothing()))


@autotest(dtypes=NUMBERS)
def addmm():
    rows, inner, columns = (
        random(0, 9).to(int),
        oneof(random(0, 17).to(int), 129),
        random(1, 9).to(int),
    )
    x = random_tensor(ndim=2, dim0=oneof(1, rows), dim1=columns)
    y = random_tensor(ndim=2, dim0=rows, dim1=inner)
    z = random_tensor(ndim=2, dim0=inner, dim1=columns)
    beta = oneof(0, random(-2, 3).to(float), nothing())
    return torch.addmm(x, y, z, beta=beta, alpha=random(-2, 3) | nothing())


@autotest()
def addmv():
    rows, inner = random(1, 9).to(int), random(1, 17).to(int)
    dtype = random_dtype(["float", "half", "int", "complex"])
    x = random_tensor(ndim=1, dim0=oneof(1, rows), dtype=dtype)
    y = random_tensor(ndim=2, dim0=rows, dim1=inner, dtype=dtype)
    z = random_tensor(ndim=1, dim0=inner, dtype=dtype)
    return torch.addmv(x, y, z, beta=oneof(0, 2, nothing()), alpha=oneof(0, -2, nothing()))


@autotest()
def addr():
    rows, columns = random(1, 9).to(int), random(1, 9).to(int)
    dtype = random_dtype(["float32", "half", "int64", "bool"])
    x = random_tensor(ndim=2, dim0=rows, dim1=oneof(1, columns), dtype=dtype)
    y = random_tensor(ndim=1, dim0=rows, dtype=dtype)
    z = random_tensor(ndim=1, dim0=columns, dtype=dtype)
    return torch.addr(x, y, z, beta=oneof(0, 1, -2, nothing()), alpha=oneof(0, 1, 2, nothing()))


@autotest(dtypes=NUMBERS)
def baddbmm():
    batch, rows, columns = (random(1, 5).to(int) for _ in range(3))
    inner = random(0, 5).to(int)
    x = random_tensor(dims=(batch, oneof(1, rows), columns))
    y = random_tensor(dims=(batch, rows, inner))
    z = random_tensor(dims=(batch, inner, columns))
    return torch.baddbmm(x, y, z, beta=oneof(0, 2, nothing()), alpha=oneof(0, -2, nothing()))


@autotest()
def input_that_counts_zero_times():
    # It is not read: whatever it holds, NaN too, does not come through.
    rows, inner, columns = (random(1, 5).to(int) for _ in range(3))
    x, y = random_tensor(dims=(rows, inner)), random_tensor(dims=(inner, columns))
    nothing_read = torch.full((rows, columns), oneof(float("nan"), float("inf"), 1.0), dtype=x.dtype)
    batch = nothing_read[None]
    return (
        torch.addmm(nothing_read, x, y, beta=0), torch.addmv(nothing_read[:, 0], x, y[:, 0], beta=0),
        torch.baddbmm(batch, x[None], y[None], beta=0), torch.addbmm(nothing_read, x[None], y[None], beta=0),
    )  # fmt: skip


@autotest(dtypes=NUMBERS)
def einsum():
    # Contracted, kept, repeated and reordered letters.
    inner, shared = random(1, 6).to(int), random(1, 6).to(int)
    x = random_tensor(ndim=3, dim1=inner, dim2=shared)
    y = random_tensor(ndim=3, dim0=shared, dim1=inner)
    return torch.einsum(oneof("aij,jib->ab", "aij,jib->bja", "aij,jib->", "aij,jib"), x, y)


@autotest(dtypes=NUMBERS)
def tensordot():
    inner, shared = random(1, 6).to(int), random(1, 6).to(int)
    x = random_tensor(ndim=3, dim1=inner, dim2=shared)
    y = random_tensor(ndim=3, dim0=inner, dim1=shared)
    return torch.tensordot(x, y, dims=oneof(2, ([2, 1], [1, 0]), ([1], [0])))


@autotest(dtypes=ANY)
def kron():
    x = random_tensor(ndim=2)
    y = random_tensor(ndim=random(1, 3).to(int))
    return torch.kron(x, y)


@autotest()
def trace():
    x = random_tensor(ndim=2, dtype=random_dtype(["float", "half", "int"]))
    return torch.trace(x)


@autotest(dtypes=None)
def cdist():
    # Apart from one another: the root's gradient at a distance of zero is a convention.
    size = random(1, 6).to(int)
    x = random_tensor(ndim=3, dim0=1, dim2=size, low=1, high=2)
    y = random_tensor(ndim=2, dim1=size, low=-2, high=-1)
    return torch.cdist(x, y, p=oneof(1.0, 2.0, 3.0, nothing()))


@autotest()
def cdist_of_points_with_equal_parts():
    # Equal in their first coordinate, and far apart in the others.
    size = random(1, 6).to(int)
    x, y = random_tensor(dims=(3, size), low=1, high=2), random_tensor(dims=(4, size), low=-2, high=-1)
    first = torch.zeros(4, 1)
    p = oneof(0.5, 1.0, 2.0, float("inf"))
    return torch.cdist(torch.cat((first[:3], x), 1), torch.cat((first, y), 1), p=p)


@autotest()
def cosine_similarity():
    # Wide of zero: at the origin an angle is not defined.
    columns = random(1, 8).to(int)
    x = random_tensor(ndim=2, dim1=columns, low=0.5, high=2)
    y = random_tensor(ndim=1, dim0=columns, low=-2, high=-0.5)
    return torch.nn.functional.cosine_similarity(x, y, dim=oneof(1, -1, nothing()), eps=oneof(1e-2, nothing()))


@autotest()
def addbmm():
    batch, rows, inner, columns = (random(1, 5).to(int) for _ in range(4))
    dtype = random_dtype(["float", "half", "int"])
    x = random_tensor(dims=(oneof(1, rows), columns), dtype=dtype)
    y = random_tensor(dims=(batch, rows, inner), dtype=dtype)
    z = random_tensor(dims=(batch, inner, columns), dtype=dtype)
    return torch.addbmm(x, y, z, beta=random(-2, 3) | nothing(), alpha=random(-2, 3) | nothing())


@autotest()
def inner():
    size, dtype = random(1, 9).to(int), random_dtype(["float", "half", "complex"])
    x = random_tensor(ndim=random(1, 3).to(int), dim0=size, dim1=size, dtype=dtype)
    y = random_tensor(ndim=1, dim0=size, dtype=dtype)
    return torch.inner(x, y), torch.linalg.vecdot(x, y, dim=oneof(-1, nothing())), torch.vdot(y, y * 2)


@autotest()
def transposed():
    x = random_tensor(ndim=2, dtype=random_dtype(["float", "half", "complex"]))
    return torch.t(x), torch.adjoint(x), torch.block_diag(x, x[:1] * 2)


@autotest(dtypes=NUMBERS)
def cross():
    x = random_tensor(ndim=2, dim0=3)
    y = random_tensor(ndim=2, dim0=3, dim1=1)
    return torch.cross(x, y, dim=oneof(0, -2, nothing()))


@autotest(dtypes=(*FLOATS, "complex64"))
def pairwise_distance():
    columns = random(1, 8).to(int)
    x = random_tensor(ndim=2, dim1=columns, low=1, high=2)
    y = random_tensor(ndim=1, dim0=columns, low=-2, high=-1)
    return torch.nn.functional.pairwise_distance(
        x,
        y,
        p=oneof(1.0, 3.0, nothing()),
        eps=oneof(1e-2, nothing()),
        keepdim=random_bool() | nothing(),
    ), torch.dist(x, y, p=oneof(1.0, 3.0, float("inf"), nothing()))


@autotest()
def pdist():
    # Apart from one another: the root's gradient at a distance of zero is a convention.
    rows = random(2, 6).to(int)
    x = random_tensor(dims=(rows, random(1, 6).to(int)), low=0, high=0.5) + torch.arange(10.0)[:rows, None]
    return torch.nn.functional.pdist(x, p=oneof(1.0, 3.0, nothing()))


@autotest()
def cov():
    # Spread by whole numbers: the correlation of constants is not defined.
    columns = random(3, 8).to(int)
    x = random_tensor(ndim=2, dim1=columns, low=0, high=0.5)
    x = x + torch.arange(10.0, dtype=x.dtype)[:columns]
    weights = random_tensor(dims=(columns,), low=0.5, high=2, requires_grad=False)
    counts = random_tensor(dims=(columns,), low=1, high=4, dtype=int)
    return torch.cov(
        x, correction=oneof(0, 1, nothing()), fweights=oneof(counts, nothing()), aweights=oneof(weights, nothing())
    ), torch.corrcoef(x)


@autotest(dtypes=NUMBERS)
def trapezoid():
    size = random(2, 8).to(int)
    x = random_tensor(ndim=2, dim1=size)
    at = torch.arange(1.0, 10.0)[:size] ** 2
    return (
        torch.trapezoid(x),
        torch.trapezoid(x, at),
        torch.trapezoid(x, dx=0.5, dim=oneof(0, -1)),
        (torch.cumulative_trapezoid(x, at)),
        torch.cumulative_trapezoid(x, dx=0.5, dim=oneof(0, -1, nothing())),
    )
