"""Test bodies that are measured in hosts, with the sizes of ``oneflow_harness``."""

from ci_autotest import autotest, random, random_tensor, torch


@autotest(profiles=[])
def absolute():
    return torch.abs(random_tensor(ndim=2, dim0=random(1, 8), dim1=random(1, 8)))


@autotest(profiles=[])
def matmul():
    inner = random(1, 8).to(int)
    x = random_tensor(ndim=2, dim0=random(1, 8), dim1=inner)
    return torch.matmul(x, random_tensor(ndim=2, dim0=inner, dim1=random(1, 8)))


@autotest(profiles=[])
def conv2d():
    channels = random(1, 5).to(int)
    x = random_tensor(ndim=4, dim0=random(1, 4), dim1=channels, dim2=8, dim3=8)
    weight = random_tensor(ndim=4, dim0=random(1, 5), dim1=channels, dim2=3, dim3=3)
    return torch.nn.functional.conv2d(x, weight, padding=1)
