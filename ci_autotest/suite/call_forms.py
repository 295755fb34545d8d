"""Forms of a call: results put into ``out``, written in place, inputs that are frozen, equal, expanded or views.

What an operator computes is tested in its own family.
"""

from ci_autotest import (
    index_tensor,
    nothing,
    oneof,
    random,
    random_bool,
    random_dtype,
    random_tensor,
    torch,
)
from ci_autotest.suite import ANY, FLOATS, NUMBERS, REALS, autotest


def put(operator, *args, **kwargs):
    # Into every second element of a larger tensor: what lies between them is compared too.
    result = operator(*args, **kwargs)
    room = torch.zeros((*result.shape, 2), dtype=result.dtype)
    return operator(*args, **kwargs, out=room[..., random(0, 2).to(int)]), room


@autotest(dtypes=REALS)
def out_pointwise():
    x = random_tensor(dtype=random_dtype(["float", "half"]), requires_grad=False)
    y = random_tensor(ndim=1, dim0=1, requires_grad=False)
    return put(torch.neg, x), put(torch.add, x, y), put(torch.clamp, x, -0.5, 0.5), put(torch.lt, x, y)


@autotest()
def out_reductions():
    x = random_tensor(ndim=random(1, 6).to(int), dtype=random_dtype(["float", "half", "int"]), requires_grad=False)
    dim = oneof(0, -1)
    return put(torch.sum, x, dim), put(torch.any, x, dim), put(torch.prod, x, dim), put(torch.cumsum, x, dim)


@autotest()
def out_extremes():
    rows = random(1, 8).to(int)
    x = random_tensor(ndim=2, dim1=rows, dtype=random_dtype(["float32", "half", "int64"]), requires_grad=False)
    return put(torch.amax, x, -1), put(torch.argmax, x, -1), put(torch.logcumsumexp, x * 1.0, -1)


@autotest(dtypes=ANY)
def out_indexing():
    rows = random(1, 8).to(int)
    x = random_tensor(ndim=2, dim0=rows, requires_grad=False)
    index = index_tensor(x, dim=1, dims=(rows, random(1, 8).to(int)))
    return put(torch.gather, x, 1, index), put(torch.index_select, x, 1, index[0]), put(torch.take, x, index)


@autotest(dtypes=NUMBERS)
def out_products():
    rows, inner, columns = (random(1, 6).to(int) for _ in range(3))
    x = random_tensor(dims=(rows, inner), requires_grad=False)
    y = random_tensor(dims=(inner, columns), requires_grad=False)
    z = random_tensor(dims=(rows, columns), requires_grad=False)
    return put(torch.mm, x, y), put(torch.addmm, z, x, y), put(torch.mv, x, y[:, 0]), put(torch.bmm, x[None], y[None])


@autotest()
def out_shape():
    x = random_tensor(ndim=2, dtype=random_dtype(["float", "half", "int"]), requires_grad=False)
    return put(torch.cat, (x, x * 2)), put(torch.stack, (x, x * 2)), put(torch.tril, x), put(torch.triu, x, 1)


@autotest()
def out_sorting():
    x = random_tensor(ndim=2, requires_grad=False)
    values, indices = torch.sort(x, stable=True)
    shape = (*x.shape, 2)
    room, places = torch.zeros(shape, dtype=x.dtype), torch.zeros(shape, dtype=torch.int64)
    torch.sort(x, stable=True, out=(room[..., 1], places[..., 0]))
    return values, indices, room, places, put(torch.searchsorted, values.contiguous(), x.contiguous())


@autotest(dtypes=(*FLOATS, "int64"))
def out_pooling():
    # In two dimensions: in three, torch 2.13 itself writes beside `out` (pytorch/pytorch#84577).
    x = random_tensor(ndim=4, dim2=random(2, 5).to(int), dim3=4, requires_grad=False)
    return put(torch.nn.functional.avg_pool2d, x, 2)


