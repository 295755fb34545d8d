"""Test bodies that are measured, as in a user's test file."""

from ci_autotest import autotest, random, random_tensor, torch


@autotest()
def add():
    return torch.add(random_tensor(ndim=2), random_tensor(ndim=2, dim0=1, dim1=1))


@autotest()
def matmul():
    k = random(1, 8).to(int)
    return torch.matmul(random_tensor(ndim=2, dim1=k), random_tensor(ndim=2, dim0=k))


@autotest()
def chain():
    x = random_tensor(ndim=2)
    return torch.tanh(torch.mul(torch.add(torch.sigmoid(torch.exp(x)), x), x))


@autotest()
def conv_transpose2d():
    x = random_tensor(4, 2, 4, 8, 8)
    weight = random_tensor(4, 4, 3, 3, 3)
    return torch.nn.functional.conv_transpose2d(x, weight, stride=2, padding=1)


@autotest()
def in_place():
    y = random_tensor(ndim=2) * 2
    y.mul_(3)
    y.add_(1)
    return y.tanh_()


@autotest()
def linear():
    features = random(1, 8).to(int)
    module = torch.nn.Linear(features, random(1, 8).to(int))
    return module(random_tensor(ndim=2, dim1=features))
