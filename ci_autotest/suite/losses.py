"""Losses: targets are class indices, probabilities, signs, or values with the input's shape."""

from ci_autotest import choice_tensor, nothing, oneof, random, random_bool, random_tensor, torch
from ci_autotest.suite import FLOATS, NUMBERS, autotest

#: Number of classes that there are at least.
LEAST = 5


@autotest()
def cross_entropy():
    # Of shape (batch, classes) or (batch, classes, size); sizes beyond the drawn rank are not used.
    ndim, batch, size = random(2, 4).to(int), oneof(random(0, 8).to(int), 33), random(1, 5).to(int)
    classes = random(LEAST, 10).to(int)
    x = random_tensor(ndim=ndim, dim0=batch, dim1=classes, dim2=size)
    target = random_tensor(ndim=ndim - 1, dim0=batch, dim1=size, low=0, high=LEAST, dtype=int)
    weight = random_tensor(ndim=1, dim0=classes, low=0, high=2, requires_grad=False)
    return torch.nn.functional.cross_entropy(
        x,
        target,
        weight=oneof(weight, nothing()),
        ignore_index=oneof(0, 2, nothing()),
        reduction=oneof("none", "mean", "sum", nothing()),
        label_smoothing=oneof(0.2, random(0, 1).to(float), nothing()),
    )


@autotest()
def nll_loss():
    ndim, batch, size = random(2, 4).to(int), oneof(random(0, 8).to(int), 33), random(1, 5).to(int)
    classes = random(LEAST, 10).to(int)
    x = random_tensor(ndim=ndim, dim0=batch, dim1=classes, dim2=size)
    target = random_tensor(ndim=ndim - 1, dim0=batch, dim1=size, low=0, high=LEAST, dtype=int)
    weight = random_tensor(ndim=1, dim0=classes, low=0, high=2, requires_grad=False)
    return torch.nn.functional.nll_loss(
        x,
        target,
        weight=oneof(weight, nothing()),
        ignore_index=random(0, LEAST).to(int) | nothing(),
        reduction=oneof("none", "mean", "sum", nothing()),
    )


@autotest()
def mse_loss():
    # At least one row: the mean over no element is not defined (NaN in torch, an error in torch.compile).
    rows, columns = random(1, 8).to(int), oneof(random(1, 8).to(int), 129)
    x = random_tensor(ndim=2, dim0=rows, dim1=columns)
    y = random_tensor(ndim=2, dim0=rows, dim1=columns)
    return torch.nn.functional.mse_loss(
        x, y, weight=oneof(x.detach().abs(), nothing()), reduction=oneof("none", "mean", "sum", nothing())
    )


@autotest(dtypes=(*FLOATS, "complex64"))
def l1_loss():
    rows, columns = random(1, 8).to(int), oneof(random(1, 8).to(int), 129)
    x = random_tensor(dims=(rows, columns))
    y = random_tensor(dims=(rows, columns))
    return torch.nn.functional.l1_loss(
        x, y, weight=oneof(x.detach().abs(), nothing()), reduction=oneof("none", "mean", "sum", nothing())
    )


@autotest()
def smooth_l1_loss():
    rows, columns = random(1, 8).to(int), oneof(random(1, 8).to(int), 33)
    x = random_tensor(dims=(rows, columns))
    y = random_tensor(dims=(rows, columns))
    return torch.nn.functional.smooth_l1_loss(
        x, y, reduction=oneof("none", "mean", "sum", nothing()), beta=random(0.1, 2).to(float) | nothing()
    )


@autotest()
def huber_loss():
    rows, columns = random(1, 8).to(int), oneof(random(1, 8).to(int), 33)
    x = random_tensor(dims=(rows, columns))
    y = random_tensor(dims=(rows, columns))
    return torch.nn.functional.huber_loss(
        x, y, reduction=oneof("none", "mean", "sum", nothing()), delta=random(0.1, 2).to(float) | nothing()
    )


@autotest()
def binary_cross_entropy():
    rows, columns = random(1, 8).to(int), random(1, 8).to(int)
    x = random_tensor(dims=(rows, columns), low=0.05, high=0.95)
    y = random_tensor(dims=(rows, columns), low=0, high=1, requires_grad=False)
    return torch.nn.functional.binary_cross_entropy(x, y, reduction=oneof("none", "mean", "sum", nothing()))


