"""The tests that planted faults are run against: as a careful user writes them, before any fault was thought of."""

from ci_autotest import autotest, constant, nothing, oneof, random, random_bool, random_tensor, torch

F_ = torch.nn.functional


@autotest()
def softmax():
    ndim = random(1, 5).to(int)
    return torch.softmax(random_tensor(ndim=ndim), dim=random(-ndim, ndim).to(int))


@autotest()
def layer_norm():
    width = random(2, 17).to(int)
    x = random_tensor(ndim=2, dim1=width)
    weight, bias = random_tensor(ndim=1, dim0=width), random_tensor(ndim=1, dim0=width)
    eps = random(1e-3, 1e-1).to(float) | nothing()
    return F_.layer_norm(x, (width,), weight, bias, eps=eps)


@autotest()
def linear():
    return torch.nn.Linear(4, 3)(random_tensor(ndim=2, dim1=4))


@autotest()
def gelu():
    return F_.gelu(random_tensor(), approximate=oneof("none", "tanh") | nothing())


@autotest()
def gelu_of_finite():
    # At infinities torch itself is off: gelu's tanh approximation gives NaN there, and the reference is blamed.
    return F_.gelu(random_tensor(low=-4, high=4), approximate=oneof("none", "tanh") | nothing())


@autotest()
def relu():
    return torch.relu(random_tensor())


@autotest()
def exp():
    return torch.exp(random_tensor())


@autotest(n=200)
def exp_of_any_size():
    return torch.exp(random_tensor())


@autotest()
def negated():
    return torch.neg(random_tensor())


@autotest()
def add():
    k = random(1, 8).to(int)
    return torch.add(random_tensor(ndim=2, dim1=k), random_tensor(ndim=1, dim0=k), alpha=oneof(1, random(2, 4).to(int)))


@autotest()
def matmul():
    k = random(1, 8).to(int)
    return torch.matmul(random_tensor(ndim=2, dim1=k), random_tensor(ndim=2, dim0=k))


@autotest()
def total():
    ndim = random(1, 5).to(int)
    return torch.sum(random_tensor(ndim=ndim), dim=random(-ndim, ndim).to(int), keepdim=random_bool())


@autotest()
def mean():
    return torch.mean(random_tensor(ndim=2), dim=oneof(0, 1, -1))


@autotest()
def argmax():
    return torch.argmax(random_tensor(ndim=2, requires_grad=False), dim=oneof(0, 1))


@autotest()
def maximum():
    return torch.maximum(random_tensor(ndim=2, dim0=3, dim1=4), random_tensor(ndim=2, dim0=3, dim1=4))


@autotest()
def cat():
    x = random_tensor(ndim=2, dim1=3)
    return torch.cat([x, random_tensor(ndim=2, dim1=3)], dim=constant(0))


@autotest()
def conv2d():
    x = random_tensor(ndim=4, dim0=1, dim1=2, dim2=random(3, 6).to(int), dim3=5)
    return F_.conv2d(x, random_tensor(ndim=4, dim0=3, dim1=2, dim2=2, dim3=2), padding=oneof(0, 1), stride=oneof(1, 2))


@autotest()
def batch_norm():
    return torch.nn.BatchNorm1d(3)(random_tensor(ndim=2, dim0=random(2, 6).to(int), dim1=3))


@autotest()
def clamp():
    return torch.clamp(random_tensor(), min=oneof(-0.5, nothing()), max=0.5)


@autotest()
def index_select():
    index = random_tensor(ndim=1, low=0, high=3, dtype=int)
    return torch.index_select(random_tensor(ndim=2, dim0=3), 0, index)


@autotest()
def dropout_free_chain():
    x = random_tensor(ndim=2, dim1=4)
    hidden = torch.tanh(torch.nn.Linear(4, 4)(x))
    return torch.softmax(hidden * 2, dim=-1).sum(dim=0)


@autotest()
def conv1d():
    groups = random(1, 3).to(int)
    x = random_tensor(ndim=3, dim1=groups * 2, dim2=random(5, 10).to(int))
    weight = random_tensor(ndim=3, dim0=groups * 2, dim1=2, dim2=random(1, 4).to(int))
    return F_.conv1d(x, weight, stride=random(1, 4).to(int), groups=groups)


@autotest()
def conv2d_strides():
    x = random_tensor(ndim=4, dim1=2, dim2=6, dim3=7)
    weight = random_tensor(ndim=4, dim0=2, dim1=2, dim2=2, dim3=2)
    stride = (random(1, 3).to(int), random(1, 4).to(int))
    return F_.conv2d(x, weight, stride=stride, dilation=oneof(1, 2))


@autotest()
def conv2d_groups():
    x = random_tensor(ndim=4, dim0=random(1, 4).to(int), dim1=4, dim2=3, dim3=3)
    return F_.conv2d(x, random_tensor(ndim=4, dim0=4, dim1=1, dim2=2, dim3=2), groups=4)


