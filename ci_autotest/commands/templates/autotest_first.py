"""A first test: each case draws new shapes and values, and runs on PyTorch and on every candidate of autotest.yml."""

from ci_autotest import autotest, oneof, random, random_tensor, torch


@autotest()
def linear_softmax() -> torch.Tensor:
    features = random(1, 33).to(int)  # drawn once per case, so that the two shapes below match
    x = random_tensor(ndim=2, dim1=features)
    weight = random_tensor(ndim=2, dim1=features)
    return torch.nn.functional.softmax(torch.nn.functional.linear(x, weight), dim=oneof(0, 1))