@autotest()
def binary_cross_entropy_with_logits():
    rows, columns = random(1, 8).to(int), random(1, 8).to(int)
    x = random_tensor(dims=(rows, columns), low=-5, high=5)
    y = random_tensor(dims=(rows, columns), low=0, high=1)
    weight = random_tensor(dims=(columns,), low=0, high=3, requires_grad=False)
    return torch.nn.functional.binary_cross_entropy_with_logits(
        x,
        y,
        weight=oneof(weight + 1, nothing()),
        pos_weight=oneof(weight, nothing()),
        reduction=oneof("none", "mean", "sum", nothing()),
    )


@autotest()
def classification_far_from_zero():
    rows, classes = random(1, 8).to(int), random(LEAST, 9).to(int)
    x = random_tensor(dims=(rows, classes)) * oneof(1, 100) + oneof(0, 3e5)
    target = random_tensor(dims=(rows,), low=0, high=LEAST, dtype=int)
    y = random_tensor(dims=(rows, classes), low=0, high=1, requires_grad=False)
    losses = torch.nn.functional
    return (
        losses.cross_entropy(x, target),
        losses.cross_entropy(x, torch.softmax(y, 1)),
        (losses.binary_cross_entropy_with_logits(x - 3e5, y)),
    )


@autotest()
def kl_div():
    rows, columns = random(1, 8).to(int), random(1, 8).to(int)
    x = random_tensor(dims=(rows, columns), low=-4, high=0)
    y = random_tensor(dims=(rows, columns), low=0.05, high=1)
    return torch.nn.functional.kl_div(
        x, y, reduction=oneof("none", "batchmean", "sum", nothing()), log_target=random_bool() | nothing()
    )


@autotest()
def poisson_nll_loss():
    rows, columns = random(1, 8).to(int), random(1, 8).to(int)
    x = random_tensor(dims=(rows, columns), low=0.1, high=3)
    y = random_tensor(dims=(rows, columns), low=0, high=9, requires_grad=False)
    return torch.nn.functional.poisson_nll_loss(
        x,
        y,
        log_input=random_bool() | nothing(),
        full=random_bool() | nothing(),
        reduction=oneof("none", "mean", "sum", nothing()),
    )


@autotest()
def gaussian_nll_loss():
    rows, columns = random(1, 8).to(int), random(1, 8).to(int)
    x = random_tensor(dims=(rows, columns))
    y = random_tensor(dims=(rows, columns))
    var = random_tensor(dims=(rows, oneof(1, columns)), low=0.1, high=2)
    # Of a computed value: it looks at the variances' values, and a compiler compiles what is before.
    return torch.nn.functional.gaussian_nll_loss(
        x * 2,
        y,
        var,
        eps=oneof(1e-2, nothing()),
        full=random_bool() | nothing(),
        reduction=oneof("none", "mean", "sum", nothing()),
    )


@autotest()
def hinge_embedding_loss():
    rows, columns = random(1, 8).to(int), random(1, 8).to(int)
    x = random_tensor(dims=(rows, columns), low=-2, high=2)
    sign = choice_tensor([-1.0, 1.0], (rows, columns))
    return torch.nn.functional.hinge_embedding_loss(
        x, sign, margin=random(0, 2).to(float) | nothing(), reduction=oneof("none", "mean", "sum", nothing())
    )


@autotest(dtypes=(*FLOATS, "int64"))
def margin_ranking_loss():
    size = random(1, 20).to(int)
    x, y = random_tensor(dims=(size,)), random_tensor(dims=(size,))
    sign = choice_tensor([-1.0, 1.0], size)
    return torch.nn.functional.margin_ranking_loss(
        x, y, sign, margin=random(0, 2).to(float) | nothing(), reduction=oneof("none", "mean", "sum", nothing())
    )


@autotest()
def soft_margin_loss():
    rows, columns = random(1, 8).to(int), random(1, 8).to(int)
    x = random_tensor(dims=(rows, columns), low=-3, high=3)
    sign = choice_tensor([-1.0, 1.0], (rows, columns))
    return torch.nn.functional.soft_margin_loss(x, sign, reduction=oneof("none", "mean", "sum", nothing()))


@autotest()
def cosine_embedding_loss():
    # Away from the origin: there an angle is not defined.
    rows, columns = random(1, 8).to(int), random(1, 8).to(int)
    x = random_tensor(dims=(rows, columns), low=0.5, high=2)
    y = random_tensor(dims=(rows, columns), low=-2, high=-0.5)
    sign = choice_tensor([-1.0, 1.0], rows)
    return torch.nn.functional.cosine_embedding_loss(
        x, y, sign, margin=random(-1, 1).to(float) | nothing(), reduction=oneof("none", "mean", "sum", nothing())
    )


