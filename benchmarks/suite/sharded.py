"""Test bodies that are measured on ranks."""

from ci_autotest import autotest, random_tensor, torch


@autotest(profiles=[])
def add():
    return torch.add(random_tensor(2, 8, 8), random_tensor(2, 8, 8))


@autotest(profiles=[])
def softmax():
    return torch.softmax(random_tensor(2, 8, 8), 1)


@autotest(profiles=[])
def mm():
    return torch.mm(random_tensor(2, 8, 8), random_tensor(2, 8, 8))
