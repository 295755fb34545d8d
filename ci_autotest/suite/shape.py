"""Shape: joining, exchanging, regrouping and padding dimensions."""

from ci_autotest import autotest, nothing, oneof, random, random_tensor, torch


@autotest()
def cat():
    rows = random(1, 6).to(int)
    x = random_tensor(ndim=2, dim0=rows)
    y = random_tensor(ndim=2, dim0=rows, dtype=oneof(torch.float32, torch.float64, torch.int64))
    return torch.cat([x, y, x], dim=oneof(1, -1))


@autotest()
def stack():
    rows, columns = random(0, 6).to(int), oneof(random(1, 6).to(int), 33)
    x = random_tensor(ndim=2, dim0=rows, dim1=columns)
    y = random_tensor(ndim=2, dim0=rows, dim1=columns)
    return torch.stack((x, y), dim=random(-3, 3).to(int) | nothing())


@autotest()
def transpose():
    ndim = random(1, 6).to(int)
    x = random_tensor(ndim=ndim)
    return torch.transpose(x, random(-ndim, ndim).to(int), random(-ndim, ndim).to(int))


@autotest()
def reshape():
    height, width = random(1, 6).to(int), random(1, 6).to(int)
    x = random_tensor(ndim=3, dim1=height, dim2=width)
    return torch.reshape(x, oneof((-1,), (-1, height * width), (width, height, -1), (1, -1, width)))


@autotest()
def flatten():
    ndim = random(1, 6).to(int)
    start = random(0, ndim).to(int)
    x = random_tensor(ndim=ndim)
    return torch.flatten(x, start_dim=start, end_dim=random(start, ndim).to(int) | nothing())


@autotest()
def pad():
    # Negative amounts cut.
    x = random_tensor(ndim=random(2, 5).to(int))
    amounts = [random(-1, 4).to(int) for _ in range(4)]
    return torch.nn.functional.pad(x, oneof(amounts, amounts[:2]), value=random(-2, 3).to(float) | nothing())


@autotest()
def pad_mode():
    x = random_tensor(ndim=random(3, 5).to(int))
    amounts = [random(0, 3).to(int) for _ in range(4)]
    return torch.nn.functional.pad(x, amounts, mode=oneof("reflect", "replicate", "circular"))
