"""Windows over images: sizes that divide and sizes that do not, at the edge and beyond, in steps and at a distance."""

from ci_autotest import choice_tensor, nothing, oneof, random_bool, random_tensor, torch
from ci_autotest.suite import autotest, some_of


@autotest(dtypes=None)
def adaptive_pools():
    # To sizes that divide the image, that do not, that are its own, and above it.
    high, wide = oneof(6, 4, 7), oneof(6, 5)
    x = random_tensor(dims=(2, high, wide))
    size, layers = oneof(1, 2, 3, 4, 5, 6, 8), torch.nn.functional
    return some_of(
        4,
        lambda: layers.adaptive_avg_pool2d(x, (size, oneof(2, 3, None))),
        lambda: layers.adaptive_avg_pool2d(x, 3),
        lambda: layers.adaptive_max_pool2d(x, (size, oneof(2, 4))),
        lambda: layers.adaptive_max_pool2d(x, 2, return_indices=True),
        lambda: layers.adaptive_avg_pool1d(x[0], size),
        lambda: layers.adaptive_max_pool1d(x[0], size, return_indices=True),
        lambda: layers.adaptive_avg_pool3d(x[None, None], (2, size, 3)),
        lambda: layers.adaptive_max_pool3d(x[None, None], (1, 2, size)),
        lambda: layers.interpolate(x[None], size=(size, 3), mode="area"),
        lambda: layers.interpolate(x[None], size=(3, size), mode="nearest"),
        lambda: layers.interpolate(
            x[None], (size, size), mode=oneof("bilinear", "bicubic"), align_corners=random_bool()
        ),
    )


@autotest(dtypes=None)
def pools_at_the_edge():
    # Zeros and equal elements; a last window that lies beyond the image in part.
    x = choice_tensor([0.0, 1.0, 2.0], (1, 2, oneof(4, 5, 6), oneof(5, 7)), requires_grad=True)
    kernel, stride, padding = oneof(2, 3), oneof(1, 2, 3), oneof(0, 1)
    ceil_mode, layers = random_bool(), torch.nn.functional
    norm = oneof(1.0, 2.0, 3.0)
    return some_of(
        4,
        lambda: layers.avg_pool2d(x, (kernel, 2), stride, padding, ceil_mode, count_include_pad=random_bool()),
        lambda: layers.avg_pool2d(
            x, (2, kernel), (stride, 1), (padding, 0), ceil_mode, divisor_override=oneof(None, 3)
        ),
        lambda: layers.max_pool2d(x, (kernel, 2), (stride, 2), (padding, 0), 1, ceil_mode, return_indices=True),
        lambda: layers.max_pool2d(x, 2, stride, 0, oneof(1, 2), ceil_mode),
        lambda: layers.avg_pool1d(x[0], kernel, stride, padding, ceil_mode, random_bool()),
        lambda: layers.max_pool1d(x[0], kernel, stride, padding, 1, ceil_mode),
        lambda: layers.avg_pool3d(
            x, (1, kernel, 2), (1, stride, 1), (0, padding, 0), ceil_mode, random_bool(), oneof(None, 5)
        ),
        lambda: layers.max_pool3d(x, (1, kernel, 2), (1, stride, 1), (0, padding, 0), 1, ceil_mode),
        lambda: layers.lp_pool2d(x, norm, 2, oneof(stride, nothing()), ceil_mode),
        lambda: layers.lp_pool1d(x[0], norm, kernel, stride, ceil_mode),
    )


