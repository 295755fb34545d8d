"""Pooling: windows over planes, with and without padding and partial windows at the edge."""

from ci_autotest import autotest, nothing, random, random_bool, random_tensor, torch


@autotest()
def max_pool2d():
    # Dilation and padding are not drawn together: the window may step over a plane of size 1 and hold no element. Its
    # maximum is not defined (pytorch/pytorch#114216), and torch 2.13 writes its gradient out of bounds.
    kernel = random(1, 4).to(int)
    padding = random(0, kernel // 2 + 1).to(int)
    x = random_tensor(ndim=random(3, 5).to(int))
    return torch.nn.functional.max_pool2d(
        x,
        kernel_size=kernel,
        stride=random(1, 4).to(int) | nothing(),
        padding=padding,
        dilation=random(1, 3 - padding).to(int),
        ceil_mode=random_bool(),
    )


@autotest()
def avg_pool2d():
    kernel = random(1, 4).to(int)
    x = random_tensor(ndim=random(3, 5).to(int))
    return torch.nn.functional.avg_pool2d(
        x,
        kernel_size=kernel,
        stride=random(1, 4).to(int) | nothing(),
        padding=random(0, kernel // 2 + 1).to(int),
        ceil_mode=random_bool(),
        count_include_pad=random_bool() | nothing(),
        divisor_override=random(1, 10).to(int) | nothing(),
    )
