"""Two dtypes at once: what both become, tensors of one element beside others, functions of integers and booleans."""

from ci_autotest import oneof, random, random_bool, random_dtype, random_tensor, torch
from ci_autotest.suite import autotest, some_of

#: Kinds whose pairs become another dtype than one of them, or the first, or the second.
KINDS = ("float32", "float64", "float16", "bfloat16", "int64", "int32", "uint8", "bool")


def small(dims, dtype):
    # Few values, which every kind holds, and no zero.
    return random_tensor(dims=dims, low=1, high=5, dtype=torch.int64).to(dtype)


def two():
    # One of them may be a tensor without dimensions, whose dtype counts less.
    size = random(1, 6).to(int)
    shapes = {0: ((), ()), 1: ((size,), ()), 2: ((), (size,)), 3: ((size,), (size,)), 4: ((size, 1), (size,))}
    x, y = shapes[random(0, 5).to(int).value()]
    return small(x, random_dtype(KINDS)), small(y, random_dtype(KINDS))


@autotest()
def arithmetic():
    x, y = two()
    return some_of(
        3,
        lambda: torch.add(x, y),
        lambda: torch.mul(x, y),
        lambda: torch.div(x, y),
        lambda: torch.true_divide(y, x),
        lambda: torch.atan2(x, y),
        lambda: torch.maximum(x, y),
        lambda: torch.minimum(y, x),
        lambda: torch.max(x, y),
        lambda: torch.min(x, y),
        lambda: torch.copysign(x, y),
        lambda: torch.hypot(x * 1.0, y * 1.0),
        lambda: torch.xlogy(x, y),
        lambda: torch.where(x > y, x, y),
        lambda: torch.float_power(x, y),
        lambda: torch.eq(x, y),
        lambda: torch.fmax(x, y),
        lambda: torch.special.xlog1py(x, y),
    )


@autotest()
def division():
    # Of booleans there is none.
    kinds = KINDS[:-1]
    size = random(1, 6).to(int)
    x = random_tensor(ndim=random(0, 2).to(int), dim0=size, low=-20, high=21, dtype=torch.int64)
    y = random_tensor(ndim=random(0, 2).to(int), dim0=oneof(1, size), low=1, high=6, dtype=torch.int64)
    x, y = torch.abs(x).to(random_dtype(kinds)), y.to(random_dtype(kinds))
    return some_of(
        3,
        lambda: torch.div(x, y, rounding_mode="floor"),
        lambda: torch.div(x, y, rounding_mode="trunc"),
        lambda: torch.floor_divide(x, y),
        lambda: torch.remainder(x, y),
        lambda: torch.fmod(x, y),
        lambda: torch.sub(x, y),
        lambda: torch.pow(x, y),
        lambda: torch.rsub(x, y),
        lambda: torch.addcmul(x, y, y),
        lambda: torch.add(x, y, alpha=2),
        lambda: torch.clamp(x, min=y),
        lambda: torch.clamp(x, y, x + y),
    )


@autotest()
def numbers():
    # Of Python, of another kind than the tensor.
    x = random_tensor(ndim=random(0, 2).to(int), low=1, high=5, dtype=torch.int64).to(random_dtype(KINDS))
    number = oneof(2, 2.5, True, 1j, -1.0, 300)
    real = oneof(2, 2.5, True)
    return some_of(
        3,
        lambda: torch.add(x, number),
        lambda: x * number,
        lambda: torch.div(x, number),
        lambda: number + x,
        lambda: torch.pow(x, real),
        lambda: torch.pow(real, x),
        lambda: torch.eq(x, real),
        lambda: torch.where(x > 1, x, real),
        lambda: torch.ge(x, real),
        lambda: torch.clamp(x * 1, max=real),
        lambda: torch.full_like(x, real),
        lambda: torch.xlogy(x, real),
        lambda: torch.copysign(x, 2.0 * real),
        lambda: torch.fmod(x * 1, real),
    )


