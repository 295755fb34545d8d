"""Numbers and arguments as they are seldom given: large integers, powers, conversions, weights, ranges, lengths."""

from ci_autotest import (
    choice_tensor,
    nothing,
    oneof,
    random_bool,
    random_dtype,
    random_tensor,
    torch,
)
from ci_autotest.suite import autotest, some_of

INFINITY, NAN = float("inf"), float("nan")
#: Integers that float32 or float64 does not hold, and their neighbours. Five of them have a sum in int64.
LARGE = (2**24 + 1, 2**24, 2**31 - 1, -(2**31), 2**53 + 1, 2**53, -(2**53) - 1, 2**60 + 1, -(2**60), 3, -1)


@autotest()
def large_integers():
    x = choice_tensor(LARGE, (4, oneof(3, 5)), dtype=torch.int64)
    y, dim = x.flip(0), oneof(0, -1)
    return some_of(
        7,
        lambda: x == y,
        lambda: x < y,
        lambda: x >= y + 1,
        lambda: torch.maximum(x, y),
        lambda: torch.minimum(x, y),
        lambda: torch.sort(x, dim=dim, stable=True),
        lambda: torch.argsort(x, dim=dim, stable=True),
        lambda: torch.max(x, dim),
        lambda: torch.min(x),
        lambda: torch.argmax(x, dim),
        lambda: torch.amax(x, dim),
        lambda: torch.topk(x, 2, 0)[0],
        lambda: torch.kthvalue(x, 2, 0)[0],
        lambda: torch.median(x, dim)[0],
        lambda: torch.mode(x, dim)[0],
        lambda: torch.unique(x, return_counts=True),
        lambda: torch.isin(x, y[0]),
        lambda: torch.searchsorted(torch.sort(x[0])[0], y),
        lambda: torch.cummax(x, dim)[0],
        lambda: torch.clamp(x, -(2**53) - 1, 2**53 + 1),
        lambda: torch.where(x > 0, x, y),
        lambda: torch.eq(x, 2**53 + 1),
        lambda: torch.sum(x, dim),
        lambda: torch.cumsum(x, dim),
        lambda: x - y,
        lambda: x * 3,
        lambda: torch.floor_divide(x, 3),
        lambda: torch.remainder(x, -7),
        lambda: torch.fmod(x, 7),
        lambda: torch.div(x, 3, rounding_mode="trunc"),
        lambda: torch.div(x, 3),
        lambda: torch.abs(x),
        lambda: torch.sign(x),
        lambda: torch.gcd(x, y),
        lambda: x.to(torch.float32),
        lambda: x.to(torch.float64),
        lambda: x.to(torch.int32),
        lambda: x.to(torch.bfloat16),
        lambda: torch.mean(torch.abs(x), dtype=torch.float64),
        lambda: x + 0.5,
        lambda: x * 1.0,
        lambda: torch.gt(x, 0.5),
        lambda: torch.full_like(x, 2**53 + 1),
        lambda: torch.count_nonzero(x),
        lambda: torch.diff(x),
    )


@autotest()
def conversions():
    # Of numbers that the other dtype has, has not, or rounds; only of finite ones to integers.
    x = choice_tensor(
        (0.0, -0.0, 3.7, -3.7, 100.9, 0.1, 65504.0, 70000.0, 1e-7, 1e-40, 1e38, INFINITY, -INFINITY, NAN),
        (33,),
        dtype=random_dtype(["float", "half"]),
    )
    y = choice_tensor((0.0, -0.0, 0.5, -0.5, 2.5, -3.7, 100.9, 127.0), (33,), dtype=random_dtype(["float", "half"]))
    z = choice_tensor((0, 1, -1, 127, 128, 255, -128, 257, 2049, 65519, 65520, 2**24 + 1), (33,), dtype=torch.int64)
    return some_of(
        4,
        lambda: x.to(torch.float16),
        lambda: x.to(torch.bfloat16),
        lambda: x.to(torch.float64),
        lambda: x.to(torch.bool),
        lambda: x.to(torch.complex64),
        lambda: x.to(torch.float16),
        lambda: y.to(torch.int64),
        lambda: y.to(torch.int8),
        lambda: y.to(torch.int32),
        lambda: y.to(torch.bool),
        lambda: y.to(torch.complex128),
        lambda: torch.trunc(y).to(torch.int64),
        lambda: z.to(torch.uint8),
        lambda: z.to(torch.int8),
        lambda: z.to(torch.int16),
        lambda: z.to(torch.float16),
        lambda: z.to(torch.bfloat16),
        lambda: z.to(torch.bool),
        lambda: z.to(torch.float32),
        lambda: z.to(torch.complex64),
        lambda: torch.full_like(z, 2.9),
        lambda: torch.where(z > 0, y, 1),
        lambda: z.type_as(y),
    )


