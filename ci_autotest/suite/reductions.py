"""Reductions and scans: over all elements, over one dimension, over several dimensions."""

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
def sum():  # noqa: A001 - the operator's name
    x = random_tensor(
        ndim=random(2, 6).to(int), dtype=random_dtype(["float", "half", "int", "uint", "bool", "complex"])
    )
    return torch.sum(x, dim=oneof(None, 0, -1, (0, -1), (), nothing()), keepdim=random_bool() | nothing())


@autotest(dtypes=REALS)
def nansum():
    x = random_tensor(ndim=random(2, 6).to(int))
    return torch.nansum(
        x,
        dim=oneof(None, 0, -1, (0, -1), nothing()),
        keepdim=random_bool() | nothing(),
        dtype=torch.float64 | nothing(),
    )


@autotest()
def mean():
    # 0 and -1 are the dimensions that every rank has, a 0-dim tensor too.
    x = random_tensor(dtype=random_dtype(["float", "half"]))
    return torch.mean(
        x,
        dtype=oneof(torch.float64, nothing()),
        dim=oneof(None, 0, -1, nothing()),
        keepdim=random_bool() | nothing(),
    )


@autotest()
def prod():
    x = random_tensor(ndim=random(1, 6).to(int), low=0.5, high=1.5, dtype=random_dtype(["float", "half"]))
    y = random_tensor(ndim=2, dtype=random_dtype(["float", "half", "int", "bool"]))
    whole = torch.prod(y), torch.prod(y, dtype=oneof(torch.bool, torch.float64))
    return torch.prod(x, dim=oneof(0, -1), keepdim=random_bool() | nothing()), torch.prod(y, -1), whole


def extreme_with_index(operator):
    # The index of a tie is defined: the first.
    ndim = random(1, 6).to(int)
    x = random_tensor(ndim=ndim, dtype=random_dtype(["float32", "half", "int64"]))
    return operator(x, dim=random(-ndim, ndim).to(int), keepdim=random_bool() | nothing())


def extreme(operator):
    # Ties share the gradient.
    x = random_tensor(ndim=random(2, 6).to(int), dtype=random_dtype(["float", "half", "int", "uint"]))
    return operator(x, dim=oneof((), 0, -1, (0, -1), nothing()), keepdim=random_bool() | nothing())


def index_of_extreme(operator):
    # The index of a tie is defined: the first.
    x = random_tensor(dtype=random_dtype(["float32", "half", "int64"]))
    return operator(x, dim=oneof(None, 0, -1, nothing()), keepdim=random_bool() | nothing())


@autotest(dtypes=REALS)
def max():  # noqa: A001 - the operator's name
    return extreme_with_index(torch.max), torch.max(random_tensor(dims=(random(1, 6).to(int), 2)))


@autotest(dtypes=REALS)
def min():  # noqa: A001 - the operator's name
    return extreme_with_index(torch.min), torch.min(random_tensor(dims=(random(1, 6).to(int), 2)))


@autotest()
def amax():
    return extreme(torch.amax)


@autotest()
def amin():
    return extreme(torch.amin)


@autotest()
def aminmax():
    x = random_tensor(dtype=random_dtype(["float", "half", "int"]))
    return torch.aminmax(x, dim=oneof(0, -1, nothing()), keepdim=random_bool() | nothing())


@autotest()
def argmax():
    return index_of_extreme(torch.argmax)


@autotest()
def argmin():
    return index_of_extreme(torch.argmin)


def without_ties():
    # Torch 2.13 itself gives the gradient to another one of some that are equal in another run.
    size = random(1, 9).to(int)
    return random_tensor(ndim=2, dim1=size, low=0, high=0.5) + permutation_tensor(size)


@autotest(dtypes=REALS)
def median():
    return torch.median(without_ties(), dim=oneof(1, -1), keepdim=random_bool() | nothing())


@autotest(dtypes=None)
def quantile():
    return torch.quantile(
        without_ties(),
        random(0, 1),
        dim=oneof(1, -1, nothing()),
        keepdim=random_bool() | nothing(),
        interpolation=oneof("linear", "lower", "higher", "midpoint", "nearest", nothing()),
    )


@autotest()
def var():
    ndim = random(1, 6).to(int)
    x = random_tensor(ndim=ndim, dtype=random_dtype(["float", "half"]))
    dim = random(-ndim, ndim).to(int)
    return torch.var(
        x,
        dim=oneof(None, dim, nothing()),
        correction=random(0, 3).to(int) | nothing(),
        keepdim=random_bool() | nothing(),
    )


@autotest(dtypes=(*FLOATS, "complex64"))
def std():
    # Away from a spread of zero, where the root has no gradient: no correction, two elements or more.
    x = random_tensor(ndim=2, dim1=random(2, 8).to(int))
    return torch.std(
        x, dim=oneof(1, -1, nothing()), correction=random(0, 2).to(int) | nothing(), keepdim=random_bool() | nothing()
    )


@autotest(dtypes=(*FLOATS, "complex64"))
def var_mean():
    x = random_tensor(ndim=random(2, 6).to(int))
    return torch.var_mean(
        x,
        dim=oneof(0, -1, (0, -1), nothing()),
        correction=random(0, 2).to(int) | nothing(),
        keepdim=random_bool() | nothing(),
    )


