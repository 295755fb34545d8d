"""Arguments and inputs at their extremes: zero, infinite, constant, equal and empty ones, of one dimension or none."""

from ci_autotest import (
    choice_tensor,
    nothing,
    oneof,
    random,
    random_bool,
    random_dtype,
    random_tensor,
    torch,
)
from ci_autotest.suite import autotest, some_of

INFINITY, NAN = float("inf"), float("nan")


@autotest()
def nan_among_numbers():
    # In no, one or several places of a row; ties too, so that only values are returned where indices are anyone's.
    x = choice_tensor(
        [NAN, 1.0, 2.0, -1.0, -INFINITY, INFINITY, 0.0, -0.0, 3.0], (9, oneof(1, 3, 17)), dtype=random_dtype(["float"])
    )
    dim = oneof(0, 1, -1)
    return some_of(
        7,
        lambda: torch.amax(x, dim),
        lambda: torch.amin(x, dim),
        lambda: torch.max(x, dim),
        lambda: torch.min(x, dim),
        lambda: torch.max(x),
        lambda: torch.min(x),
        lambda: torch.aminmax(x, dim=dim),
        lambda: torch.argmax(x, dim),
        lambda: torch.argmin(x, dim),
        lambda: torch.median(x, dim)[0],
        lambda: torch.median(x),
        lambda: torch.nanmedian(x, dim)[0],
        lambda: torch.nanmedian(x),
        lambda: torch.quantile(x, 0.5, dim),
        lambda: torch.nanquantile(x, 0.3, dim),
        lambda: torch.cummax(x, dim),
        lambda: torch.cummin(x, dim),
        lambda: torch.sort(x, dim=dim, stable=True),
        lambda: torch.argsort(x, dim=dim, stable=True),
        lambda: torch.sort(x, dim=dim, descending=True, stable=True),
        lambda: torch.topk(x, 1, dim)[0],
        lambda: torch.topk(x, 1, dim, False)[0],
        lambda: torch.kthvalue(x, 1, dim)[0],
        lambda: torch.nansum(x, dim),
        lambda: torch.nanmean(x, dim),
        lambda: torch.logsumexp(x, dim),
        lambda: torch.logcumsumexp(x, dim),
        lambda: torch.softmax(x, dim),
        lambda: torch.log_softmax(x, dim),
        lambda: torch.cumsum(x, dim),
        lambda: torch.cumprod(x, dim),
        lambda: torch.prod(x, dim),
        lambda: torch.var(x, dim),
        lambda: torch.count_nonzero(x, dim),
        lambda: torch.all(x, dim),
        lambda: torch.any(x, dim),
        lambda: torch.linalg.vector_norm(x, oneof(0, 1, 2, INFINITY, -INFINITY), dim),
        lambda: torch.msort(x),
        lambda: torch.bucketize(x, torch.tensor([-1.0, 0.0, 2.0], dtype=x.dtype), right=random_bool()),
        lambda: torch.unique(x),
        lambda: torch.nan_to_num(x, posinf=oneof(1.0, nothing())),
        lambda: torch.dist(x, x[:, :1]),
        lambda: torch.isin(x, x[0]),
        lambda: torch.clamp(x, 0.0, 1.0),
        lambda: torch.nn.functional.max_pool1d(x, 1),
        lambda: torch.diff(x, dim=dim),
    )


@autotest()
def ties():
    # Few numbers, so that most are equal.
    x = choice_tensor(
        [1, 2, 3], (oneof(1, 2, 5, 40), random(1, 5).to(int)), dtype=random_dtype(["float", "half", "int"])
    )
    dim = oneof(0, -1)
    k = oneof(1, x.shape[0])
    return some_of(
        4,
        lambda: torch.sort(x, dim=dim, stable=True),
        lambda: torch.sort(x, dim=dim, descending=True, stable=True),
        lambda: torch.mode(x, dim)[0],
        lambda: torch.median(x, dim)[0],
        lambda: torch.kthvalue(x, k, 0)[0],
        lambda: torch.topk(x, k, 0)[0],
        lambda: torch.cummax(x, dim),
        lambda: torch.unique(x, return_inverse=True, return_counts=True),
        lambda: torch.unique(x, dim=0, return_inverse=True),
        lambda: torch.unique_consecutive(x, return_inverse=True, return_counts=True),
        lambda: torch.unique_consecutive(x, dim=0),
        lambda: torch.max(x, dim),
        lambda: torch.min(x, dim),
        lambda: torch.argmax(x, dim),
        lambda: torch.argmin(x),
        lambda: torch.cummin(x, dim),
        lambda: torch.isin(x, x[0]),
        lambda: torch.searchsorted(torch.sort(x.reshape(-1))[0], x, side=oneof("left", "right")),
        lambda: torch.argsort(x, dim=dim, descending=True, stable=True),
        lambda: torch.histc(x * 1.0, 4),
        lambda: torch.aminmax(x),
    )


