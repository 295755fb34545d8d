"""Losses: targets are classes below the number of classes, or values of the input's shape."""

from ci_autotest import autotest, nothing, oneof, random, random_tensor, torch

#: Number of classes that there are at least.
LEAST = 5


@autotest()
def cross_entropy():
    # Of shape (batch, classes) or (batch, classes, size); sizes beyond the drawn rank are not used.
    ndim, batch, size = random(2, 4).to(int), oneof(random(0, 8).to(int), 33), random(1, 5).to(int)
    classes = random(LEAST, 10).to(int)
    x = random_tensor(ndim=ndim, dim0=batch, dim1=classes, dim2=size)
    target = random_tensor(ndim=ndim - 1, dim0=batch, dim1=size, low=0, high=LEAST, dtype=int)
    weight = random_tensor(ndim=1, dim0=classes, low=0, high=2, requires_grad=False)
    return torch.nn.functional.cross_entropy(
        x,
        target,
        weight=oneof(weight, nothing()),
        ignore_index=random(0, LEAST).to(int) | nothing(),
        reduction=oneof("none", "mean", "sum", nothing()),
        label_smoothing=random(0, 1).to(float) | nothing(),
    )


@autotest()
def mse_loss():
    # At least one row: the mean over no element is not defined (NaN in torch, an error in torch.compile).
    rows, columns = random(1, 8).to(int), oneof(random(1, 8).to(int), 129)
    x = random_tensor(ndim=2, dim0=rows, dim1=columns)
    y = random_tensor(ndim=2, dim0=rows, dim1=columns)
    return torch.nn.functional.mse_loss(x, y, reduction=oneof("none", "mean", "sum", nothing()))


@autotest()
def nll_loss():
    ndim, batch, size = random(2, 4).to(int), oneof(random(0, 8).to(int), 33), random(1, 5).to(int)
    classes = random(LEAST, 10).to(int)
    x = random_tensor(ndim=ndim, dim0=batch, dim1=classes, dim2=size)
    target = random_tensor(ndim=ndim - 1, dim0=batch, dim1=size, low=0, high=LEAST, dtype=int)
    weight = random_tensor(ndim=1, dim0=classes, low=0, high=2, requires_grad=False)
    return torch.nn.functional.nll_loss(
        x,
        target,
        weight=oneof(weight, nothing()),
        ignore_index=random(0, LEAST).to(int) | nothing(),
        reduction=oneof("none", "mean", "sum", nothing()),
    )
