"""Special functions, with inputs where they are defined and finite."""

from ci_autotest import nothing, random, random_dtype, random_tensor, torch
from ci_autotest.suite import autotest


@autotest()
def erf():
    x = random_tensor(low=-3, high=3, dtype=random_dtype(["float", "half"]))
    return torch.special.erf(x)


@autotest()
def erfc():
    x = random_tensor(low=-3, high=3, dtype=random_dtype(["float", "half"]))
    return torch.special.erfc(x)


@autotest()
def erfinv():
    x = random_tensor(low=-0.95, high=0.95, dtype=random_dtype(["float", "half"]))
    return torch.special.erfinv(x)


@autotest(dtypes=None)
def erfcx():
    x = random_tensor(low=-1, high=5, requires_grad=False)
    return torch.special.erfcx(x)


@autotest()
def gammaln():
    x = random_tensor(low=0.2, high=6, dtype=random_dtype(["float", "half"]))
    return torch.special.gammaln(x)


@autotest()
def digamma():
    x = random_tensor(low=0.2, high=6, dtype=random_dtype(["float", "half"]))
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
    y = random_tensor(ndim=random(0, 2).to(int), dim0=1, low=0.5, high=5)
    return torch.special.gammainc(x, y)


@autotest()
def i0():
    x = random_tensor(low=-4, high=4, dtype=random_dtype(["float", "half"]))
    return torch.special.i0(x)


@autotest()
def i0e():
    x = random_tensor(low=-4, high=4, dtype=random_dtype(["float", "half"]))
    return torch.special.i0e(x)


@autotest()
def i1():
    x = random_tensor(low=-4, high=4, dtype=random_dtype(["float"]))
    return torch.special.i1(x), torch.special.i1e(x)


@autotest()
def ndtr():
    x = random_tensor(low=-4, high=4, dtype=random_dtype(["float", "half"]))
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
    x = random_tensor(low=0.05, high=0.95, dtype=random_dtype(["float", "half"]))
    return torch.special.logit(x, eps=random(0.01, 0.2).to(float) | nothing())


@autotest()
def entr():
    # Zero and below have limits of their own.
    x = random_tensor(low=-1, high=3, dtype=random_dtype(["float", "half"]), requires_grad=False)
    y = random_tensor(low=0.05, high=3)
    return torch.special.entr(y), torch.special.entr(x)


@autotest()
def sinc():
    x = random_tensor(low=-3, high=3, dtype=random_dtype(["float", "half"]))
    return torch.special.sinc(x)


@autotest()
def xlogy():
    x = random_tensor()
    y = random_tensor(ndim=random(0, 2).to(int), dim0=1, low=0.1, high=3)
    return torch.special.xlogy(x, y)


@autotest()
def xlog1py():
    x = random_tensor()
    y = random_tensor(ndim=random(0, 2).to(int), dim0=1, low=-0.5, high=3)
    return torch.special.xlog1py(x, y)


@autotest(dtypes=None)
def zeta():
    x = random_tensor(low=1.5, high=5, requires_grad=False)
    y = random_tensor(ndim=random(0, 2).to(int), dim0=1, low=0.5, high=5)
    return torch.special.zeta(x, y)


@autotest()
def logaddexp():
    x = random_tensor(low=-5, high=5, dtype=random_dtype(["float", "half"]))
    y = random_tensor(ndim=random(0, 2).to(int), dim0=1)
    return torch.logaddexp(x, y)


@autotest()
def lgamma():
    x = random_tensor(low=0.2, high=6, dtype=random_dtype(["float", "half"]))
    return torch.lgamma(x)


@autotest()
def gammaincc():
    x = random_tensor(low=0.5, high=5, requires_grad=False)
    y = random_tensor(ndim=random(0, 2).to(int), dim0=1, low=0.5, high=5)
    return torch.special.gammaincc(x, y)


@autotest()
def bessel_functions():
    # They have no gradient.
    x = random_tensor(low=0.2, high=6, dtype=random_dtype(["float"]), requires_grad=False)
    s = torch.special
    return s.airy_ai(x), s.bessel_j0(x), s.bessel_j1(x), s.bessel_y0(x), s.bessel_y1(x), s.spherical_bessel_j0(x)


@autotest()
def modified_bessel_functions():
    x = random_tensor(low=0.2, high=6, dtype=random_dtype(["float"]), requires_grad=False)
    s = torch.special
    return (
        s.modified_bessel_i0(x), s.modified_bessel_i1(x), s.modified_bessel_k0(x), s.modified_bessel_k1(x),
        s.scaled_modified_bessel_k0(x), s.scaled_modified_bessel_k1(x),
    )  # fmt: skip


@autotest()
def chebyshev_polynomials():
    x = random_tensor(low=-1, high=1, dtype=random_dtype(["float"]), requires_grad=False)
    n, s = random(0, 5).to(int), torch.special
    return (
        s.chebyshev_polynomial_t(x, n), s.chebyshev_polynomial_u(x, n),
        s.chebyshev_polynomial_v(x, n), s.chebyshev_polynomial_w(x, n),
    )  # fmt: skip


@autotest()
def shifted_chebyshev_polynomials():
    x = random_tensor(low=0, high=1, dtype=random_dtype(["float"]), requires_grad=False)
    n, s = random(0, 5).to(int), torch.special
    return (
        s.shifted_chebyshev_polynomial_t(x, n), s.shifted_chebyshev_polynomial_u(x, n),
        s.shifted_chebyshev_polynomial_v(x, n), s.shifted_chebyshev_polynomial_w(x, n),
    )  # fmt: skip


@autotest()
def orthogonal_polynomials():
    x = random_tensor(low=-1, high=1, dtype=random_dtype(["float"]), requires_grad=False)
    n, s = random(0, 5).to(int), torch.special
    return (
        s.hermite_polynomial_h(x, n), s.hermite_polynomial_he(x, n), s.laguerre_polynomial_l(x, n),
        s.legendre_polynomial_p(x, n),
    )  # fmt: skip


@autotest()
def half_without_gradients():
    # In half precision these have a forward pass alone.
    x = random_tensor(low=-4, high=4, dtype=random_dtype(["half"]), requires_grad=False)
    return torch.special.i1(x), torch.special.i1e(x)