@autotest()
def conv_transpose1d():
    stride = random(1, 4).to(int)
    x = random_tensor(ndim=3, dim1=2, dim2=random(2, 6).to(int))
    weight = random_tensor(ndim=3, dim0=2, dim1=3, dim2=2)
    return F_.conv_transpose1d(x, weight, stride=stride, output_padding=random(0, stride).to(int))


@autotest()
def conv_transpose2d():
    x = random_tensor(ndim=4, dim1=2, dim2=3, dim3=3)
    weight = random_tensor(ndim=4, dim0=2, dim1=2, dim2=2, dim3=2)
    return F_.conv_transpose2d(x, weight, stride=2, padding=oneof(0, 1), output_padding=oneof(0, 1))


@autotest(n=60)
def avg_pool2d():
    x = random_tensor(ndim=4, dim2=random(3, 8).to(int), dim3=random(3, 8).to(int))
    return F_.avg_pool2d(
        x, 2, stride=random(1, 4).to(int), padding=oneof(0, 1), ceil_mode=random_bool(),
        count_include_pad=random_bool(), divisor_override=oneof(3, nothing()),
    )  # fmt: skip


@autotest()
def max_pool2d():
    x = random_tensor(ndim=4, dim2=random(2, 8).to(int), dim3=random(2, 8).to(int))
    return F_.max_pool2d(x, 2, stride=random(1, 4).to(int), padding=oneof(0, 1), ceil_mode=random_bool())


@autotest()
def cross_entropy():
    batch, classes = random(1, 6).to(int), random(2, 5).to(int)
    target = random_tensor(ndim=1, dim0=batch, low=0, high=2, dtype=int)
    weight = random_tensor(ndim=1, dim0=classes, low=0.5, high=2.0, requires_grad=False)
    return F_.cross_entropy(
        random_tensor(ndim=2, dim0=batch, dim1=classes), target, weight=oneof(weight, nothing()),
        ignore_index=oneof(0, -100), reduction=oneof("mean", "sum"), label_smoothing=oneof(0.0, 0.3),
    )  # fmt: skip


@autotest()
def nll_loss():
    batch = random(1, 6).to(int)
    target = random_tensor(ndim=1, dim0=batch, low=0, high=3, dtype=int)
    weight = random_tensor(ndim=1, dim0=3, low=0.5, high=2.0, requires_grad=False)
    return F_.nll_loss(random_tensor(ndim=2, dim0=batch, dim1=3), target, weight=weight, reduction=oneof("mean", "sum"))


@autotest()
def bce_with_logits():
    x = random_tensor(ndim=2, dim0=3, dim1=4)
    target = random_tensor(ndim=2, dim0=3, dim1=4, low=0.0, high=1.0, requires_grad=False)
    weight = random_tensor(ndim=1, dim0=4, low=0.5, high=2.0, requires_grad=False)
    return F_.binary_cross_entropy_with_logits(x, target, pos_weight=weight)


@autotest()
def huber_loss():
    dtype = oneof(torch.float32, torch.float16)
    x = random_tensor(ndim=1, dim0=5, dtype=dtype)
    return F_.huber_loss(x, random_tensor(ndim=1, dim0=5, requires_grad=False), delta=oneof(1.0, 0.5))


@autotest()
def smooth_l1_loss():
    x = random_tensor(ndim=1, dim0=5)
    return F_.smooth_l1_loss(x, random_tensor(ndim=1, dim0=5), beta=oneof(1.0, 0.5), reduction=oneof("mean", "sum"))


@autotest()
def kl_div():
    x = random_tensor(ndim=2, dim0=3, dim1=4)
    target = random_tensor(ndim=2, dim0=3, dim1=4, low=0.1, high=1.0)
    return F_.kl_div(x, target, reduction=oneof("batchmean", "sum"), log_target=random_bool())


@autotest()
def floor_divide():
    x = random_tensor(ndim=1, dim0=6, dtype=int)
    return torch.floor_divide(x, random(2, 5).to(int))


@autotest()
def remainder():
    return torch.remainder(random_tensor(ndim=1, dim0=6, dtype=int), random(2, 5).to(int))


@autotest()
def cumprod():
    return torch.cumprod(random_tensor(ndim=1, dim0=random(2, 6).to(int)), dim=0)


@autotest()
def prod():
    return torch.prod(random_tensor(ndim=2), dim=oneof(0, 1))


@autotest()
def std():
    return torch.std(random_tensor(ndim=2, dim1=random(3, 7).to(int)), dim=1)


@autotest()
def var():
    return torch.var(random_tensor(ndim=2, dim1=random(4, 7).to(int)), dim=1, correction=oneof(0, 1, 2))


