"""Convolutions: channels are multiples of the groups, and kernels may reach over the edge."""

from ci_autotest import autotest, nothing, oneof, random, random_bool, random_tensor, torch


@autotest()
def conv1d():
    groups = random(1, 4).to(int)
    inner, outer = random(1, 4).to(int), random(1, 4).to(int)
    x = random_tensor(ndim=3, dim1=groups * inner)
    weight = random_tensor(ndim=3, dim0=groups * outer, dim1=inner, dim2=random(1, 4).to(int))
    bias = random_tensor(ndim=1, dim0=groups * outer)
    return torch.nn.functional.conv1d(
        x,
        weight,
        bias=oneof(bias, nothing()),
        stride=random(1, 4).to(int) | nothing(),
        padding=random(0, 4).to(int) | nothing(),
        dilation=random(1, 3).to(int) | nothing(),
        groups=groups,
    )


@autotest()
def conv2d():
    groups = random(1, 4).to(int)
    channels = groups * random(1, 4).to(int)
    module = torch.nn.Conv2d(
        in_channels=channels,
        out_channels=groups * random(1, 4).to(int),
        kernel_size=(random(1, 4).to(int), random(1, 4).to(int)),
        stride=random(1, 4).to(int) | nothing(),
        padding=random(1, 4).to(int) | nothing(),
        dilation=random(1, 3).to(int) | nothing(),
        groups=groups,
        bias=random_bool(),
    )
    x = random_tensor(ndim=4, dim1=channels, requires_grad=random_bool())
    return module(x)


@autotest()
def conv_transpose2d():
    groups, stride = random(1, 3).to(int), random(1, 4).to(int)
    channels = groups * random(1, 4).to(int)
    module = torch.nn.ConvTranspose2d(
        in_channels=channels,
        out_channels=groups * random(1, 4).to(int),
        kernel_size=random(2, 5).to(int),
        stride=stride,
        padding=random(0, 2).to(int) | nothing(),
        output_padding=random(0, stride).to(int) | nothing(),
        groups=groups,
        bias=random_bool(),
        dilation=random(1, 3).to(int) | nothing(),
    )
    x = random_tensor(ndim=4, dim1=channels)
    return module(x)