@autotest()
def joined():
    x, y = two()
    x, y = torch.atleast_1d(x), torch.atleast_1d(y)
    a, b = x.reshape(1, -1), y.reshape(1, -1)
    return some_of(
        2,
        lambda: torch.cat((a, b), 1),
        lambda: torch.hstack((b, a)),
        lambda: torch.block_diag(a, b),
        lambda: torch.block_diag(y, x),
        lambda: torch.kron(a, b),
        lambda: torch.vstack((a[:, :1], b[:, :1])),
        lambda: torch.dstack((a[:, :1], b[:, :1])),
        lambda: torch.outer(a[0], b[0]),
        lambda: torch.column_stack((a[:, :1], b[:, :1])),
        lambda: torch.stack((a[0, :1], b[0, :1])),
    )


@autotest()
def losses():
    floats = ["float32", "float64", "half"]
    rows = random(1, 6).to(int)
    # Torch 2.13 has no backward pass of two dtypes.
    x = random_tensor(dims=(rows, 3), dtype=random_dtype(floats), requires_grad=False)
    y = random_tensor(dims=(rows, 3), dtype=random_dtype(floats), requires_grad=False)
    layers = torch.nn.functional
    return some_of(
        2,
        lambda: layers.mse_loss(x, y),
        lambda: layers.l1_loss(x, y),
        lambda: layers.smooth_l1_loss(x, y),
        lambda: layers.huber_loss(x, y),
        lambda: layers.kl_div(x, y, reduction="batchmean"),
        lambda: layers.cosine_similarity(x + 2, y + 2),
        lambda: torch.lerp(x, y.to(x.dtype), 0.5),
    )


INTEGERS = ["int64", "int32", "int16", "int8", "uint8", "bool"]


@autotest()
def floats_of_integers():
    x = random_tensor(low=0, high=9, dtype=random_dtype(INTEGERS))
    special = torch.special
    return some_of(
        6,
        lambda: torch.sqrt(x),
        lambda: torch.rsqrt(x),
        lambda: torch.reciprocal(x),
        lambda: torch.log(x),
        lambda: torch.log2(x),
        lambda: torch.log10(x),
        lambda: torch.log1p(x),
        lambda: torch.exp(x),
        lambda: torch.exp2(x),
        lambda: torch.expm1(x),
        lambda: torch.sin(x),
        lambda: torch.cos(x),
        lambda: torch.tan(x),
        lambda: torch.sinh(x),
        lambda: torch.cosh(x),
        lambda: torch.tanh(x),
        lambda: torch.asin(x),
        lambda: torch.acos(x),
        lambda: torch.atan(x),
        lambda: torch.asinh(x),
        lambda: torch.acosh(x),
        lambda: torch.atanh(x),
        lambda: torch.sigmoid(x),
        lambda: torch.deg2rad(x),
        lambda: torch.logit(x),
        lambda: special.erf(x),
        lambda: special.erfc(x),
        lambda: special.erfinv(x),
        lambda: special.gammaln(x),
        lambda: special.digamma(x),
        lambda: special.polygamma(1, x),
        lambda: special.i0(x),
        lambda: special.i0e(x),
        lambda: special.i1(x),
        lambda: special.i1e(x),
        lambda: special.ndtr(x),
        lambda: special.ndtri(x),
        lambda: special.log_ndtr(x),
        lambda: special.entr(x),
        lambda: special.sinc(x),
        lambda: special.erfcx(x),
        lambda: torch.isfinite(x),
        lambda: torch.isnan(x),
        lambda: torch.angle(x),
    )


@autotest()
def reductions_of_integers():
    # More than the dtype counts to: 300 are summed in int64 unless another dtype is asked for.
    x = random_tensor(
        dims=(oneof(3, 300), random(1, 4).to(int)), low=0, high=oneof(2, 100), dtype=random_dtype(INTEGERS)
    )
    dtype, dim = oneof(torch.float32, torch.int32, torch.float64, torch.int8), oneof(0, -1)
    return some_of(
        4,
        lambda: torch.sum(x),
        lambda: torch.sum(x, dim),
        lambda: torch.sum(x, dim, dtype=dtype),
        lambda: torch.prod(x),
        lambda: torch.prod(x[:3], dim, dtype=dtype),
        lambda: torch.cumsum(x, dim),
        lambda: torch.cumprod(x, dim),
        lambda: torch.cumsum(x, dim, dtype=dtype),
        lambda: torch.nansum(x, dim),
        lambda: torch.mean(x, dim, dtype=torch.float32),
        lambda: torch.mean(x, dtype=torch.float64),
        lambda: torch.count_nonzero(x, dim),
        lambda: torch.all(x),
        lambda: torch.any(x, dim),
        lambda: torch.argmax(x.to(torch.int32), dim),
        lambda: torch.amax(x, dim),
        lambda: torch.trace(x * 1),
        lambda: torch.softmax(x, dim, dtype=torch.float32),
        lambda: torch.linalg.vector_norm(x * 1.0, dtype=torch.float64),
        lambda: torch.bincount(x.reshape(-1).to(torch.uint8)),
    )


