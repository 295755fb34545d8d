"""Interpolation: resizing to other sizes, and sampling at drawn grid points."""

from ci_autotest import nothing, oneof, random, random_bool, random_tensor, torch
from ci_autotest.suite import ANY, autotest


@autotest()
def interpolate_nearest():
    x = random_tensor(ndim=random(3, 5).to(int))
    return torch.nn.functional.interpolate(
        x, scale_factor=oneof(2, 3, 0.5, 1.5), mode=oneof("nearest", "nearest-exact")
    )


@autotest()
def interpolate_linear():
    x = random_tensor(ndim=3)
    return torch.nn.functional.interpolate(
        x, size=random(1, 9).to(int), mode="linear", align_corners=random_bool() | nothing()
    )


@autotest()
def interpolate_bilinear():
    x = random_tensor(ndim=4)
    return torch.nn.functional.interpolate(
        x,
        size=(random(1, 9).to(int), random(1, 9).to(int)),
        mode="bilinear",
        align_corners=random_bool() | nothing(),
        antialias=random_bool() | nothing(),
    )


@autotest()
def interpolate_bicubic():
    x = random_tensor(ndim=4)
    return torch.nn.functional.interpolate(
        x,
        size=(random(1, 9).to(int), random(1, 9).to(int)),
        mode="bicubic",
        align_corners=random_bool() | nothing(),
    )


@autotest()
def interpolate_trilinear():
    x = random_tensor(ndim=5)
    return torch.nn.functional.interpolate(
        x, size=(random(1, 5).to(int), random(1, 5).to(int), random(1, 5).to(int)), mode="trilinear"
    )


@autotest()
def interpolate_area():
    x = random_tensor(ndim=random(3, 5).to(int))
    return torch.nn.functional.interpolate(x, size=random(1, 6).to(int), mode="area")


@autotest()
def grid_sample():
    batch = random(1, 4).to(int)
    x = random_tensor(ndim=4, dim0=batch)
    grid = random_tensor(dims=(batch, random(1, 6).to(int), random(1, 6).to(int), 2), low=-1.2, high=1.2)
    return torch.nn.functional.grid_sample(
        x,
        grid,
        mode=oneof("bilinear", "nearest", "bicubic", nothing()),
        padding_mode=oneof("zeros", "border", "reflection", nothing()),
        align_corners=random_bool() | nothing(),
    )


@autotest(forms=("out", "second_derivatives"))
def affine_grid():
    # Not under autocast: torch 2.13 has no backward pass of some sizes there.
    batch = random(1, 4).to(int)
    theta = random_tensor(dims=(batch, 2, 3))
    return torch.nn.functional.affine_grid(
        theta, (batch, 3, random(1, 6).to(int), random(1, 6).to(int)), align_corners=random_bool() | nothing()
    )


@autotest(dtypes=ANY)
def pixel_unshuffle():
    factor = random(1, 4).to(int)
    x = random_tensor(ndim=4, dim2=factor * random(1, 4).to(int), dim3=factor * random(1, 4).to(int))
    return torch.nn.functional.pixel_unshuffle(x, factor)


@autotest(dtypes=ANY)
def channel_shuffle():
    groups = random(1, 4).to(int)
    x = random_tensor(ndim=random(3, 5).to(int), dim1=groups * random(1, 4).to(int))
    return torch.nn.functional.channel_shuffle(x, groups)


@autotest()
def interpolate_by_factor():
    # By a factor that does not divide: whether the factor or the sizes count.
    x = random_tensor(ndim=4, dim2=random(2, 7).to(int), dim3=random(2, 7).to(int))
    return torch.nn.functional.interpolate(
        x,
        scale_factor=oneof(1.7, 0.6, (2.0, 1.3)),
        mode=oneof("nearest", "nearest-exact", "bilinear", "bicubic"),
        recompute_scale_factor=random_bool() | nothing(),
    )