@autotest(dtypes=NUMBERS)
def triplet_margin_loss():
    rows, columns = random(1, 8).to(int), random(1, 8).to(int)
    x, y, z = (random_tensor(dims=(rows, columns)) for _ in range(3))
    return torch.nn.functional.triplet_margin_loss(
        x,
        y,
        z,
        margin=random(1, 3).to(float) | nothing(),
        p=oneof(1.0, 3.0, nothing()),
        eps=oneof(1e-2, nothing()),
        swap=random_bool() | nothing(),
        reduction=oneof("none", "mean", "sum", nothing()),
    )


@autotest()
def multilabel_soft_margin_loss():
    rows, columns = random(1, 8).to(int), random(1, 8).to(int)
    x = random_tensor(dims=(rows, columns), low=-3, high=3)
    y = choice_tensor([0.0, 1.0], (rows, columns))
    return torch.nn.functional.multilabel_soft_margin_loss(
        x,
        y,
        weight=oneof(torch.arange(1.0, 10.0)[:columns], nothing()),
        reduction=oneof("none", "mean", "sum", nothing()),
    )


@autotest(dtypes=None)
def multi_margin_loss():
    rows, classes = random(1, 8).to(int), random(LEAST, 9).to(int)
    x = random_tensor(dims=(rows, classes))
    target = random_tensor(dims=(rows,), low=0, high=classes, dtype=int)
    return torch.nn.functional.multi_margin_loss(
        x,
        target,
        p=oneof(1, 2, nothing()),
        margin=random(0, 2).to(float) | nothing(),
        weight=oneof(torch.arange(1.0, 10.0)[:classes], nothing()),
        reduction=oneof("none", "mean", "sum", nothing()),
    )


@autotest(dtypes=None)
def ctc_loss():
    # Longer inputs than targets, so that every target has an alignment; class 0 is the blank.
    frames, batch, classes, length = random(6, 10).to(int), random(1, 4).to(int), random(3, 6).to(int), 2
    x = random_tensor(dims=(frames, batch, classes))
    targets = random_tensor(dims=(batch, length), low=1, high=classes, dtype=int)
    inputs = random_tensor(dims=(batch,), low=5, high=7, dtype=int)
    lengths = random_tensor(dims=(batch,), low=1, high=length + 1, dtype=int)
    return torch.nn.functional.ctc_loss(
        torch.nn.functional.log_softmax(x, -1),
        targets,
        inputs,
        lengths,
        blank=oneof(0, nothing()),
        zero_infinity=random_bool() | nothing(),
        reduction=oneof("none", "mean", "sum", nothing()),
    )


@autotest(dtypes=None)
def multilabel_margin_loss():
    # The labels of a row end at the first -1.
    rows, classes = random(1, 6).to(int), 4
    x = random_tensor(dims=(rows, classes))
    target = choice_tensor([-1, 0, 0, 2, 3], (rows, classes), dtype=torch.int64)
    return torch.nn.functional.multilabel_margin_loss(x, target, reduction=oneof("none", "mean", "sum", nothing()))


@autotest(dtypes=NUMBERS)
def triplet_margin_with_distance_loss():
    rows, columns = random(1, 8).to(int), random(1, 8).to(int)
    x, y, z = (random_tensor(dims=(rows, columns)) for _ in range(3))
    return torch.nn.functional.triplet_margin_with_distance_loss(
        x,
        y,
        z,
        margin=random(1, 3).to(float) | nothing(),
        swap=random_bool() | nothing(),
        reduction=oneof("none", "mean", "sum", nothing()),
    )


@autotest()
def binary_cross_entropy_at_the_ends():
    # At 0 and 1 the logarithm is cut at -100.
    rows, columns = random(1, 8).to(int), random(1, 8).to(int)
    x = choice_tensor([0.0, 0.25, 1.0], (rows, columns), requires_grad=True)
    y = choice_tensor([0.0, 1.0], (rows, columns))
    weight = random_tensor(dims=(columns,), low=0, high=3, requires_grad=False)
    return torch.nn.functional.binary_cross_entropy(x, y, weight=oneof(weight, nothing()))