@autotest()
def reductions_of_numbers():
    # Whether any, or all, of what is not a boolean counts as true, and in which dtype it is summed.
    x = torch.round(
        random_tensor(ndim=random(1, 4).to(int), dtype=random_dtype(["float", "half", "complex"])).detach().real * 2
    )
    dtype, dim = oneof(torch.float64, torch.float32, torch.complex64), oneof(0, -1)
    return some_of(
        2,
        lambda: torch.all(x),
        lambda: torch.any(x, dim),
        lambda: torch.all(x, dim, keepdim=random_bool()),
        lambda: torch.count_nonzero(x),
        lambda: torch.sum(x, dim, dtype=dtype),
        lambda: torch.mean(x, dim, dtype=dtype),
        lambda: torch.prod(x, dim, dtype=dtype),
        lambda: torch.cumsum(x, dim, dtype=dtype),
        lambda: torch.cumprod(x, dim, dtype=dtype),
        lambda: torch.logical_and(x, x > 0),
    )


def ends_of(dtype):
    low, high = torch.iinfo(dtype).min, torch.iinfo(dtype).max
    return tuple(sorted({low, low + 1, high // 2 + 1, high - 1, high, 0, 1, 2, 3, 7, 100}))


@autotest()
def integers_at_the_ends():
    # Torch's sums and products wrap around. The least integer has no opposite, and is not divided by -1.
    dtype = random_dtype(["int64", "int32", "int16", "int8", "uint8"]).value()
    ends = torch.tensor(ends_of(dtype), dtype=dtype)
    x, y, inner = ends[:, None], ends[None], ends[1:]
    z = torch.tensor([2, 3, 7, 100], dtype=dtype) * (1 if dtype == torch.uint8 else -1)
    number = oneof(2, 3, 7)
    return some_of(
        6,
        lambda: x + y,
        lambda: x - y,
        lambda: x * y,
        lambda: -inner,
        lambda: torch.abs(inner),
        lambda: torch.sign(ends),
        lambda: torch.maximum(x, y),
        lambda: torch.minimum(x, y),
        lambda: x < y,
        lambda: x == y,
        lambda: torch.bitwise_and(x, y),
        lambda: torch.bitwise_xor(x, y),
        lambda: torch.bitwise_not(ends),
        lambda: torch.gcd(inner[:, None], inner[None]),
        lambda: torch.clamp(x, y, y + 1),
        lambda: torch.square(ends),
        lambda: torch.sgn(ends),
        lambda: torch.bitwise_right_shift(ends, number),
        lambda: torch.floor_divide(x, z),
        lambda: torch.remainder(x, z),
        lambda: torch.fmod(x, z),
        lambda: torch.div(x, z),
        lambda: x // number,
        lambda: x % number,
        lambda: torch.div(x, z, rounding_mode="trunc"),
        lambda: torch.fmod(x, number),
        lambda: torch.bitwise_left_shift(ends, number),
        lambda: torch.pow(ends, number),
        lambda: torch.sort(ends)[0],
        lambda: torch.argmax(ends),
        lambda: torch.amin(ends),
        lambda: torch.max(ends),
        lambda: torch.sum(ends),
        lambda: torch.prod(ends),
        lambda: torch.cumsum(ends, 0),
        lambda: torch.cumprod(ends, 0),
        lambda: torch.diff(ends),
        lambda: torch.mean(ends, dtype=torch.float64),
        lambda: ends.to(torch.float64),
        lambda: ends.to(torch.uint8),
        lambda: ends.to(torch.bool),
        lambda: torch.unique(ends),
        lambda: torch.median(ends),
        lambda: torch.isin(ends, z),
        lambda: torch.cummax(ends, 0)[0],
        lambda: torch.dot(ends, ends),
    )
