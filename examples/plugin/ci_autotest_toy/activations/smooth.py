"""Smooth activations."""

from ci_autotest import autotest, random_tensor, torch


@autotest()
def gelu():
    return torch.nn.functional.gelu(random_tensor(2))


@autotest()
def sigmoid():
    return torch.sigmoid(random_tensor(2))