@autotest()
def gradients_of_ties_and_zeros():
    # Products, extremes and norms where several elements are zero, or equal. What picks one of several is left out.
    dtype = random_dtype(["float"])
    values, width = [0.0, 1.0, -2.0], oneof(1, 3, 5)

    def x():
        return choice_tensor(values, (4, width), dtype=dtype, requires_grad=True)

    dim = oneof(0, 1)
    index = torch.tensor([[0, 1, 1, 0]]).mT.expand(4, width)
    return some_of(
        6,
        lambda: torch.prod(x(), dim),
        lambda: torch.prod(x()),
        lambda: torch.cumprod(x(), dim),
        lambda: torch.amax(x(), dim),
        lambda: torch.amin(x()),
        lambda: torch.linalg.vector_norm(x(), oneof(1, 2, 3, INFINITY), dim),
        lambda: torch.norm(x(), oneof(1, 2, 3), dim),
        lambda: torch.maximum(x(), x()),
        lambda: torch.minimum(x(), x()),
        lambda: torch.abs(x()),
        lambda: torch.sgn(x()),
        lambda: torch.std(x(), dim, correction=0),
        lambda: torch.logsumexp(x(), dim),
        lambda: torch.nn.functional.normalize(x(), dim=dim),
        lambda: torch.pow(x(), 2),
        lambda: torch.pow(x(), oneof(0, 0.0, 1)),
        lambda: torch.xlogy(torch.abs(x()), torch.abs(x())),
        lambda: torch.atan2(x(), x()),
        lambda: torch.hypot(x(), x()),
        lambda: torch.clamp(x(), -2, 1),
        lambda: torch.scatter_reduce(
            x(), 0, index, x(), oneof("prod", "amax", "amin", "mean"), include_self=random_bool()
        ),
        lambda: torch.nn.functional.cosine_similarity(x(), x(), dim),
        lambda: torch.cdist(x(), x() + 3, p=oneof(1.0, 2.0)),
        lambda: torch.renorm(x(), 2, 0, 1.0),
        lambda: torch.fmax(x(), x() + 0.5),
        lambda: torch.sinc(x()),
        lambda: torch.relu(x()),
        lambda: torch.nn.functional.gelu(x()),
        lambda: torch.max(x(), x()),
    )


@autotest()
def constant_inputs():
    # Without any variance, and zero: what keeps the root from zero shows.
    channels, width = 4, oneof(1, 2, 7)
    # Beside 1e4, the rounding of a spread would be as large as the spread.
    spread, around = oneof(
        (0.0, 0.0), (1e-3, 0.0), (1e-25, 0.0), (0.0, 1.0), (1e-3, 1.0), (0.0, 1e4), (1e-25, 1e4)
    ).value()
    x = random_tensor(dims=(2, channels, width), dtype=random_dtype(["float"])) * spread + around
    layers, eps = torch.nn.functional, oneof(1e-5, 1e-1, 1e-12)
    shape = x.shape[2:]
    return some_of(
        3,
        lambda: layers.layer_norm(x, shape, eps=eps),
        lambda: layers.rms_norm(x, shape, eps=oneof(eps, nothing())),
        lambda: layers.group_norm(x, oneof(1, 2, 4), eps=eps),
        lambda: layers.batch_norm(x, None, None, training=True, eps=eps),
        lambda: layers.normalize(x, p=oneof(1.0, 2.0, INFINITY), dim=1, eps=eps),
        lambda: layers.local_response_norm(x, oneof(1, 3, 9)),
        lambda: torch.var(x, -1, correction=0),
        lambda: torch.var_mean(x, correction=0),
        lambda: layers.cosine_similarity(x, x + 1, 1, eps=eps),
        lambda: layers.softmax(x, -1),
        lambda: torch.logsumexp(x, 1),
        lambda: layers.layer_norm(x, x.shape[1:]),
        lambda: layers.pairwise_distance(x, x, eps=eps),
        lambda: layers.rms_norm(x, x.shape[1:]),
    )