@autotest(dtypes=None)
def steps_and_distances():
    # Another stride, padding and dilation in each dimension, beyond the image too; one channel a group.
    groups = oneof(1, 2, 4)
    x = random_tensor(dims=(2, 4, oneof(5, 7), oneof(6, 8)))
    weight = random_tensor(dims=(4, 4 // groups, oneof(1, 3), 2))
    stride = oneof((1, 2), (2, 1), (3, 3)).value()
    padding, dilation = oneof((0, 1), (2, 0), (3, 4)).value(), oneof((1, 1), (2, 1), (1, 3)).value()
    layers = torch.nn.functional
    return some_of(
        3,
        lambda: layers.conv2d(x, weight, None, stride, padding, dilation, groups),
        lambda: layers.conv2d(x, weight, padding="same", dilation=dilation, groups=groups),
        lambda: layers.conv_transpose2d(x, weight, None, stride, (0, 1), (0, 0), groups, dilation),
        lambda: layers.conv1d(x[:, :, 0], weight[..., 0], None, stride[0], padding[1], dilation[1], groups),
        lambda: layers.unfold(x, (2, 3), dilation, (1, 1), stride),
        lambda: layers.unfold(x, (1, 2), padding=(0, 1), stride=stride),
        lambda: layers.fold(layers.unfold(x, 2, dilation, 1, stride), x.shape[2:], 2, dilation, 1, stride),
        lambda: layers.pad(x, oneof((-1, 2, 3, -2), (0, 0, -1, -1), (2, -1)), value=oneof(1.5, nothing())),
        lambda: layers.pad(x, oneof((2, 1, 0, 3), (0, 3, 1, 0)), mode=oneof("reflect", "replicate", "circular")),
    )


@autotest(dtypes=None)
def samples_on_pixels():
    # On the pixels, between two, on the last one, at the edge and far outside.
    size = oneof(3, 5)
    x = random_tensor(dims=(1, 2, size, size))
    grid = choice_tensor([-1.0, 1.0, 0.0, 0.5, -0.5, 0.8, -0.8, 1.5, -3.0, 0.3], (1, 4, 5, 2), requires_grad=True)
    layers = torch.nn.functional
    corners, padding = random_bool(), oneof("zeros", "border", "reflection")
    return some_of(
        3,
        lambda: layers.grid_sample(x, grid, "bilinear", padding, align_corners=corners),
        lambda: layers.grid_sample(x, grid.detach(), "bicubic", padding, align_corners=corners),
        lambda: layers.grid_sample(
            x[:, :, None], torch.nn.functional.pad(grid, (0, 1))[:, None], "bilinear", padding, align_corners=corners
        ),
        lambda: layers.interpolate(
            x, scale_factor=oneof(0.5, 1.0, 2.5), mode=oneof("nearest", "nearest-exact", "bilinear")
        ),
        lambda: layers.interpolate(x, size=oneof(1, size, 7), mode="bilinear", align_corners=corners, antialias=False),
        lambda: layers.interpolate(x, size=oneof(1, 2), mode=oneof("bilinear", "bicubic"), antialias=True),
        lambda: layers.pixel_shuffle(x.repeat(1, 2, 1, 1), oneof(1, 2)),
    )


@autotest(dtypes=None)
def attention_masks():
    # Of numbers and booleans, broadcast, with a scale of its own; rows that see nothing are left out.
    queries, keys = oneof(1, 3), oneof(2, 4)
    query = random_tensor(dims=(2, 2, queries, 4))
    key, value = random_tensor(dims=(2, 2, keys, 4)), random_tensor(dims=(2, 2, keys, 3))
    mask = random_tensor(dims=(oneof(1, queries), keys), low=-9, high=9)
    seen = torch.cat((mask[:, 1:] > 0, mask[:, :1] == mask[:, :1]), 1)
    attention = torch.nn.functional.scaled_dot_product_attention
    return some_of(
        2,
        lambda: attention(query, key, value, attn_mask=mask, scale=oneof(1.0, 0.3, nothing())),
        lambda: attention(query, key, value, attn_mask=seen, scale=oneof(0.0, 2.0, nothing())),
        lambda: attention(query, key, value, is_causal=True, scale=oneof(2.0, nothing())),
        lambda: attention(query[:, :, :, :1], key[:, :, :, :1], value),
        lambda: attention(query, key[:, :1], value[:, :1], enable_gqa=True),
        lambda: attention(query[0, 0], key[0, 0], value[0, 0]),
    )