@autotest()
def interpolate():
    x = random_tensor(ndim=3, dim2=random(1, 5).to(int))
    return F_.interpolate(x, size=random(1, 6).to(int), mode="linear", align_corners=random_bool())


@autotest()
def gather():
    index = random_tensor(ndim=1, dim0=5, low=0, high=3, dtype=int)
    return torch.gather(random_tensor(ndim=1, dim0=3), 0, index)


@autotest()
def index_add():
    index = random_tensor(ndim=1, dim0=4, low=0, high=3, dtype=int)
    return torch.index_add(random_tensor(ndim=2, dim0=3, dim1=2), 0, index, random_tensor(ndim=2, dim0=4, dim1=2))


@autotest()
def scatter_add():
    index = random_tensor(ndim=1, dim0=4, low=0, high=3, dtype=int)
    return torch.scatter_add(random_tensor(ndim=1, dim0=3), 0, index, random_tensor(ndim=1, dim0=4))


@autotest(n=120)
def embedding():
    index = random_tensor(ndim=1, low=0, high=4, dtype=int)
    return F_.embedding(index, random_tensor(ndim=2, dim0=4, dim1=3), padding_idx=oneof(0, 1) | nothing())


@autotest()
def logsumexp():
    x = random_tensor(ndim=2) * oneof(1.0, float("inf"))
    return torch.logsumexp(x, dim=1)


@autotest()
def argmin():
    return torch.argmin(random_tensor(ndim=2, requires_grad=False), dim=oneof(0, 1))


@autotest()
def addcdiv():
    k = random(2, 6).to(int)
    divisor = random_tensor(ndim=2, dim0=3, dim1=k, low=1.0, high=2.0)
    return torch.addcdiv(random_tensor(ndim=2, dim0=3, dim1=k), random_tensor(ndim=2, dim0=3, dim1=k), divisor)


@autotest()
def where():
    k = random(2, 5).to(int)
    condition = random_tensor(ndim=2, dim0=3, dim1=k, dtype=bool)
    return torch.where(condition, random_tensor(ndim=2, dim0=3, dim1=k), random_tensor(ndim=2, dim0=3, dim1=k))


@autotest()
def silu():
    return F_.silu(random_tensor())


@autotest()
def masked_fill():
    mask = random_tensor(ndim=2, dim0=3, dim1=4, dtype=bool)
    return random_tensor(ndim=2, dim0=3, dim1=4).masked_fill(mask, random(-2.0, 2.0).to(float))


@autotest(n=60)
def cumsum():
    ndim = random(1, 4).to(int)
    return torch.cumsum(random_tensor(ndim=ndim), dim=random(-ndim, ndim).to(int))


@autotest()
def cumsum_of_bytes():
    return torch.cumsum(random_tensor(ndim=1, dim0=random(2, 6).to(int), low=-100, high=100, dtype=torch.int8), dim=0)


@autotest()
def quantile():
    return torch.quantile(random_tensor(ndim=2), 0.5, dim=oneof(0, 1), interpolation=oneof("nearest", "linear"))


@autotest()
def topk():
    return torch.topk(random_tensor(ndim=1, dim0=random(3, 9).to(int)), 2, largest=random_bool())


@autotest()
def pad():
    x = random_tensor(ndim=3, dim2=random(3, 6).to(int))
    return F_.pad(x, (random(0, 3).to(int), random(0, 3).to(int)), mode=oneof("circular", "constant"))


@autotest()
def softplus():
    return F_.softplus(random_tensor())


@autotest()
def norm():
    return torch.linalg.vector_norm(random_tensor(ndim=2), dim=1)


@autotest()
def greatest_norm():
    return torch.linalg.vector_norm(random_tensor(ndim=2), ord=float("inf"), dim=1)


@autotest()
def linear_of_a_vector():
    k = random(1, 5).to(int)
    x = random_tensor(ndim=3, dim1=oneof(1, 2), dim2=k)
    return F_.linear(x, random_tensor(ndim=2, dim0=3, dim1=k), random_tensor(ndim=1, dim0=3))


@autotest()
def linear_of_nothing():
    k = random(0, 3).to(int)
    return F_.linear(random_tensor(ndim=2, dim1=k), random_tensor(ndim=2, dim0=3, dim1=k))


@autotest()
def rounded():
    return torch.round(random_tensor(ndim=1, dim0=6, low=-9, high=9, dtype=int) * 0.5)


@autotest()
def rms_norm():
    width = random(1, 6).to(int)
    return F_.rms_norm(random_tensor(ndim=2, dim1=width), (width,), eps=oneof(1e-1, 1e-2))


@autotest()
def group_norm():
    groups = random(1, 3).to(int)
    x = random_tensor(ndim=3, dim0=2, dim1=groups * 2)
    return F_.group_norm(x, groups, eps=oneof(1e-1, 1e-2))


