"""Random operators: tests return what does not depend on the generator, for example shape, dtype and range."""

from ci_autotest import nothing, oneof, random, random_bool, random_dtype, random_tensor, torch
from ci_autotest.suite import autotest


@autotest()
def dropout():
    # Each element is dropped, or scaled by what is left: nothing else may come out.
    p = random(0.1, 0.9).to(float)
    x = random_tensor(low=0.5, high=2)
    y = torch.nn.functional.dropout(x.detach(), p=p, training=True)
    return (y == 0) | torch.isclose(y, x.detach() * (1 / (1 - p)))


@autotest()
def dropout_evaluation():
    # Outside training the input goes through. Of a computed one: whether a leaf comes back as itself or as a view is
    # nobody's promise.
    x = random_tensor() * 2
    return torch.nn.functional.dropout(x, p=random(0, 1).to(float), training=False)


@autotest()
def dropout_certain():
    # With nothing to drop the input, with all dropped zeros.
    x = random_tensor() * 2
    return torch.nn.functional.dropout(x, p=oneof(0.0, 1.0), training=True)


@autotest()
def bernoulli():
    # Certain at 0 and 1, one of the two elsewhere.
    x = random_tensor(low=0, high=1, requires_grad=False)
    certain = torch.bernoulli(torch.round(x.detach().clamp(0, 1)))
    return certain, (torch.bernoulli(x * 0 + 0.5) - 0.5).abs()


@autotest()
def rand():
    y = torch.rand(random(0, 9).to(int), random(1, 9).to(int), dtype=random_dtype(["float", "half"]))
    return (y >= 0) & (y < 1)


@autotest()
def randn_like():
    x = random_tensor(dtype=random_dtype(["float", "half"]))
    return torch.isfinite(torch.randn_like(x))


@autotest()
def randint():
    low = random(-5, 5).to(int)
    high = low + random(1, 9).to(int)
    y = torch.randint(low, high, (random(0, 9).to(int), random(1, 9).to(int)))
    return (y >= low) & (y < high)


@autotest()
def randperm():
    # In order, it is the range.
    return torch.sort(torch.randperm(random(1, 30).to(int)))[0]


@autotest()
def multinomial():
    # As many as there are, each once: in order, they are the range.
    x = random_tensor(ndim=2, dim1=4, low=0.1, high=1, requires_grad=False)
    return torch.sort(torch.multinomial(x, 4, replacement=False), -1)[0]


@autotest()
def normal():
    # Without spread every draw is the mean.
    x = random_tensor(requires_grad=False)
    return torch.isclose(torch.normal(x, 0.0), x, equal_nan=True)


@autotest()
def feature_dropout():
    # Whole channels are dropped: the spread of zeros within one is none or all.
    channels = random(1, 6).to(int)
    x = random_tensor(dims=(random(1, 4).to(int), channels, random(1, 6).to(int), 2), low=0.5, high=2)
    y = torch.nn.functional.dropout2d(x.detach(), p=random(0.2, 0.8).to(float), training=True)
    return torch.all(y == 0, 2) == torch.any(y == 0, 2)


@autotest()
def uniform():
    # In place, within its bounds.
    x = random_tensor(dtype=random_dtype(["float", "half"]))
    y = x.detach().clone().uniform_(0, 1)
    return (y >= 0) & (y <= 1)


@autotest()
def dropouts_evaluation():
    # Outside training the input goes through: another input for each, because one tensor has one gradient.
    x = random_tensor(ndim=random(3, 6).to(int))
    p = random(0, 1).to(float) | nothing()
    drop = torch.nn.functional
    return drop.alpha_dropout(x * 2, p=p, training=False), drop.feature_alpha_dropout(x * 3, p=p, training=False)


@autotest()
def dropouts_of_channels():
    # Whole channels are dropped: the spread of zeros within one is none or all.
    x = random_tensor(dims=(random(1, 4).to(int), 3, 4), low=0.5, high=2).detach()
    y = torch.nn.functional.dropout1d(x, p=random(0.2, 0.8).to(float), training=True)
    z = torch.nn.functional.dropout3d(x.reshape(-1, 3, 1, 2, 2), p=1.0, training=True)
    return torch.all(y == 0, 2) == torch.any(y == 0, 2), z


@autotest(dtypes=None)
def gumbel_softmax():
    # Each row sums to one.
    x = random_tensor(ndim=2, low=-3, high=3)
    y = torch.nn.functional.gumbel_softmax(x.detach(), tau=random(1, 3).to(float), hard=random_bool(), dim=-1)
    return torch.isclose(y.sum(-1), torch.ones(1))


@autotest()
def poisson():
    # Of rate zero the count is zero, and no count is negative.
    x = random_tensor(low=0, high=4, requires_grad=False)
    return torch.poisson(x * 0), torch.poisson(x.clamp(0, 4)) >= 0


@autotest()
def randn():
    return torch.isfinite(
        torch.randn(random(0, 9).to(int), random(1, 9).to(int), dtype=random_dtype(["float", "half"]))
    )
