"""Linear algebra: products of matrices, vectors and batches of them."""

from ci_autotest import autotest, nothing, oneof, random, random_bool, random_tensor, torch


@autotest()
def matmul():
    # A matrix or a batch of them, times a vector or a matrix; sizes beyond the drawn rank are not used.
    inner = random(1, 17).to(int)
    x = random_tensor(ndim=random(2, 4).to(int), dim1=inner, dim2=inner)
    y = random_tensor(ndim=random(1, 3).to(int), dim0=inner)
    return x @ y


@autotest()
def bmm():
    batch, inner = random(1, 5).to(int), random(1, 17).to(int)
    x = random_tensor(ndim=3, dim0=batch, dim2=inner)
    y = random_tensor(ndim=3, dim0=batch, dim1=inner)
    return torch.bmm(x, y)


@autotest()
def linear():
    features = random(1, 17).to(int)
    module = torch.nn.Linear(features, random(1, 17).to(int), bias=random_bool())
    x = random_tensor(ndim=random(2, 4).to(int), dim1=features, dim2=features)
    return module(x)


@autotest()
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
    return torch.addmm(x, y, z, beta=beta, alpha=random(-2, 3).to(float) | nothing())