@autotest()
def instance_norm():
    return F_.instance_norm(random_tensor(ndim=3, dim2=random(3, 6).to(int)), eps=1e-2)


@autotest()
def nanmedian():
    return torch.nanmedian(random_tensor(ndim=random(3, 6).to(int)), dim=0)


@autotest()
def divide():
    k = random(0, 4).to(int)
    return torch.div(random_tensor(ndim=1, dim0=k), random_tensor(ndim=1, dim0=k, low=1.0, high=2.0))


@autotest()
def grid_sample():
    grid = random_tensor(ndim=4, dim0=1, dim1=2, dim2=random(0, 3).to(int), dim3=2)
    return F_.grid_sample(random_tensor(ndim=4, dim0=1, dim1=1, dim2=3, dim3=3), grid, align_corners=random_bool())


@autotest()
def prelu():
    channels = random(1, 4).to(int)
    x = random_tensor(ndim=2, dim0=random(1, 5).to(int), dim1=channels)
    return F_.prelu(x, random_tensor(ndim=1, dim0=channels))


@autotest()
def ldexp():
    exponent = random_tensor(ndim=1, dim0=4, low=-3, high=4, dtype=int)
    return torch.ldexp(random_tensor(ndim=1, dim0=4, dtype=oneof(torch.float32, torch.float16)), exponent)


@autotest()
def leaky_relu():
    return F_.leaky_relu(random_tensor(), negative_slope=oneof(0.1, 0.3) | nothing())


@autotest()
def elu():
    return F_.elu(random_tensor(), alpha=oneof(0.5, 2.0) | nothing())


@autotest()
def hardtanh():
    return F_.hardtanh(random_tensor(), min_val=-0.5, max_val=0.5)


@autotest()
def roll():
    return torch.roll(random_tensor(ndim=1), shifts=random(-3, 4).to(int), dims=0)


@autotest()
def flip():
    return torch.flip(random_tensor(ndim=2), dims=(oneof(0, 1, -1),))


@autotest()
def tril():
    return torch.tril(random_tensor(ndim=2), diagonal=random(-2, 3).to(int))


@autotest()
def mse_loss():
    k = random(1, 5).to(int)
    return F_.mse_loss(
        random_tensor(ndim=1, dim0=k), random_tensor(ndim=1, dim0=k), reduction=oneof("mean", "sum", "none")
    )


@autotest()
def lerp():
    return torch.lerp(random_tensor(ndim=1, dim0=4), random_tensor(ndim=1, dim0=4), 0.25)


@autotest()
def addmm():
    beta, alpha = oneof(1, 2), oneof(1, 3)
    return torch.addmm(
        random_tensor(ndim=2, dim0=2, dim1=3), random_tensor(ndim=2, dim0=2, dim1=4),
        random_tensor(ndim=2, dim0=4, dim1=3), beta=beta, alpha=alpha,
    )  # fmt: skip


@autotest()
def bmm():
    return torch.bmm(random_tensor(ndim=3, dim0=2, dim1=2, dim2=3), random_tensor(ndim=3, dim0=2, dim1=3, dim2=2))


@autotest()
def pixel_shuffle():
    return F_.pixel_shuffle(random_tensor(ndim=4, dim0=1, dim1=4), 2)


@autotest()
def atan2():
    return torch.atan2(random_tensor(ndim=1, dim0=5), random_tensor(ndim=1, dim0=5))


@autotest()
def transpose():
    return torch.transpose(random_tensor(ndim=2), 0, 1)


@autotest()
def log_softmax():
    return F_.log_softmax(random_tensor(ndim=2), dim=1)


@autotest()
def sum_of_halves():
    return torch.sum(random_tensor(ndim=2, dim1=random(200, 400).to(int), dtype=torch.float16), dim=1)


@autotest()
def square_of_halves():
    return torch.square(random_tensor(ndim=1, low=200.0, high=255.0, dtype=torch.float16))


@autotest()
def reciprocal_of_doubles():
    return torch.reciprocal(random_tensor(ndim=1, low=1.0, high=2.0, dtype=oneof(torch.float32, torch.float64)))


@autotest()
def sqrt_in_place():
    x = random_tensor(ndim=1, low=1.0, high=2.0, requires_grad=False)
    y = x * 1
    y.sqrt_()
    return y + 1


@autotest()
def rsqrt():
    return torch.rsqrt(random_tensor(ndim=1, low=1.0, high=2.0))


@autotest()
def sinh():
    return torch.sinh(random_tensor(ndim=1))


@autotest()
def cosh():
    return torch.cosh(random_tensor(ndim=1))


@autotest()
def erf():
    return torch.erf(random_tensor(ndim=1))


@autotest()
def log1p():
    return torch.log1p(random_tensor(ndim=1, low=0.0, high=1.0))
