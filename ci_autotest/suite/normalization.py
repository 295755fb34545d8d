"""Normalization: over trailing dimensions, over the batch with running statistics, over groups of channels."""

from ci_autotest import nothing, oneof, random, random_bool, random_tensor, torch
from ci_autotest.suite import FLOATS, autotest


@autotest()
def layer_norm():
    height, width = random(1, 5).to(int), random(2, 17).to(int)
    x = random_tensor(ndim=3, dim1=height, dim2=width)
    weight = random_tensor(ndim=2, dim0=height, dim1=width)
    bias = random_tensor(ndim=2, dim0=height, dim1=width)
    return torch.nn.functional.layer_norm(
        x,
        (height, width),
        weight=oneof(weight, nothing()),
        bias=oneof(bias, nothing()),
        eps=random(1e-5, 1e-1).to(float) | nothing(),
    )


@autotest()
def over_all_dimensions():
    rows, columns = random(1, 5).to(int), random(2, 9).to(int)
    x, y = random_tensor(dims=(rows, columns)), random_tensor(dims=(columns,))
    weight = random_tensor(dims=(rows, columns))
    layers = torch.nn.functional
    return (
        layers.layer_norm(x, (rows, columns), weight), layers.rms_norm(x, (rows, columns), weight),
        layers.layer_norm(y, (columns,)), layers.rms_norm(y, (columns,)), layers.normalize(y, dim=0),
        layers.group_norm(x, 1), layers.softmax(y, 0), layers.log_softmax(y[:1] * 3, 0),
    )  # fmt: skip


@autotest(dtypes=(*FLOATS, "complex64"))
def rms_norm():
    width = random(2, 17).to(int)
    x = random_tensor(ndim=random(2, 4).to(int), dim1=width, dim2=width)
    weight = random_tensor(ndim=1, dim0=width)
    return torch.nn.functional.rms_norm(
        x, (width,), weight=oneof(weight, nothing()), eps=random(1e-5, 1e-1).to(float) | nothing()
    )


@autotest()
def batch_norm():
    # In training it normalizes with the batch's own statistics and moves the running ones in place. These are copies,
    # because a tensor that is written to may not be an expanded one.
    channels = random(1, 8).to(int)
    x = random_tensor(ndim=random(2, 6).to(int), dim0=random(2, 9).to(int), dim1=channels)
    mean = random_tensor(ndim=1, dim0=channels, requires_grad=False).clone()
    var = random_tensor(ndim=1, dim0=channels, low=0.1, high=2, requires_grad=False).clone()
    weight = random_tensor(ndim=1, dim0=channels)
    bias = random_tensor(ndim=1, dim0=channels)
    y = torch.nn.functional.batch_norm(
        x,
        mean,
        var,
        weight=oneof(weight, nothing()),
        bias=oneof(bias, nothing()),
        training=random_bool() | nothing(),
        momentum=random(0, 1).to(float) | nothing(),
        eps=random(1e-5, 1e-1).to(float) | nothing(),
    )
    return y, mean, var


@autotest()
def batch_norm_module():
    channels = random(1, 8).to(int)
    module = torch.nn.BatchNorm2d(
        channels,
        momentum=oneof(random(0, 1).to(float), None, nothing()),
        affine=random_bool(),
        track_running_stats=random_bool(),
    )
    module.train(random_bool())
    x = random_tensor(ndim=4, dim1=channels)
    return module(x)


@autotest()
def group_norm():
    # A bias goes with a weight: with a bias alone the gradient of torch 2.13 raises.
    groups = random(1, 5).to(int)
    channels = groups * random(1, 4).to(int)
    x = random_tensor(ndim=random(2, 6).to(int), dim1=channels)
    weight = random_tensor(ndim=1, dim0=channels)
    bias = random_tensor(ndim=1, dim0=channels)
    return torch.nn.functional.group_norm(
        x,
        groups,
        weight=weight,
        bias=oneof(bias, nothing()),
        eps=random(1e-5, 1e-1).to(float) | nothing(),
    )


@autotest()
def instance_norm():
    # More than one element in each plane: the variance of one is no number.
    channels = random(1, 8).to(int)
    x = random_tensor(ndim=4, dim1=channels, dim2=random(2, 6).to(int))
    weight = random_tensor(ndim=1, dim0=channels)
    return torch.nn.functional.instance_norm(
        x,
        weight=oneof(weight, nothing()),
        bias=oneof(weight * 2, nothing()),
        momentum=oneof(0.5, nothing()),
        use_input_stats=oneof(True, nothing()),
        eps=random(1e-5, 1e-1).to(float) | nothing(),
    )


@autotest(dtypes=(*FLOATS, "complex64"))
def normalize():
    x = random_tensor(ndim=random(2, 6).to(int))
    return torch.nn.functional.normalize(
        x, p=oneof(1.0, 2.0, 3.0, nothing()), dim=oneof(0, 1, -1, nothing()), eps=oneof(0.5, nothing())
    )


@autotest(dtypes=(*FLOATS, "int64"))
def local_response_norm():
    x = random_tensor(ndim=random(3, 6).to(int))
    return torch.nn.functional.local_response_norm(
        x,
        size=random(1, 5).to(int),
        alpha=random(1e-4, 1).to(float) | nothing(),
        beta=random(0, 1).to(float) | nothing(),
        k=random(1, 3).to(float) | nothing(),
    )


@autotest(dtypes=(*FLOATS, "complex64"))
def renorm():
    x = random_tensor(ndim=2, low=0.5, high=2)
    return torch.renorm(x, p=oneof(1.0, 2.0, 3.0), dim=oneof(0, -1), maxnorm=random(1, 4).to(float))
