"""Activations: elementwise functions, and the softmax family along one dimension."""

from ci_autotest import nothing, oneof, random, random_bool, random_dtype, random_tensor, torch
from ci_autotest.suite import FLOATS, NUMBERS, autotest


@autotest()
def relu():
    x = random_tensor(dtype=random_dtype(["float", "half", "int"]))
    return torch.nn.functional.relu(x)


@autotest()
def relu6():
    # Wide enough that both ends are cut.
    x = random_tensor(low=-4, high=12)
    return torch.nn.functional.relu6(x)


@autotest()
def gelu():
    x = random_tensor(low=-5, high=5, dtype=random_dtype(["float", "half"]))
    return torch.nn.functional.gelu(x, approximate=oneof("none", "tanh") | nothing())


@autotest()
def silu():
    x = random_tensor(low=-5, high=5, dtype=random_dtype(["float", "half"]))
    return torch.nn.functional.silu(x)


@autotest()
def mish():
    x = random_tensor(low=-5, high=5, dtype=random_dtype(["float", "half"]))
    return torch.nn.functional.mish(x)


@autotest()
def leaky_relu():
    x = random_tensor()
    return torch.nn.functional.leaky_relu(x, negative_slope=random(-1, 2).to(float) | nothing())


@autotest()
def prelu():
    # One slope for all, or one for each channel.
    channels = random(1, 8)
    x = random_tensor(ndim=random(2, 6).to(int), dim1=channels)
    weight = random_tensor(ndim=1, dim0=oneof(1, channels))
    return torch.nn.functional.prelu(x, weight)


@autotest()
def elu():
    x = random_tensor(dtype=random_dtype(["float", "half"]))
    return torch.nn.functional.elu(x, alpha=random(0, 3).to(float) | nothing())


@autotest()
def selu():
    x = random_tensor(dtype=random_dtype(["float", "half"]))
    return torch.nn.functional.selu(x)


@autotest()
def celu():
    x = random_tensor()
    return torch.nn.functional.celu(x, alpha=random(1, 3).to(float) | nothing())


@autotest()
def tanh():
    x = random_tensor(dtype=random_dtype(["float", "half", "complex"]))
    return torch.tanh(x)


@autotest()
def sigmoid():
    x = random_tensor(low=-8, high=8, dtype=random_dtype(["float", "half"]))
    return torch.sigmoid(x)


@autotest()
def logsigmoid():
    x = random_tensor(low=-8, high=8)
    return torch.nn.functional.logsigmoid(x)


@autotest()
def hardtanh():
    x = random_tensor(low=-4, high=4)
    return torch.nn.functional.hardtanh(
        x, min_val=random(-3, 0).to(float) | nothing(), max_val=random(1, 3).to(float) | nothing()
    )


@autotest()
def hardsigmoid():
    x = random_tensor(low=-5, high=5)
    return torch.nn.functional.hardsigmoid(x)


@autotest()
def hardswish():
    x = random_tensor(low=-5, high=5, dtype=random_dtype(["float", "half"]))
    return torch.nn.functional.hardswish(x)


@autotest()
def softplus():
    x = random_tensor(low=-5, high=5)
    return torch.nn.functional.softplus(
        x, beta=random(1, 3).to(float) | nothing(), threshold=random(1, 20).to(float) | nothing()
    )


@autotest()
def softsign():
    x = random_tensor(dtype=random_dtype(["float", "half"]))
    return torch.nn.functional.softsign(x)


@autotest()
def softshrink():
    x = random_tensor()
    return torch.nn.functional.softshrink(x, lambd=random(0, 1).to(float) | nothing())


@autotest()
def hardshrink():
    x = random_tensor()
    return torch.nn.functional.hardshrink(x, lambd=random(0, 1).to(float) | nothing())


@autotest(dtypes=NUMBERS)
def tanhshrink():
    x = random_tensor()
    return torch.nn.functional.tanhshrink(x)


@autotest()
def threshold():
    x = random_tensor(dtype=random_dtype(["float", "half", "int"]))
    return torch.nn.functional.threshold(x, random(-1, 2).to(int), random(-5, 6).to(int))


@autotest()
def glu():
    # The dimension that is halved has an even size.
    x = random_tensor(ndim=random(2, 6).to(int), dim1=2 * random(1, 5).to(int))
    return torch.nn.functional.glu(x, dim=1)


@autotest()
def softmax():
    ndim = random(1, 6).to(int)
    x = random_tensor(ndim=ndim, dtype=random_dtype(["float", "half"]))
    return torch.nn.functional.softmax(x, dim=random(-ndim, ndim), dtype=torch.float64 | nothing())


@autotest()
def log_softmax():
    # 0 and -1 are the dimensions that every rank has, a 0-dim tensor too.
    x = random_tensor(dtype=random_dtype(["float", "half"]))
    return torch.nn.functional.log_softmax(x, dim=oneof(0, -1), dtype=oneof(torch.float64, nothing()))


@autotest()
def softmax_of_masked():
    # As in attention: rows may be masked as a whole.
    x = random_tensor(ndim=random(2, 6).to(int))
    y = x.masked_fill(x > oneof(0, -2), float("-inf"))
    return torch.softmax(y, -1), torch.nn.functional.log_softmax(y, 0), torch.logsumexp(y, -1), torch.logaddexp(y, y)


@autotest()
def softmax_far_from_zero():
    # What all have in common does not count.
    ndim = random(1, 6).to(int)
    x = random_tensor(ndim=ndim, dtype=random_dtype(["float", "half"])) + oneof(0, 3000, -3e5)
    dim = random(-ndim, ndim).to(int)
    return torch.softmax(x, dim), torch.nn.functional.log_softmax(x, dim), torch.logsumexp(x, dim) - 3000


@autotest()
def softmin():
    x = random_tensor()
    return torch.nn.functional.softmin(x, dim=oneof(0, -1), dtype=oneof(torch.float64, nothing()))


@autotest()
def rrelu():
    # Outside training the slope is the mean of its bounds: nothing is random.
    x = random_tensor()
    return torch.nn.functional.rrelu(x, lower=random(0, 1).to(float), upper=random(1, 2).to(float), training=False)


@autotest(dtypes=(*FLOATS, "int64"))
def relu_in_place():
    # On a copy: a leaf that requires grad may not be written to.
    x = random_tensor().clone()
    return torch.nn.functional.relu(x, inplace=random_bool() | nothing())