@autotest()
def spreads_of_few():
    # One element, none, or no more than are taken off.
    x = random_tensor(dims=(oneof(0, 1, 2, 3), 2), dtype=random_dtype(["float"]), requires_grad=False)
    correction = oneof(0, 1, 2, 5)
    return some_of(
        6,
        lambda: torch.var(x, 0, correction=correction),
        lambda: torch.std(x, 0, correction=correction),
        lambda: torch.std(x),
        lambda: torch.var(x),
        lambda: torch.var_mean(x, 0, correction=correction),
        lambda: torch.std_mean(x, correction=correction),
        lambda: torch.mean(x, 0),
        lambda: torch.mean(x),
        lambda: torch.nanmean(x, 0),
        lambda: torch.sum(x, 0),
        lambda: torch.prod(x, 0),
        lambda: torch.logsumexp(x, 0),
        lambda: torch.nansum(x),
        lambda: torch.all(x, 0),
        lambda: torch.any(x),
        lambda: torch.amax(x, 1),
        lambda: torch.amin(x, 1),
        lambda: torch.argmax(x, 1),
        lambda: torch.max(x, 1)[0],
        lambda: torch.cumsum(x, 0),
        lambda: torch.cumprod(x, 0),
        lambda: torch.median(x),
        lambda: torch.linalg.vector_norm(x, dim=0),
        lambda: torch.norm(x, dim=1),
        lambda: torch.sort(x, 0)[0],
        lambda: torch.unique(x),
        lambda: torch.softmax(x, 0),
        lambda: torch.cummax(x, 0)[0],
        lambda: torch.count_nonzero(x, 0),
        lambda: torch.diff(x, dim=0),
        lambda: torch.cov(x.mT + 1, correction=0),
        lambda: torch.trapezoid(x, dim=0),
        lambda: torch.logcumsumexp(x, 0),
        lambda: torch.nanmedian(x),
        lambda: torch.aminmax(x, dim=1),
        lambda: torch.nonzero(x),
        lambda: torch.topk(x, 0, 0)[0],
    )


@autotest()
def norms_of_extreme_order():
    x = choice_tensor(
        [0.0, -0.0, 1.0, -2.0, 3.5, 1e-20, 1e18], (3, random(1, 5).to(int)), dtype=random_dtype(["float", "complex"])
    )
    order, dim, keepdim = oneof(0, INFINITY, -INFINITY, -1, 0.5, -2, 1, 2), oneof(0, 1, -1), random_bool()
    return some_of(
        2,
        lambda: torch.linalg.vector_norm(x, order, keepdim=keepdim),
        lambda: torch.linalg.vector_norm(x, order, dim, keepdim=keepdim),
        lambda: torch.norm(x, order, dim),
        lambda: torch.linalg.norm(x, order, dim),
        lambda: torch.linalg.matrix_norm(x, oneof("fro", 1, -1, INFINITY, -INFINITY)),
        lambda: torch.cdist(x.real, x.real * 2, p=oneof(0.0, 1.0, INFINITY)),
        lambda: torch.dist(x.real, x.real[:1], p=oneof(0, INFINITY, -INFINITY)),
        lambda: torch.renorm(x.real + 1, oneof(1, INFINITY), 0, 0.5),
        lambda: torch.nn.functional.pairwise_distance(x.real, x.real + 1, p=oneof(INFINITY, 1.0)),
    )