@autotest()
def powers():
    dtype = random_dtype(["float"])
    values = (0.0, -0.0, 1.0, -1.0, 2.0, -2.5, 1e-3, 1e-40, 1e13, -1e20, INFINITY, -INFINITY, NAN, 4.0)

    def x():
        return choice_tensor(values, (33,), dtype=dtype, requires_grad=True)

    exponents = (0, 1, 2, 3, 4, -1, -2, 0.5, -0.5, 1.5, 0.0, 2.0, 1 / 3, INFINITY, NAN)
    calls = [
        *((lambda number=number: torch.pow(x(), number)) for number in exponents),
        *((lambda base=base: torch.pow(base, x())) for base in (2, 0, 1, -2, 0.5, INFINITY)),
        *((lambda digits=digits: torch.round(x() * 123.456, decimals=digits)) for digits in (-2, -1, 0, 1, 3)),
        lambda: torch.float_power(x(), oneof(2, -1, 0.5)),
        lambda: x() ** oneof(2, 3, -1, 0.5),
    ]
    return some_of(5, *calls)


@autotest(dtypes=None)
def weights_and_places_of_losses():
    # All targets passed over, classes without weight, probabilities with weights, empty bags, impossible alignments.
    classes, losses, reduction = 4, torch.nn.functional, oneof("none", "mean", "sum")
    x = random_tensor(dims=(3, classes, 2))
    target = choice_tensor([0, 1, 3, -100], (3, 2), dtype=torch.int64)
    weight = choice_tensor([0.0, 1.0, 2.5], (classes,), dtype=torch.float32) + torch.tensor([0.5, 0, 0, 0])
    smoothing, ignored = oneof(0.0, 0.1, 1.0), oneof(-100, 1)
    log_probabilities = losses.log_softmax(random_tensor(dims=(4, 2, classes)), -1)
    table, index = random_tensor(dims=(5, 3)), torch.tensor([4, 0, 0, 2, 4])
    return some_of(
        4,
        lambda: losses.cross_entropy(
            x, target, weight, ignore_index=-100, reduction=reduction, label_smoothing=smoothing
        ),
        lambda: losses.cross_entropy(
            x, target.clamp(0), ignore_index=ignored, reduction=reduction, label_smoothing=smoothing
        ),
        lambda: losses.cross_entropy(
            x, torch.softmax(x.detach(), 1), weight, reduction=reduction, label_smoothing=smoothing
        ),
        lambda: losses.nll_loss(x, target, weight, reduction=reduction),
        lambda: losses.nll_loss(x[..., 0], target[:, 0].clamp(-100, -100), reduction="sum"),
        lambda: losses.nll_loss(x[..., None], target[..., None], reduction=reduction),
        lambda: losses.multi_margin_loss(x[..., 0], target[:, 0].clamp(0), weight=weight),
        lambda: losses.binary_cross_entropy_with_logits(
            x, x.detach().sigmoid(), weight=weight[:, None], pos_weight=weight[:2], reduction=reduction
        ),
        lambda: losses.ctc_loss(
            log_probabilities,
            torch.tensor([[1, 1, 1], [2, 3, 1]]),
            torch.tensor([oneof(3, 4), 4]),
            torch.tensor([oneof(0, 3), 2]),
            blank=0,
            reduction=reduction,
            zero_infinity=True,
        ),
        lambda: losses.ctc_loss(
            log_probabilities,
            torch.tensor([0, 1, 3, 2]),
            torch.tensor([4, 3]),
            torch.tensor([2, 2]),
            blank=oneof(2, 3),
            reduction=reduction,
            zero_infinity=True,
        ),
        lambda: losses.embedding_bag(
            index, table, torch.tensor([0, 0, 3]), mode=oneof("sum", "mean", "max"), padding_idx=oneof(0, -1, None)
        ),
        lambda: losses.embedding_bag(
            index,
            table,
            torch.tensor([0, 2, 2, 5]),
            mode="sum",
            per_sample_weights=random_tensor(dims=(5,)),
            include_last_offset=True,
        ),
        lambda: losses.embedding(
            index.reshape(1, 5), table, padding_idx=oneof(0, -1, nothing()), scale_grad_by_freq=random_bool()
        ),
    )


