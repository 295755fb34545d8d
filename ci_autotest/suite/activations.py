"""Activations: element by element, and the softmax family along one dimension."""

from ci_autotest import autotest, nothing, oneof, random, random_tensor, torch


@autotest()
def relu():
    x = random_tensor()
    return torch.nn.functional.relu(x)


@autotest()
def gelu():
    x = random_tensor(dtype=oneof(torch.float32, torch.float64))
    return torch.nn.functional.gelu(x, approximate=oneof("none", "tanh") | nothing())


@autotest()
def silu():
    x = random_tensor()
    return torch.nn.functional.silu(x)


@autotest()
def leaky_relu():
    x = random_tensor()
    return torch.nn.functional.leaky_relu(x, negative_slope=random(-1, 2).to(float) | nothing())


@autotest()
def elu():
    x = random_tensor()
    return torch.nn.functional.elu(x, alpha=random(0, 3).to(float) | nothing())


@autotest()
def tanh():
    x = random_tensor(dtype=oneof(torch.float32, torch.float64))
    return torch.tanh(x)


@autotest()
def sigmoid():
    x = random_tensor(dtype=oneof(torch.float32, torch.float64))
    return torch.sigmoid(x)


@autotest()
def softmax():
    ndim = random(1, 6).to(int)
    x = random_tensor(ndim=ndim)
    return torch.nn.functional.softmax(x, dim=random(-ndim, ndim).to(int), dtype=torch.float64 | nothing())


@autotest()
def log_softmax():
    # 0 and -1 are the dimensions that every rank has, a 0-dim tensor too.
    x = random_tensor()
    return torch.nn.functional.log_softmax(x, dim=oneof(0, -1), dtype=oneof(torch.float64, nothing()))
