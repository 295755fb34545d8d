"""Shape: joining, swapping, regrouping, repeating, cutting and padding dimensions."""

from ci_autotest import nothing, oneof, random, random_bool, random_dtype, random_tensor, torch
from ci_autotest.suite import ANY, NUMBERS, autotest


@autotest(dtypes=ANY)
def cat():
    rows = random(1, 6).to(int)
    x = random_tensor(ndim=2, dim0=rows)
    y = random_tensor(ndim=2, dim0=rows, dtype=random_dtype(["float", "half", "int64"]))
    return torch.cat([x, y, x], dim=oneof(1, -1))


@autotest(dtypes=ANY)
def stack():
    rows, columns = random(0, 6).to(int), oneof(random(1, 6).to(int), 33)
    x = random_tensor(ndim=2, dim0=rows, dim1=columns)
    y = random_tensor(ndim=2, dim0=rows, dim1=columns)
    return torch.stack((x, y), dim=random(-3, 3) | nothing())


@autotest(dtypes=ANY)
def hstack():
    rows = random(1, 6).to(int)
    x = random_tensor(ndim=2, dim0=rows)
    y = random_tensor(ndim=2, dim0=rows, dtype=random_dtype(["float", "half", "int"]))
    return torch.hstack((x, y))


@autotest(dtypes=ANY)
def vstack():
    columns = random(1, 6).to(int)
    x = random_tensor(ndim=2, dim1=columns)
    y = random_tensor(ndim=random(1, 3).to(int), dim0=oneof(columns), dim1=columns)
    return torch.vstack((x, y))


@autotest(dtypes=ANY)
def transpose():
    ndim = random(1, 6).to(int)
    x = random_tensor(ndim=ndim)
    return torch.transpose(x, random(-ndim, ndim), random(-ndim, ndim))


@autotest()
def permute():
    x = random_tensor(ndim=4, dtype=random_dtype(["float", "half", "int", "bool"]))
    return x.permute(oneof((0, 2, 3, 1), (3, 1, 0, 2), (-1, 0, 1, 2), (1, 0, 3, 2)))


@autotest(dtypes=ANY)
def movedim():
    ndim = random(1, 6).to(int)
    x = random_tensor(ndim=ndim)
    return torch.movedim(x, random(-ndim, ndim), random(-ndim, ndim))


@autotest(dtypes=ANY)
def reshape():
    height, width = random(1, 6).to(int), random(1, 6).to(int)
    x = random_tensor(ndim=3, dim1=height, dim2=width)
    return torch.reshape(x, oneof((-1,), (-1, height * width), (width, height, -1), (1, -1, width)))


@autotest(dtypes=ANY)
def flatten():
    ndim = random(1, 6).to(int)
    start = random(0, ndim).to(int)
    x = random_tensor(ndim=ndim)
    return torch.flatten(x, start_dim=start, end_dim=random(start, ndim) | nothing())


@autotest(dtypes=ANY)
def unflatten():
    height, width = random(1, 6).to(int), random(1, 6).to(int)
    x = random_tensor(ndim=3, dim1=height * width)
    return torch.unflatten(x, 1, oneof((height, width), (width, -1)))


@autotest(dtypes=ANY)
def squeeze():
    ndim = random(1, 6).to(int)
    x = random_tensor(ndim=ndim, dim0=oneof(1, random(1, 8).to(int)))
    return torch.squeeze(x, random(-ndim, ndim).to(int) | nothing())


@autotest(dtypes=ANY)
def unsqueeze():
    ndim = random(1, 6).to(int)
    x = random_tensor(ndim=ndim)
    return torch.unsqueeze(x, random(-ndim - 1, ndim + 1))


@autotest(dtypes=ANY)
def expand():
    x = random_tensor(ndim=2, dim1=1)
    return x.expand(random(1, 4), -1, random(1, 6))


