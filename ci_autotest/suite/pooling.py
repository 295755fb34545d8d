"""Pooling over windows in one, two and three dimensions, with and without padding and partial windows at the edge."""

from ci_autotest import nothing, oneof, random, random_bool, random_tensor, torch
from ci_autotest.suite import FLOATS, autotest


@autotest()
def max_pool1d():
    kernel = random(1, 4).to(int)
    x = random_tensor(ndim=random(2, 4).to(int))
    return torch.nn.functional.max_pool1d(
        x,
        kernel_size=kernel,
        stride=random(1, 4).to(int) | nothing(),
        padding=random(0, kernel // 2 + 1).to(int) | nothing(),
        ceil_mode=random_bool() | nothing(),
    )


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
        ceil_mode=random_bool() | nothing(),
    )


@autotest()
def max_pool3d():
    kernel = random(1, 4).to(int)
    x = random_tensor(ndim=random(4, 5).to(int))
    return torch.nn.functional.max_pool3d(
        x,
        kernel_size=kernel,
        stride=random(1, 4).to(int) | nothing(),
        padding=random(0, kernel // 2 + 1).to(int) | nothing(),
        ceil_mode=random_bool() | nothing(),
    )


@autotest()
def max_pool2d_with_indices():
    kernel = random(1, 3).to(int)
    x = random_tensor(ndim=4)
    return torch.nn.functional.max_pool2d_with_indices(x, kernel_size=kernel, stride=random(1, 3).to(int) | nothing())


@autotest(dtypes=(*FLOATS, "int64"))
def avg_pool1d():
    kernel = random(1, 4).to(int)
    x = random_tensor(ndim=random(2, 4).to(int))
    return torch.nn.functional.avg_pool1d(
        x,
        kernel_size=kernel,
        stride=random(1, 4).to(int) | nothing(),
        padding=random(0, kernel // 2 + 1).to(int) | nothing(),
        ceil_mode=random_bool() | nothing(),
        count_include_pad=random_bool() | nothing(),
    )


@autotest(dtypes=(*FLOATS, "int64"))
def avg_pool2d():
    kernel = random(1, 4).to(int)
    x = random_tensor(ndim=random(3, 5).to(int))
    return torch.nn.functional.avg_pool2d(
        x,
        kernel_size=kernel,
        stride=random(1, 4).to(int) | nothing(),
        padding=random(0, kernel // 2 + 1).to(int) | nothing(),
        ceil_mode=random_bool() | nothing(),
        count_include_pad=random_bool() | nothing(),
        divisor_override=random(1, 10).to(int) | nothing(),
    )


@autotest(dtypes=None)
def avg_pool3d():
    kernel = random(1, 4).to(int)
    x = random_tensor(ndim=random(4, 5).to(int))
    return torch.nn.functional.avg_pool3d(
        x,
        kernel_size=kernel,
        stride=random(1, 4).to(int) | nothing(),
        padding=random(0, kernel // 2 + 1).to(int) | nothing(),
        count_include_pad=random_bool() | nothing(),
    )


@autotest()
def adaptive_avg_pool1d():
    x = random_tensor(ndim=random(2, 4).to(int))
    return torch.nn.functional.adaptive_avg_pool1d(x, random(1, 6).to(int))


@autotest()
def adaptive_avg_pool2d():
    x = random_tensor(ndim=random(3, 5).to(int))
    return torch.nn.functional.adaptive_avg_pool2d(x, (random(1, 6).to(int), oneof(random(1, 6).to(int), None)))


@autotest()
def adaptive_avg_pool3d():
    x = random_tensor(ndim=random(4, 5).to(int))
    return torch.nn.functional.adaptive_avg_pool3d(x, random(1, 4).to(int))


@autotest()
def adaptive_max_pool1d():
    x = random_tensor(ndim=random(2, 4).to(int))
    return torch.nn.functional.adaptive_max_pool1d(x, random(1, 6).to(int), return_indices=random_bool() | nothing())


@autotest()
def adaptive_max_pool2d():
    x = random_tensor(ndim=random(3, 5).to(int))
    return torch.nn.functional.adaptive_max_pool2d(
        x, (random(1, 6).to(int), random(1, 6).to(int)), return_indices=random_bool() | nothing()
    )


@autotest()
def lp_pool2d():
    # Positive: the root of a sum of odd powers is not real everywhere.
    x = random_tensor(ndim=4, low=0.1, high=2)
    return torch.nn.functional.lp_pool2d(
        x,
        norm_type=random(1, 4).to(float),
        kernel_size=random(1, 3).to(int),
        stride=random(1, 3).to(int) | nothing(),
        ceil_mode=random_bool() | nothing(),
    )


@autotest()
def adaptive_max_pool3d():
    x = random_tensor(ndim=random(4, 5).to(int))
    return torch.nn.functional.adaptive_max_pool3d(x, random(1, 4).to(int), return_indices=random_bool() | nothing())


def power_pooled(operator, ndim):
    # Positive: the root of a sum of odd powers is not real everywhere.
    x = random_tensor(ndim=ndim, low=0.1, high=2)
    return operator(
        x, norm_type=oneof(1.0, 2.0, 3.0), kernel_size=random(1, 3).to(int), stride=random(1, 3).to(int) | nothing(),
        ceil_mode=random_bool() | nothing(),
    )  # fmt: skip


@autotest()
def lp_pool1d():
    return power_pooled(torch.nn.functional.lp_pool1d, 3)


@autotest(dtypes=None)
def lp_pool3d():
    return power_pooled(torch.nn.functional.lp_pool3d, 5)


def unpooled(pool, unpool, ndim):
    # Of a larger one: each place is taken by one window, so that it is written once.
    x = random_tensor(ndim=ndim, dim1=random(1, 4).to(int))
    x = torch.nn.functional.pad(x, (0, 2) * (ndim - 2))
    values, indices = pool(x, 2, return_indices=True)
    return unpool(values, indices, 2, stride=oneof(2, nothing()), output_size=oneof(x.shape[2:], nothing()))


@autotest()
def max_unpool1d():
    return unpooled(torch.nn.functional.max_pool1d, torch.nn.functional.max_unpool1d, 3)


@autotest()
def max_unpool2d():
    return unpooled(torch.nn.functional.max_pool2d, torch.nn.functional.max_unpool2d, 4)


@autotest()
def max_unpool3d():
    return unpooled(torch.nn.functional.max_pool3d, torch.nn.functional.max_unpool3d, 5)


@autotest()
def fractional_max_pool():
    # Where its windows begin is given, so that nothing is random.
    batch, channels = random(1, 3).to(int), random(1, 3).to(int)
    x = random_tensor(dims=(batch, channels, 6, 7))
    y = random_tensor(dims=(batch, channels, 5, 6, 7))
    begins = random_tensor(dims=(batch, channels, 2), low=0, high=1, requires_grad=False)
    deep = random_tensor(dims=(batch, channels, 3), low=0, high=1, requires_grad=False)
    return torch.nn.functional.fractional_max_pool2d(
        x, 2, output_size=oneof(3, (4, 5)), _random_samples=begins
    ), torch.nn.functional.fractional_max_pool3d(y, 2, output_size=3, _random_samples=deep)
