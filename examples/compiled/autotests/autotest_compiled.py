"""What the kernels take: vectors and matrices of float32."""

from ci_autotest import autotest, random, random_tensor, torch


@autotest()
def cumsum():
    return torch.cumsum(random_tensor(1, dim0=random(1, 40)), dim=0)


@autotest()
def amax():
    return torch.amax(random_tensor(2, dim0=random(1, 6), dim1=random(1, 6)), dim=1)


@autotest()
def silu():
    return torch.nn.functional.silu(random_tensor(2, dim0=random(1, 6), dim1=random(1, 20)))


@autotest()
def hardtanh():
    return torch.nn.functional.hardtanh(random_tensor(2, dim0=random(1, 6), dim1=random(1, 20), low=-2, high=2))