@autotest(dtypes=ANY)
def broadcast_to():
    columns = random(1, 8).to(int)
    x = random_tensor(ndim=random(1, 3).to(int), dim0=oneof(1), dim1=columns)
    return torch.broadcast_to(x, (random(1, 4).to(int), 1, columns))


@autotest(dtypes=ANY)
def repeat():
    x = random_tensor(ndim=2)
    return x.repeat(random(1, 4), random(0, 3), random(1, 4))


@autotest(dtypes=ANY)
def tile():
    x = random_tensor(ndim=random(1, 6).to(int))
    return torch.tile(x, (random(1, 4).to(int), random(1, 4).to(int)))


@autotest(dtypes=ANY)
def repeat_interleave():
    x = random_tensor(ndim=random(1, 6).to(int))
    return torch.repeat_interleave(x, random(0, 4).to(int), dim=oneof(0, -1, nothing()))


@autotest()
def flip():
    x = random_tensor(ndim=random(2, 6).to(int), dtype=random_dtype(["float", "half", "int", "bool"]))
    return torch.flip(x, dims=oneof((0,), (-1,), (0, 1), (1, 0)))


@autotest(dtypes=ANY)
def roll():
    x = random_tensor(ndim=random(2, 6).to(int))
    return torch.roll(x, shifts=random(-9, 10), dims=oneof(0, 1, -1))


@autotest(dtypes=ANY)
def rot90():
    x = random_tensor(ndim=random(2, 6).to(int))
    return torch.rot90(x, k=random(-4, 5), dims=oneof((0, 1), (1, 0)))


@autotest(dtypes=ANY)
def split():
    x = random_tensor(ndim=random(2, 6).to(int))
    return torch.split(x, random(1, 5).to(int), dim=oneof(0, 1, -1, nothing()))


@autotest(dtypes=ANY)
def chunk():
    x = random_tensor(ndim=random(2, 6).to(int))
    return torch.chunk(x, random(1, 5), dim=oneof(0, 1, -1, nothing()))


@autotest(dtypes=ANY)
def unbind():
    x = random_tensor(ndim=2, dim0=random(0, 6).to(int), dim1=random(1, 6).to(int))
    return torch.unbind(x, dim=oneof(0, 1, -1, nothing()))


@autotest()
def tril():
    x = random_tensor(ndim=random(2, 6).to(int), dtype=random_dtype(["float", "half", "int", "bool"]))
    return torch.tril(x, diagonal=random(-3, 4) | nothing())


@autotest()
def triu():
    x = random_tensor(ndim=random(2, 6).to(int), dtype=random_dtype(["float", "half", "int", "bool"]))
    return torch.triu(x, diagonal=random(-3, 4) | nothing())


@autotest(dtypes=ANY)
def diag():
    x = random_tensor(ndim=random(1, 3).to(int))
    return torch.diag(x, diagonal=random(-3, 4) | nothing())


@autotest(dtypes=ANY)
def diag_embed():
    x = random_tensor(ndim=random(1, 6).to(int))
    return torch.diag_embed(x, offset=random(-2, 3))


@autotest(dtypes=ANY)
def meshgrid():
    x, y = random_tensor(ndim=1), random_tensor(ndim=1)
    return torch.meshgrid(x, y, indexing=oneof("ij", "xy"))


@autotest(dtypes=ANY)
def pad():
    # Negative amounts cut.
    x = random_tensor(ndim=random(2, 6).to(int))
    amounts = [random(-1, 4).to(int) for _ in range(4)]
    return torch.nn.functional.pad(x, oneof(amounts, amounts[:2]), value=random(-2, 3).to(float) | nothing())


@autotest(dtypes=NUMBERS)
def pad_mode():
    # Amounts below the least size: more may not be reflected.
    size = random(3, 8).to(int)
    x = random_tensor(ndim=random(2, 4).to(int), dim1=size, dim2=size)
    amounts = [random(0, 3).to(int) for _ in range(2)]
    return torch.nn.functional.pad(x, amounts, mode=oneof("reflect", "replicate", "circular"))


