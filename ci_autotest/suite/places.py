"""Places: elements moved, cut, read, written and searched, by negative, repeated and absent dimensions and indices."""

from ci_autotest import (
    choice_tensor,
    oneof,
    permutation_tensor,
    random_bool,
    random_dtype,
    random_tensor,
    torch,
)
from ci_autotest.suite import ANY, autotest, some_of


@autotest(dtypes=ANY)
def moved_and_cut():
    x = random_tensor(dims=(oneof(1, 2, 3), oneof(1, 4), oneof(3, 5)))
    counts = torch.arange(x.shape[2]) % 3
    return some_of(
        6,
        lambda: torch.movedim(x, (0, -1), (-1, 1)),
        lambda: torch.roll(x, (1, -2), (0, -1)),
        lambda: torch.roll(x, oneof(-7, 9, 0), -1),
        lambda: torch.flip(x, ()),
        lambda: torch.flip(x, (-1, 0, 1)),
        lambda: torch.rot90(x, oneof(-1, 2, 3, 5), (-1, 0)),
        lambda: torch.permute(x, (-1, 0, -2)),
        lambda: torch.transpose(x, -1, 0),
        lambda: torch.tensor_split(x, oneof(2, 4, 7), -1),
        lambda: torch.tensor_split(x, (1, 1, 9), -1),
        lambda: torch.chunk(x, oneof(2, 9), -1),
        lambda: torch.split(x, [0, 1, x.shape[2] - 1], -1),
        lambda: torch.narrow(x, -1, -2, 2),
        lambda: torch.select(x, -1, -1),
        lambda: torch.diagonal(x, oneof(-1, 0, 2), -1, 0),
        lambda: torch.diag_embed(x, oneof(-1, 0, 2), 0, -1),
        lambda: torch.repeat_interleave(x, counts, -1),
        lambda: torch.tile(x, (2,)),
        lambda: torch.tile(x, (2, 1, 1)),
        lambda: torch.cat((x, x[..., :0], x * 1), -1),
        lambda: torch.cat((x[:0], x), -3),
        lambda: torch.stack((x, x), -1),
        lambda: torch.stack((x, x), -2),
        lambda: x.expand(2, -1, -1, -1),
        lambda: torch.squeeze(x, (0, -2)),
        lambda: torch.unsqueeze(x, -3),
        lambda: torch.take_along_dim(x, torch.tensor([0, 2])),
        lambda: torch.tril(x, oneof(-1, 0, 1)),
        lambda: torch.triu(x[:, None], oneof(-1, 0, 1)),
        lambda: torch.triu(x.mT, oneof(-1, 1)),
        lambda: torch.flatten(x, -2, -1),
        lambda: torch.unflatten(x, -1, (1, -1)),
        lambda: x.unfold(-1, oneof(1, 3), oneof(1, 2)),
        lambda: torch.swapaxes(x, 0, -1),
        lambda: torch.index_select(x, -1, counts),
        lambda: torch.nn.functional.pad(x, oneof((1, -1), (0, 2, -1, 3), (0, 0, 0, 0, 1, 2)), value=1),
        lambda: torch.unbind(x, -1),
        lambda: x.repeat(2, 1, 0, 1),
    )


