"""Sorting, searching and counting: values, and indices as far as ties leave them defined.

Operators whose output shape depends on data get computed inputs: a compiler runs such operators eagerly and compiles
only the steps before them, so without these steps nothing would be compiled.
"""

from ci_autotest import (
    nothing,
    oneof,
    permutation_tensor,
    random,
    random_bool,
    random_dtype,
    random_tensor,
    torch,
)
from ci_autotest.suite import ANY, FLOATS, REALS, autotest


@autotest()
def sort():
    # Stable: the order of ties is defined.
    ndim = random(1, 6).to(int)
    x = random_tensor(ndim=ndim, dtype=random_dtype(["float", "half", "int", "uint"]))
    return torch.sort(x, dim=random(-ndim, ndim), descending=random_bool() | nothing(), stable=True)


@autotest()
def argsort():
    ndim = random(1, 6).to(int)
    x = random_tensor(ndim=ndim, dtype=random_dtype(["float", "half", "int"]))
    return torch.argsort(
        x, dim=random(-ndim, ndim).to(int) | nothing(), descending=random_bool() | nothing(), stable=True
    )


@autotest()
def msort():
    x = random_tensor(ndim=random(1, 6).to(int), dtype=random_dtype(["float", "half", "int"]))
    return torch.msort(x)


def without_ties():
    # Which of some that are equal is taken is anyone's, and so is the gradient.
    size = random(3, 9).to(int)
    return random_tensor(ndim=2, dim1=size, low=0, high=0.5) + permutation_tensor(size)


@autotest(dtypes=REALS)
def topk():
    return torch.topk(
        without_ties(),
        k=random(0, 4),
        dim=oneof(0, 1, -1, nothing()),
        largest=random_bool() | nothing(),
        sorted=oneof(True, nothing()),
    )


@autotest(dtypes=REALS)
def kthvalue():
    return torch.kthvalue(
        without_ties(), k=random(1, 4), dim=oneof(0, 1, -1, nothing()), keepdim=random_bool() | nothing()
    )


@autotest()
def unique():
    x = random_tensor(low=-3, high=4, dtype=random_dtype(["int"]))
    return torch.unique(
        x * 2,
        sorted=oneof(True, nothing()),
        return_inverse=random_bool() | nothing(),
        return_counts=random_bool() | nothing(),
        dim=oneof(0, None, nothing()),
    )


@autotest()
def unique_consecutive():
    x = random_tensor(ndim=1, low=0, high=3, dtype=random_dtype(["int"]))
    return torch.unique_consecutive(
        x * 2,
        return_inverse=random_bool() | nothing(),
        return_counts=random_bool() | nothing(),
        dim=oneof(0, nothing()),
    )


@autotest(dtypes=(*FLOATS, "int64"))
def searchsorted():
    x = random_tensor(ndim=1, requires_grad=False)
    values = random_tensor(requires_grad=False)
    return torch.searchsorted(
        torch.sort(x)[0], values, right=random_bool() | nothing(), out_int32=random_bool() | nothing()
    )


@autotest()
def bucketize():
    values = random_tensor(low=-3, high=4, dtype=random_dtype(["float", "half", "int"]), requires_grad=False)
    return torch.bucketize(
        values,
        torch.arange(-2, random(-1, 4).to(int)),
        out_int32=random_bool() | nothing(),
        right=random_bool() | nothing(),
    )


@autotest()
def bincount():
    count = random(1, 20).to(int)
    x = random_tensor(dims=(count,), low=0, high=8, dtype=random_dtype(["int", "uint"]))
    weights = random_tensor(dims=(count,), requires_grad=False)
    return torch.bincount(x + 1, weights=oneof(weights, nothing()), minlength=random(0, 12).to(int) | nothing())


@autotest()
def order_statistics_of_anything():
    # Values alone, of numbers among which there may be NaN and equal ones.
    x = random_tensor(ndim=random(1, 6).to(int), dtype=random_dtype(["float"]), requires_grad=False)
    q = oneof(0.0, 0.5, 1.0)
    part = torch.quantile(x, 0.3, dim=-1)
    # torch 2.13 gives what lies in memory for a dimension that is expanded: torch.median(torch.ones(1).expand(5), 0).
    dense = x.contiguous()
    return (
        torch.median(dense, dim=-1)[0], torch.median(x), torch.nanmedian(dense, dim=-1)[0],
        torch.quantile(x, q, dim=-1), torch.nanquantile(x, q, dim=0), torch.topk(x, 1, dim=-1)[0], part, torch.msort(x),
    )  # fmt: skip


@autotest()
def unique_of_floats():
    x = torch.round(
        random_tensor(ndim=random(1, 3).to(int), dtype=random_dtype(["float", "half"]), requires_grad=False) * 2
    )
    y = torch.cat((x.reshape(-1), x.reshape(-1)[:2]))
    return torch.unique(y, return_inverse=True, return_counts=True), torch.unique_consecutive(y, return_counts=True)


@autotest()
def histc():
    x = random_tensor(requires_grad=False)
    ends = oneof(1, 0)
    return torch.histc(x * 1, bins=random(1, 9), min=-1, max=1), torch.histc(x.clamp(-1, 1), min=-ends, max=ends)


@autotest(dtypes=ANY)
def cartesian_prod():
    x, y = random_tensor(ndim=1), random_tensor(ndim=1)
    return torch.cartesian_prod(x, y)


@autotest(dtypes=ANY)
def combinations():
    x = random_tensor(ndim=1)
    # Of a thousand elements there are 1.8e8 triples, for which torch needs 13 GB.
    return torch.combinations(
        (x * 2)[:129], r=random(1, 4).to(int) | nothing(), with_replacement=random_bool() | nothing()
    )


@autotest()
def histogram():
    x = random_tensor(low=-1.2, high=1.2, requires_grad=False)
    weight = random_tensor(ndim=1, dim0=1, requires_grad=False)
    return torch.histogram(
        x, bins=random(1, 9).to(int), range=(-1.0, 1.0), weight=oneof(weight.expand_as(x), nothing()),
        density=oneof(False, nothing()),
    ), torch.histogramdd(x.reshape(-1, 1), bins=[4], range=(-1.0, 1.0))  # fmt: skip