@autotest(dtypes=ANY)
def pixel_shuffle():
    factor = random(1, 4).to(int)
    x = random_tensor(ndim=4, dim1=factor * factor * random(1, 4).to(int))
    return torch.nn.functional.pixel_shuffle(x, factor)


@autotest()
def clone():
    x = random_tensor(dtype=random_dtype(["all"]), requires_grad=random_bool())
    return x.clone()


@autotest(dtypes=ANY)
def like_another():
    rows, columns = random(1, 6).to(int), random(1, 6).to(int)
    x = random_tensor(dims=(rows, columns))
    y = random_tensor(dims=(columns, rows), dtype=random_dtype(["float", "half", "int"]))
    z = random_tensor(dims=(1, columns)) * 1
    w = x * 2
    return w.reshape_as(y), w.view_as(y), w.type_as(y), z.expand_as(x), w.view(-1), w.sum_to_size(1, columns)


@autotest(dtypes=ANY)
def joined():
    rows, columns = random(1, 6).to(int), random(1, 6).to(int)
    x, y = random_tensor(dims=(rows, columns)), random_tensor(dims=(rows, columns))
    empty = x[:0]
    return (
        torch.column_stack((x, y)),
        torch.dstack((x, y)),
        torch.cat((empty, x, y, empty)),
        torch.cat((x, y)),
        torch.cat((empty, x)),
    )


@autotest(dtypes=ANY)
def split_evenly():
    x = random_tensor(dims=(random(2, 6).to(int), random(2, 6).to(int), random(2, 6).to(int)))
    return (
        torch.tensor_split(x, oneof(2, (1, 3)), dim=oneof(0, -1, nothing())),
        torch.hsplit(x, [1]),
        (torch.vsplit(x, [1])),
        torch.dsplit(x, [1]),
    )


@autotest()
def flipped():
    x = random_tensor(ndim=random(2, 6).to(int), dtype=random_dtype(["float", "half", "int", "bool"]))
    return torch.fliplr(x), torch.flipud(x), torch.ravel(x), torch.rot90(x), torch.roll(x, random(-3, 4).to(int))


@autotest(dtypes=ANY)
def at_least():
    x = random_tensor(ndim=random(1, 6).to(int))
    number = random_tensor(dims=())
    return (
        torch.atleast_1d(number), torch.atleast_2d(x, number), torch.atleast_3d(x), torch.broadcast_tensors(x, number),
        torch.diagflat(x.reshape(-1)[:9] * 1, offset=oneof(0, 1, -2, nothing())),
    )  # fmt: skip


@autotest(dtypes=ANY)
def windows_of_a_dimension():
    x = random_tensor(ndim=random(1, 4).to(int), dim0=random(4, 9).to(int))
    return x.unfold(0, random(1, 5).to(int), random(1, 4).to(int))


@autotest(dtypes=ANY)
def squeeze_dimensions():
    # Several at once; those that are not 1 stay.
    x = random_tensor(dims=(1, random(1, 4).to(int), 1, random(1, 4).to(int)))
    return (
        torch.squeeze(x, oneof((0,), (0, 2), (0, 1, -2))),
        torch.squeeze(x),
        torch.diag_embed(x, offset=oneof(1, nothing()), dim1=oneof(0, 1), dim2=oneof(-1, 2)),
    )


@autotest(dtypes=NUMBERS)
def pad_planes():
    # In two and three dimensions, each side by another amount.
    size = random(3, 6).to(int)
    x = random_tensor(ndim=5, dim0=1, dim1=2, dim2=size, dim3=size + 1, dim4=size)
    amounts = [random(0, 3).to(int) for _ in range(6)]
    mode = oneof("reflect", "replicate", "circular")
    return torch.nn.functional.pad(x, amounts, mode=mode), torch.nn.functional.pad(x[0], amounts[:4], mode=mode)
