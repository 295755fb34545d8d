"""Convolutions in one, two and three dimensions, as functions and modules: groups, strides, padding, dilation."""

from ci_autotest import nothing, oneof, random, random_bool, random_tensor, torch
from ci_autotest.suite import FLOATS, NUMBERS, autotest


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


@autotest(dtypes=None)
def conv2d():
    groups = random(1, 4).to(int)
    channels = groups * random(1, 4).to(int)
    module = torch.nn.Conv2d(
        in_channels=channels,
        out_channels=groups * oneof(random(1, 4).to(int), 9),
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
def conv3d():
    groups = random(1, 3).to(int)
    inner, outer = random(1, 3).to(int), random(1, 3).to(int)
    size = random(3, 6).to(int)
    x = random_tensor(ndim=5, dim0=random(1, 3).to(int), dim1=groups * inner, dim2=size, dim3=size)
    kernel = random(1, 3).to(int)
    weight = random_tensor(ndim=5, dim0=groups * outer, dim1=inner, dim2=random(1, 3).to(int), dim3=kernel, dim4=kernel)
    return torch.nn.functional.conv3d(
        x,
        weight,
        bias=oneof(random_tensor(dims=(groups * outer,)), nothing()),
        stride=random(1, 3).to(int) | nothing(),
        padding=oneof(1, 2, "same", nothing()),
        dilation=oneof(2, nothing()),
        groups=groups,
    )


@autotest(dtypes=NUMBERS)
def conv_transpose1d():
    groups, stride = random(1, 3).to(int), random(1, 4).to(int)
    inner, outer = random(1, 4).to(int), random(1, 4).to(int)
    x = random_tensor(ndim=3, dim1=groups * inner)
    weight = random_tensor(ndim=3, dim0=groups * inner, dim1=outer, dim2=random(2, 5).to(int))
    return torch.nn.functional.conv_transpose1d(
        x,
        weight,
        bias=oneof(random_tensor(dims=(groups * outer,)), nothing()),
        stride=stride,
        padding=random(0, 2).to(int) | nothing(),
        output_padding=random(0, stride).to(int),
        groups=groups,
        dilation=random(1, 3).to(int) | nothing(),
    )


@autotest(dtypes=None)
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


@autotest(dtypes=NUMBERS)
def conv_transpose3d():
    channels = random(1, 3).to(int)
    x = random_tensor(ndim=5, dim0=random(1, 3).to(int), dim1=channels, dim2=random(1, 4).to(int))
    kernel = random(1, 4).to(int)
    outer = random(1, 3).to(int)
    weight = random_tensor(dims=(channels, outer, kernel, random(1, 3).to(int), kernel))
    bias = random_tensor(dims=(outer,))
    return torch.nn.functional.conv_transpose3d(
        x,
        weight,
        bias=oneof(bias, nothing()),
        stride=oneof(2, 3),
        padding=oneof(0, nothing()),
        output_padding=oneof(1, nothing()),
        dilation=oneof(2, nothing()),
    )


@autotest()
def unfold():
    x = random_tensor(ndim=4)
    return torch.nn.functional.unfold(
        x,
        kernel_size=random(1, 3).to(int),
        dilation=random(1, 3).to(int) | nothing(),
        padding=random(1, 3).to(int) | nothing(),
        stride=random(1, 3).to(int) | nothing(),
    )


@autotest(dtypes=(*FLOATS, "bool", "complex64"))
def fold():
    # Blocks of `kernel` by `kernel` in steps of 1: the number of blocks follows from the size that is folded to.
    kernel, height, width = random(1, 4).to(int), random(3, 7).to(int), random(3, 7).to(int)
    blocks = (height - kernel + 1) * (width - kernel + 1)
    x = random_tensor(ndim=3, dim1=kernel * kernel * random(1, 4).to(int), dim2=blocks)
    return torch.nn.functional.fold(x, output_size=(height, width), kernel_size=(kernel, kernel))


@autotest(dtypes=(*FLOATS, "int64"))
def conv_tbc():
    channels, outer = random(1, 5).to(int), random(1, 5).to(int)
    x = random_tensor(ndim=3, dim0=random(3, 8).to(int), dim2=channels)
    weight = random_tensor(dims=(random(1, 4).to(int), channels, outer))
    return torch.conv_tbc(x, weight, random_tensor(dims=(outer,)), pad=random(0, 3).to(int) | nothing())


@autotest()
def conv_transpose2d_of_given_weights():
    groups, outer = random(1, 3).to(int), random(1, 4).to(int)
    channels = groups * random(1, 4).to(int)
    x = random_tensor(ndim=4, dim1=channels)
    weight = random_tensor(dims=(channels, outer, random(2, 5).to(int), 2))
    bias = random_tensor(dims=(groups * outer,))
    layers = torch.nn.functional
    return layers.conv_transpose2d(
        x,
        weight,
        bias=oneof(bias, nothing()),
        padding=oneof(1, nothing()),
        dilation=oneof(2, nothing()),
        groups=groups,
    ), layers.conv_transpose2d(x, weight, stride=oneof(2, 3), output_padding=oneof(1, nothing()))
