"""Special functions, with inputs where they are defined and finite."""

from ci_autotest import autotest, random, random_dtype, random_tensor, torch


@autotest()
def erf():
    x = random_tensor(low=-3, high=3, dtype=random_dtype(["half", "float"]))
    return torch.special.erf(x)


@autotest()
def erfc():
    x = random_tensor(low=-3, high=3, dtype=random_dtype(["float"]))
    return torch.special.erfc(x)


@autotest()
def erfinv():
    x = random_tensor(low=-0.95, high=0.95, dtype=random_dtype(["float"]))
    return torch.special.erfinv(x)


@autotest()
def erfcx():
    x = random_tensor(low=-1, high=5, requires_grad=False)
    return torch.special.erfcx(x)


@autotest()
def gammaln():
    x = random_tensor(low=0.2, high=6, dtype=random_dtype(["float"]))
    return torch.special.gammaln(x)


@autotest()
def digamma():
    x = random_tensor(low=0.2, high=6, dtype=random_dtype(["float"]))
    return torch.special.digamma(x)


@autotest()
def polygamma():
    x = random_tensor(low=0.5, high=6)
    return torch.special.polygamma(random(0, 4), x)


@autotest()
def multigammaln():
    # Above (p - 1) / 2, where it is defined.
    x = random_tensor(low=2, high=6)
    return torch.special.multigammaln(x, random(1, 4))


@autotest()
def gammainc():
    x = random_tensor(low=0.5, high=5, requires_grad=False)
    y = random_tensor(ndim=1, dim0=1, low=0.5, high=5)
    return torch.special.gammainc(x, y)


@autotest()
def i0():
    x = random_tensor(low=-4, high=4, dtype=random_dtype(["float"]))
    return torch.special.i0(x)


@autotest()
def i0e():
    x = random_tensor(low=-4, high=4, dtype=random_dtype(["float"]))
    return torch.special.i0e(x)


@autotest()
def i1():
    x = random_tensor(low=-4, high=4, dtype=random_dtype(["float"]))
    return torch.special.i1(x)


@autotest()
def ndtr():
    x = random_tensor(low=-4, high=4, dtype=random_dtype(["float"]))
    return torch.special.ndtr(x)


@autotest()
def log_ndtr():
    x = random_tensor(low=-6, high=4, dtype=random_dtype(["float"]))
    return torch.special.log_ndtr(x)


@autotest()
def ndtri():
    x = random_tensor(low=0.05, high=0.95, dtype=random_dtype(["float"]))
    return torch.special.ndtri(x)


@autotest()
def logit():
    x = random_tensor(low=0.05, high=0.95, dtype=random_dtype(["float"]))
    return torch.special.logit(x, eps=random(0.01, 0.2).to(float))


@autotest()
def entr():
    x = random_tensor(low=0.05, high=3, dtype=random_dtype(["float"]))
    return torch.special.entr(x)


@autotest()
def sinc():
    x = random_tensor(low=-3, high=3, dtype=random_dtype(["float"]))
    return torch.special.sinc(x)


@autotest()
def xlogy():
    x = random_tensor()
    y = random_tensor(ndim=1, dim0=1, low=0.1, high=3)
    return torch.special.xlogy(x, y)


@autotest()
def xlog1py():
    x = random_tensor()
    y = random_tensor(ndim=1, dim0=1, low=-0.5, high=3)
    return torch.special.xlog1py(x, y)


@autotest()
def zeta():
    x = random_tensor(low=1.5, high=5, requires_grad=False)
    y = random_tensor(ndim=1, dim0=1, low=0.5, high=5)
    return torch.special.zeta(x, y)


@autotest()
def logaddexp():
    x = random_tensor(low=-5, high=5, dtype=random_dtype(["float"]))
    y = random_tensor(ndim=1, dim0=1)
    return torch.logaddexp(x, y)