@autotest()
def losses_at_their_ends():
    # Equal inputs, hits of the margin, thresholds and smoothing of zero.
    dtype = random_dtype(["float"])

    def x(*values):
        return choice_tensor(values or (0.0, 1.0, -1.0, 2.0, 0.5), (3, 4), dtype=dtype, requires_grad=True)

    sign = choice_tensor([1.0, -1.0], (3, 4), dtype=dtype)
    rows, target = sign[:, 0], torch.tensor([0, 3, 1])
    losses, reduction = torch.nn.functional, oneof("none", "mean", "sum")
    margin, zero = oneof(0.0, 1.0), oneof(0.0, 1.0)
    return some_of(
        4,
        lambda: losses.smooth_l1_loss(x(), x(), reduction=reduction, beta=zero),
        lambda: losses.l1_loss(x(), x(), reduction=reduction),
        lambda: losses.huber_loss(x(), x(), reduction=reduction, delta=1.0),
        lambda: losses.mse_loss(x(), x(), reduction=reduction),
        lambda: losses.hinge_embedding_loss(x(), sign, margin=margin, reduction=reduction),
        lambda: losses.margin_ranking_loss(x(), x(), sign, margin=margin, reduction=reduction),
        lambda: losses.soft_margin_loss(x(100.0, -100.0, 0.0, 1.0), sign, reduction=reduction),
        lambda: losses.multi_margin_loss(x(), target, p=oneof(1, 2), margin=margin, reduction=reduction),
        lambda: losses.cross_entropy(x(1e4, 0.0, -INFINITY, 1.0), target, reduction=reduction),
        lambda: losses.cross_entropy(
            x(), target, ignore_index=oneof(3, 0), reduction=reduction, label_smoothing=oneof(0.0, 1.0)
        ),
        lambda: losses.kl_div(x(), x(0.0, 1.0, 0.5), reduction=reduction, log_target=oneof(False, True)),
        lambda: losses.poisson_nll_loss(
            x(0.0, 1.0, 2.0), torch.abs(sign) - 1, log_input=random_bool(), full=random_bool(), reduction=reduction
        ),
        lambda: losses.gaussian_nll_loss(x(), x(), torch.abs(sign) - 1, reduction=reduction),
        lambda: losses.binary_cross_entropy_with_logits(
            x(100.0, -100.0, 0.0, 1e4), (sign + 1) / 2, reduction=reduction
        ),
        lambda: losses.cosine_embedding_loss(x() + 3, x() + 3, rows, margin=margin, reduction=reduction),
        lambda: losses.triplet_margin_loss(
            x(), x(), x(), margin=oneof(0.5, 2.0), p=oneof(1.0, 2.0, INFINITY), swap=random_bool(), reduction=reduction
        ),
    )


@autotest()
def activations_at_their_ends():
    # Slopes, thresholds and rates of zero and one.
    dtype = random_dtype(["float", "half"])

    def x():
        return choice_tensor(
            [0.0, -0.0, 0.5, -0.5, 1.0, -1.0, 3.0, -3.0, 6.0, 20.0, 30.0], (3, 6), dtype=dtype, requires_grad=True
        )

    layers, zero = torch.nn.functional, oneof(0.0, 0.5, 1.0)
    return some_of(
        4,
        lambda: layers.leaky_relu(x(), zero),
        lambda: layers.elu(x(), zero),
        lambda: layers.celu(x(), oneof(0.5, 1.0, 2.0)),
        lambda: layers.softshrink(x(), zero),
        lambda: layers.hardshrink(x(), zero),
        lambda: layers.threshold(x(), oneof(0.0, 0.5), 20.0),
        lambda: layers.softplus(x(), oneof(1.0, 0.1, 10.0), oneof(0.0, 3.0, 20.0)),
        lambda: layers.hardtanh(x(), -0.5, oneof(-0.5, 0.5)),
        lambda: layers.prelu(x(), torch.tensor([0.0], dtype=dtype)),
        lambda: layers.rrelu(x(), zero, zero),
        lambda: layers.relu6(x()),
        lambda: layers.dropout(x(), oneof(0.0, 1.0)),
        lambda: layers.alpha_dropout(x(), 0.0),
        lambda: layers.glu(x(), -1),
        lambda: layers.hardswish(x()),
        lambda: layers.hardsigmoid(x()),
        lambda: layers.softsign(x()),
        lambda: layers.logsigmoid(x()),
        lambda: torch.logit(torch.sigmoid(x()), oneof(0.0, 0.5)),
    )