@autotest()
def ranges():
    # Backwards, of fractions, of one step and of none.
    start, dtype = oneof(0, 5, -2.5), oneof(torch.float32, torch.float64, torch.int64)
    return some_of(
        4,
        lambda: torch.arange(start, 9, oneof(2, 0.75)),
        lambda: torch.arange(9, start, oneof(-1, -2.5)),
        lambda: torch.arange(3),
        lambda: torch.arange(2.5),
        lambda: torch.arange(1, 1),
        lambda: torch.arange(start, 9.5, 2, dtype=oneof(torch.float32, torch.float64)),
        lambda: torch.arange(5, 9.5, 2, dtype=torch.int64),
        lambda: torch.linspace(start, -7, oneof(1, 2, 6)),
        lambda: torch.linspace(3, 3, 4),
        lambda: torch.linspace(0, 10, 5, dtype=dtype),
        lambda: torch.logspace(0, -3, 4, base=oneof(10.0, 2.0, 0.5)),
        lambda: torch.eye(3, oneof(0, 2, 5)),
        lambda: torch.full((2,), oneof(True, 2, 2.5, 1j)),
        lambda: torch.full((), 3),
        lambda: torch.tril_indices(2, 5, oneof(-3, 0, 2, 9)),
        lambda: torch.triu_indices(4, 2, oneof(-9, 0, 1)),
        lambda: torch.kaiser_window(oneof(1, 4), periodic=False, beta=0.0),
        lambda: torch.hann_window(oneof(0, 1, 5), periodic=random_bool()),
        lambda: torch.linalg.vander(torch.arange(3.0), N=oneof(2, 5)),
        lambda: torch.cartesian_prod(torch.arange(3)),
        lambda: torch.meshgrid(torch.tensor(2), torch.arange(3), indexing="ij"),
        lambda: torch.combinations(torch.arange(4), oneof(1, 4)),
        lambda: torch.tensor([True, 2.5]),
    )


@autotest()
def lengths_of_transforms():
    # Cut, padded, odd and of one; over several dimensions the last is among them.
    x = random_tensor(dims=(3, oneof(1, 4, 5)), dtype=random_dtype(["float"]))
    n, norm, fft = oneof(1, 3, 4, 7), oneof("ortho", "forward", nothing()), torch.fft
    y = torch.complex(x, x * 2 - 1)
    return some_of(
        4,
        lambda: fft.fft(x, n, -1, norm),
        lambda: fft.ifft(y, n, 0, norm),
        lambda: fft.rfft(x, n, -1, norm),
        lambda: fft.irfft(y, n, -1, norm),
        lambda: fft.hfft(y, n, -1, norm),
        lambda: fft.ihfft(x, n, -1, norm),
        lambda: fft.fft2(y, (n, 3), norm=norm),
        lambda: fft.irfft2(y, (3, n), norm=norm),
        lambda: fft.rfftn(x, (n,), (-1,), norm),
        lambda: fft.fftn(x, norm=norm),
        lambda: fft.fftshift(x, oneof(0, -1, (0, 1))),
        lambda: fft.ifftshift(x),
        lambda: fft.fftfreq(n),
        lambda: fft.rfftfreq(n, 0.5),
        lambda: fft.irfftn(y, (4, n), norm=norm),
        lambda: fft.ifft2(y, norm=norm),
    )
