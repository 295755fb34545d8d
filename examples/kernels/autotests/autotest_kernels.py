"""The tests of ``mykernels``, written against torch's API: the candidate answers these calls with the kernels."""

from ci_autotest import autotest, nothing, oneof, random, random_bool, random_tensor, torch

#: Classes, or rows, that there are at least; drawn indices stay below it.
LEAST = 5


# torch adds the gradients of weight and bias up row by row in float32.
@autotest(rtol=1e-4, atol=1e-4)
def layer_norm():
    features = random(4, 33).to(int)
    x = random_tensor(ndim=random(2, 4).to(int), dim1=features, dim2=features)
    weight = random_tensor(ndim=1, dim0=features)
    bias = random_tensor(ndim=1, dim0=features)
    return torch.nn.functional.layer_norm(
        x, (features,), oneof(weight, None), oneof(bias, None), eps=random(1e-5, 1e-2).to(float) | nothing()
    )


# Likewise.
@autotest(rtol=1e-4, atol=1e-4)
def layer_norm_of_images():
    height, width = random(2, 9).to(int), random(4, 9).to(int)
    module = torch.nn.LayerNorm((height, width), elementwise_affine=random_bool())
    return module(random_tensor(ndim=3, dim1=height, dim2=width))


@autotest()
def softmax():
    ndim = random(1, 5).to(int)
    x = random_tensor(ndim=ndim, dtype=oneof(torch.float32, torch.float64))
    return x.softmax(dim=random(-ndim, ndim).to(int))


@autotest()
def softmax_module():
    # 0 and -1 are the dimensions that every rank has, a 0-dim tensor too.
    return torch.nn.Softmax(dim=oneof(0, -1))(random_tensor())


# Without special values: torch's float32 gelu of infinity is NaN on a CPU (pytorch/pytorch#185770).
@autotest(profiles=("zero_dim", "zero_size", "size_one", "boundary", "non_contiguous", "zeros_and_ties", "large"))
def gelu():
    x = random_tensor(dtype=oneof(torch.float32, torch.float64))
    return torch.nn.functional.gelu(x, approximate=oneof("none", "tanh") | nothing())


@autotest()
def rms_norm():
    height, width = random(1, 9).to(int), random(2, 17).to(int)
    x = random_tensor(ndim=3, dim1=height, dim2=width)
    weight = random_tensor(ndim=2, dim0=height, dim1=width)
    return torch.nn.functional.rms_norm(
        x, (height, width), oneof(weight, None), eps=random(1e-6, 1e-2).to(float) | nothing()
    )


@autotest()
def cross_entropy():
    batch, classes = random(1, 17).to(int), random(LEAST, 12).to(int)
    x = random_tensor(ndim=2, dim0=batch, dim1=classes)
    target = random_tensor(ndim=1, dim0=batch, low=0, high=LEAST, dtype=int)
    weight = random_tensor(ndim=1, dim0=classes, low=0.1, high=2, requires_grad=False)
    return torch.nn.functional.cross_entropy(
        x,
        target,
        weight=oneof(weight, nothing()),
        ignore_index=random(0, LEAST).to(int) | nothing(),
        reduction=oneof("none", "mean", "sum"),
        label_smoothing=random(0, 1).to(float) | nothing(),
    )


@autotest()
def cross_entropy_of_images():
    batch, classes, height, width = 2, random(LEAST, 9).to(int), random(1, 5).to(int), random(1, 5).to(int)
    x = random_tensor(ndim=4, dim0=batch, dim1=classes, dim2=height, dim3=width)
    target = random_tensor(ndim=3, dim0=batch, dim1=height, dim2=width, low=0, high=LEAST, dtype=int)
    return torch.nn.CrossEntropyLoss(reduction=oneof("mean", "sum"))(x, target)


@autotest()
def scatter_add():
    rows, columns = random(1, 33).to(int), random(1, 8).to(int)
    x = random_tensor(ndim=2, dim0=random(LEAST, 10).to(int), dim1=columns)
    index = random_tensor(ndim=2, dim0=rows, dim1=columns, low=0, high=LEAST, dtype=int)
    return x.scatter_add(0, index, random_tensor(ndim=2, dim0=rows, dim1=columns))


# Up to 1,025 rows are summed in float32, in the backward pass from weights that are rounded differently.
@autotest(rtol=1e-4, atol=1e-4)
def attention():
    batch, keys, size = random(1, 4).to(int), random(1, 17).to(int), random(1, 17).to(int)
    query = random_tensor(ndim=3, dim0=batch, dim2=size)
    key = random_tensor(ndim=3, dim0=batch, dim1=keys, dim2=size)
    value = random_tensor(ndim=3, dim0=batch, dim1=keys)
    scores = torch.bmm(query, key.transpose(1, 2))
    return torch.bmm(torch.softmax(scores, dim=-1), value)