@autotest(dtypes=ANY)
def read_and_written():
    # Places below zero, places that repeat where they are read, and all places once where they are written.
    rows, columns = oneof(1, 3, 5), oneof(2, 4)
    x, source = random_tensor(dims=(rows, columns)), random_tensor(dims=(rows, columns))
    order, column = permutation_tensor(rows), torch.tensor([-1, 0, -1, 1])
    places = order[:, None].expand(rows, columns)
    mask = random_tensor(dims=(columns,), dtype=bool)
    return some_of(
        6,
        lambda: x[order],
        lambda: x[:, column],
        lambda: x[order[:, None], column],
        lambda: x[-1],
        lambda: x[..., -1:],
        lambda: x[:, ::2],
        lambda: x[:, mask],
        lambda: x[x == source],
        lambda: x[None, :, None],
        lambda: x[order.to(torch.int32)],
        lambda: torch.take(x, column),
        lambda: torch.gather(x, 0, places),
        lambda: torch.gather(x, -1, column[None, 1:2] + places[:1, :1] * 0),
        lambda: torch.index_select(x, -1, column % 2),
        lambda: torch.masked_select(x, mask),
        lambda: torch.where(mask, x, source),
        lambda: torch.where(x[:1] == x, x, source[:, :1]),
        lambda: torch.index_copy(x, 0, order, source),
        lambda: torch.index_add(x, -1, column % 2, source[:, column]),
        lambda: torch.index_fill(x, -1, column, 2),
        lambda: torch.scatter(x, 0, places, source),
        lambda: torch.scatter(x, -2, places, 3),
        lambda: torch.scatter_add(x, 0, places * 0, source),
        lambda: torch.index_put(x, (order,), source),
        lambda: torch.index_put(x, (order, order % 2 - 2), source[:, 0]),
        lambda: torch.masked_fill(x, mask, 1),
        lambda: torch.masked_scatter(x, mask.expand(rows, columns), source),
        lambda: torch.select_scatter(x, source[0] * 1, 0, -1),
        lambda: torch.slice_scatter(x, source[:, :1], -1, -1),
        lambda: torch.diagonal_scatter(x, source[0, :1], -(rows.value() - 1)),
        lambda: torch.nonzero(x[0, 0] * 1),
        lambda: torch.argwhere(x[0] * 1),
    )


@autotest()
def searched_and_counted():
    # Values that are equal to boundaries, below and above all.
    x = choice_tensor(
        [0.0, 1.0, 1.0, 2.0, 3.0, -1.0, 5.0], (3, oneof(1, 4, 7)), dtype=random_dtype(["float32", "float64", "int"])
    )
    order = torch.argsort(x, dim=-1, stable=True)
    q = torch.tensor([0.0, 0.25, 0.5, 1.0], dtype=torch.float64)
    y, right = x.to(torch.float64), random_bool()
    interpolation = oneof("linear", "lower", "higher", "midpoint", "nearest")
    return some_of(
        5,
        lambda: torch.searchsorted(x.contiguous(), x.flip(0).contiguous(), sorter=order, right=right),
        lambda: torch.searchsorted(torch.sort(x[0])[0], 1),
        lambda: torch.searchsorted(torch.sort(x)[0], x, side=oneof("left", "right"), out_int32=random_bool()),
        lambda: torch.bucketize(x, torch.unique(x), right=right),
        lambda: torch.bincount(torch.abs(x.reshape(-1)).to(torch.int64), minlength=oneof(0, 9)),
        lambda: torch.histc(y, 3, 0, 3),
        lambda: torch.histc(y, 4),
        lambda: torch.quantile(y, q, -1, interpolation=interpolation),
        lambda: torch.quantile(y, q, interpolation=interpolation),
        lambda: torch.nanquantile(y, q, 0, True),
        lambda: torch.median(x),
        lambda: torch.kthvalue(x, 1, -2, True)[0],
        lambda: torch.topk(x, 1, -2, random_bool())[0],
        lambda: torch.mode(x, -2)[0],
        lambda: torch.isin(x, 1, invert=random_bool()),
        lambda: torch.unique(x, dim=-1, return_inverse=True, return_counts=True),
        lambda: torch.unique_consecutive(x, dim=-1, return_counts=True),
        lambda: torch.sort(x > 1, dim=-1, stable=True),
        lambda: torch.argsort(x > 1, dim=0, descending=True, stable=True),
        lambda: torch.cummin(x, -2),
        lambda: torch.histogram(y, torch.tensor([0.0, 1.0, 2.5, 3.0], dtype=torch.float64)),
        lambda: torch.count_nonzero(x, (0, -1)),
        lambda: torch.logsumexp(y, (0, -1)),
    )