@autotest()
def norm():
    x = random_tensor(ndim=random(2, 6).to(int))
    return torch.norm(
        x,
        p=oneof(1, 2, float("inf"), nothing()),
        dim=oneof(0, -1, (0, -1), nothing()),
        keepdim=random_bool() | nothing(),
        dtype=oneof(torch.float64, nothing()),
    )


@autotest(dtypes=ANY)
def logsumexp():
    x = random_tensor(ndim=random(2, 6).to(int))
    return torch.logsumexp(x, dim=oneof(0, -1, (0, -1)), keepdim=random_bool() | nothing())


@autotest()
def all():  # noqa: A001 - the operator's name
    x = random_tensor(low=0, high=3, dtype=random_dtype(["bool", "int", "uint"]))
    return torch.all(x, dim=oneof(0, -1, (0, -1)), keepdim=random_bool() | nothing())


@autotest()
def any():  # noqa: A001 - the operator's name
    x = random_tensor(low=0, high=2, dtype=random_dtype(["bool", "int", "uint"]))
    return torch.any(x, dim=oneof(0, -1, (0, -1)), keepdim=random_bool() | nothing())


@autotest()
def count_nonzero():
    x = random_tensor(low=0, high=3, dtype=random_dtype(["bool", "int"]))
    return torch.count_nonzero(x, dim=oneof(None, 0, -1, nothing()))


@autotest()
def cumsum():
    ndim = random(1, 6).to(int)
    x = random_tensor(ndim=ndim, dtype=random_dtype(["float32", "half", "int32"]))
    return torch.cumsum(x, dim=random(-ndim, ndim), dtype=torch.float64 | nothing())


@autotest(dtypes=(*FLOATS, "complex64"))
def cumprod():
    ndim = random(1, 6).to(int)
    x = random_tensor(ndim=ndim, low=0.5, high=1.5)
    return torch.cumprod(x, dim=random(-ndim, ndim).to(int), dtype=oneof(torch.float64, nothing()))


@autotest(dtypes=REALS)
def cummax():
    # The index of a tie is defined: the last.
    ndim = random(1, 6).to(int)
    x = random_tensor(ndim=ndim)
    return torch.cummax(x, dim=random(-ndim, ndim).to(int))


@autotest(dtypes=(*FLOATS, "complex64"))
def logcumsumexp():
    ndim = random(1, 6).to(int)
    x = random_tensor(ndim=ndim)
    return torch.logcumsumexp(x, dim=random(-ndim, ndim).to(int))


@autotest()
def diff():
    ndim = random(1, 6).to(int)
    x = random_tensor(ndim=ndim, dtype=random_dtype(["float", "half", "int"]))
    return torch.diff(x, n=random(0, 3).to(int) | nothing(), dim=random(-ndim, ndim).to(int) | nothing()), torch.diff(
        x, prepend=x, append=x
    )


@autotest(dtypes=REALS)
def cummin():
    # The index of a tie is defined: the last.
    ndim = random(1, 6).to(int)
    x = random_tensor(ndim=ndim)
    return torch.cummin(x, dim=random(-ndim, ndim).to(int))


@autotest()
def nanmean():
    x = random_tensor(ndim=random(2, 6).to(int))
    y = x / torch.round(x)
    return torch.nanmean(x, dim=oneof(None, 0, (0, -1), nothing()), keepdim=random_bool() | nothing()), (
        torch.nanmean(y.detach(), dtype=torch.float64 | nothing())
    )


@autotest(dtypes=None)
def nan_quantiles():
    x = without_ties()
    keepdim = random_bool() | nothing()
    return torch.nanmedian(x, dim=oneof(1, -1), keepdim=keepdim), torch.nanquantile(
        x,
        random(0, 1).to(float),
        dim=oneof(1, -1, nothing()),
        keepdim=keepdim,
        interpolation=oneof("linear", "lower", nothing()),
    )


@autotest()
def mode():
    # Few values, so that one is the most frequent; the least of several.
    x = random_tensor(ndim=2, low=0, high=3, dtype=random_dtype(["int"]))
    return torch.mode(x, dim=oneof(0, -1, nothing()), keepdim=random_bool() | nothing())[0]


@autotest()
def std_mean():
    x = random_tensor(ndim=2, dim1=random(3, 8).to(int), dtype=random_dtype(["float", "half"]))
    return (
        torch.std_mean(
            x, dim=oneof(1, -1, (0, 1)), correction=oneof(0, 1, nothing()), keepdim=random_bool() | nothing()
        ),
        torch.std_mean(x),
        torch.std_mean(x, unbiased=False),
    )


@autotest()
def over_everything():
    # Without any argument, and with a dtype alone.
    x = random_tensor(low=0.5, high=1.5, dtype=random_dtype(["float", "half", "int", "bool"]))
    dtype = oneof(torch.float64, nothing())
    return (
        torch.sum(x, dtype=dtype),
        torch.prod(x, dtype=dtype),
        torch.all(x),
        torch.any(x),
        (torch.count_nonzero(x, dim=(0,) if x.dim() else ())),
        torch.amax(x),
        torch.argmax(x.to(torch.int64)),
        torch.cumsum(x, 0),
    )


@autotest()
def nanmedian():
    return torch.nanmedian(without_ties(), dim=oneof(1, -1), keepdim=random_bool() | nothing())