@autotest()
def in_place_pointwise():
    x = random_tensor()
    y = x * 2
    return (
        y.clone().neg_(), y.clone().clamp_(-0.5, 0.5), y.clone().add_(y, alpha=random(1, 4).to(int)),
        y.clone().masked_fill_(x > 0, 2), torch.nn.functional.relu_(y.clone()),
        y.clone().div_(2, rounding_mode=oneof("floor", nothing())), y.clone().copy_(x), y.clone().zero_(),
    )  # fmt: skip


@autotest(dtypes=NUMBERS)
def in_place_indexing():
    rows, columns = random(1, 8).to(int), random(1, 8).to(int)
    x = random_tensor(ndim=2, dim1=columns)
    index, source = index_tensor(x, dims=(rows,)), random_tensor(dims=(rows, columns))
    places = index[:, None].expand(rows, columns)
    return (
        x.clone().index_add_(0, index, source), x.clone().index_fill_(0, index, 3.0),
        x.clone().scatter_add_(0, places, source), x.clone().scatter_(0, places, 2.0),
        x.clone().index_put_((index,), source, accumulate=True), x.clone().tril_(), x.clone().cumsum_(0),
    )  # fmt: skip


@autotest(dtypes=NUMBERS)
def in_place_in_a_view():
    # The tensor that it is a view of changes with it.
    x = random_tensor(ndim=3)
    y, z = x.clone(), x.clone()
    y[..., ::2].mul_(3)
    y.transpose(0, 1)[1:].add_(1)
    z.view(-1)[: random(0, 3).to(int)].fill_(5)
    z.squeeze_(0)
    return y, z, z.t_() if z.dim() < 3 else z.transpose_(0, 1)  # noqa: PLR2004 - dimensions


@autotest()
def one_tensor_twice():
    x = random_tensor(ndim=2)
    return (
        torch.add(x, x, alpha=2), x * x, torch.maximum(x, x), torch.where(x > 0, x, x), torch.cat((x, x), 1),
        torch.div(x, x), torch.addcmul(x, x, x), torch.lerp(x, x, x), torch.stack((x, x)),
        torch.nn.functional.mse_loss(x, x), torch.nn.functional.linear(x, x),
    )  # fmt: skip


@autotest(dtypes=NUMBERS)
def one_matrix_twice():
    size = random(1, 6).to(int)
    x = random_tensor(dims=(size, size))
    return x @ x, torch.addmm(x, x, x), x @ x.mT, torch.einsum("ij,jk->ik", x, x), torch.outer(x[0], x[0])


def some_frozen(*shapes):
    # Which of several inputs have a gradient, in all combinations of two.
    return tuple(random_tensor(dims=shape, requires_grad=random_bool()) for shape in shapes)


@autotest()
def frozen_operands():
    rows, columns = random(1, 6).to(int), random(1, 6).to(int)
    x, y, z = some_frozen((rows, columns), (1, columns), (rows, 1))
    return torch.addcmul(x, y, z), torch.addcdiv(x, y, z + 3), torch.lerp(x, y, z), torch.where(x > 0, y, z), x * y - z


@autotest(dtypes=NUMBERS)
def frozen_factors():
    rows, inner, columns = (random(1, 6).to(int) for _ in range(3))
    x, y, z = some_frozen((rows, inner), (inner, columns), (columns,))
    batches = torch.baddbmm(z[None, None], x[None], y[None])
    return torch.addmm(z, x, y), torch.nn.functional.linear(x, y.mT, z), batches, torch.einsum("ij,jk,k->i", x, y, z)


@autotest()
def frozen_parameters():
    channels, size = random(1, 4).to(int), random(3, 6).to(int)
    x, weight, bias = some_frozen((2, channels, size, size), (channels,), (channels,))
    (kernel,) = some_frozen((channels, channels, 2, 2))
    # Torch 2.13 itself ends the process where the channels of a frozen input lie last, and its weight is not frozen.
    planes = x.clone(memory_format=torch.contiguous_format)
    layers = torch.nn.functional
    return (
        layers.conv2d(x, kernel, bias, stride=oneof(2, nothing()), dilation=oneof(2, nothing())),
        layers.conv2d(x, kernel, padding=oneof(1, nothing()), groups=oneof(1, nothing())), layers.prelu(x, weight),
        layers.batch_norm(x, None, None, weight, bias, training=True), layers.group_norm(planes, 1, weight, bias),
        layers.layer_norm(x.transpose(1, -1), (channels,), weight, bias),
    )  # fmt: skip


@autotest()
def frozen_targets():
    rows, columns = random(1, 6).to(int), random(1, 6).to(int)
    x, y, z = some_frozen((rows, columns), (rows, columns), (rows, columns))
    losses = torch.nn.functional
    return (
        losses.mse_loss(x, y), losses.l1_loss(x, y), losses.smooth_l1_loss(x, y), losses.huber_loss(x, y),
        losses.binary_cross_entropy_with_logits(x, y), losses.kl_div(x, y, reduction="batchmean"),
        losses.triplet_margin_loss(x, y + 2, z - 2),
    )  # fmt: skip


@autotest()
def expanded_operands():
    rows, inner, columns = random(2, 9).to(int), random(1, 6).to(int), random(2, 6).to(int)
    row, column = random_tensor(dims=(1, inner)), random_tensor(dims=(inner, 1))
    x, y = row.expand(rows, inner), column.expand(inner, columns)
    return (
        torch.mm(x, y), torch.bmm(x[None], y[None]), torch.sum(x, 0), torch.cumsum(y, 1), torch.softmax(x, 0),
        torch.cat((x, x), 0), x + x, torch.argmax(y.detach(), 1), x.reshape(-1), torch.amax(y, 0),
    )  # fmt: skip


@autotest()
def computed_views():
    # Every second column of what was computed, so that inputs that are no leaves are not contiguous either.
    x = random_tensor(ndim=2, dtype=random_dtype(["float", "half", "int"]), requires_grad=False)
    y = torch.stack((x, x + 1), -1)[..., 0]
    z = torch.stack((x, x + 1))[1].mT
    small = torch.stack((x > 0, x < 0), -1)[..., 1].to(torch.int64)
    return (
        torch.sum(y), torch.argmax(z), torch.masked_select(z, z > 0), torch.sort(z, stable=True)[0], torch.cumsum(y, 0),
        torch.bincount(torch.stack((small, small), -1)[..., 0].flatten()), torch.flip(z, (0, 1)), torch.tril(z),
        torch.isin(y, z), torch.nonzero(y), torch.cat((y, y), 1), torch.prod(y, 1),
    )  # fmt: skip


@autotest()
def channels_last_layers():
    channels = random(1, 5).to(int)
    x = random_tensor(ndim=4, dim1=channels, dim2=random(3, 7).to(int), dim3=random(3, 7).to(int))
    y = x.contiguous(memory_format=torch.channels_last)
    weight = torch.ones(2, channels, 2, 2, dtype=x.dtype).contiguous(
        memory_format=oneof(torch.channels_last, torch.contiguous_format)
    )
    layers = torch.nn.functional
    return (
        layers.conv2d(y, weight), layers.batch_norm(y, None, None, training=True), layers.group_norm(y, 1),
        layers.interpolate(y, scale_factor=2, mode=oneof("nearest", "bilinear")),
        layers.pad(y, (1, 0, 0, 1)), torch.sum(y, (0, 2)), y * 2 + x, layers.softmax(y, 1),
    )  # fmt: skip


@autotest()
def channels_last_pooling():
    x = random_tensor(ndim=4, dim1=random(2, 5).to(int), dim2=random(3, 7).to(int), dim3=random(3, 7).to(int))
    y = x.contiguous(memory_format=torch.channels_last)
    layers = torch.nn.functional
    size = random(1, 4).to(int)
    return (
        layers.max_pool2d(y, 2), layers.avg_pool2d(y, 2), layers.adaptive_avg_pool2d(y, size),
        layers.adaptive_max_pool2d(y, size), layers.max_pool2d(y, 3, 1, 1, return_indices=True),
    )  # fmt: skip
