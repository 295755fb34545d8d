"""Complex numbers: real and imaginary parts, polar form, views as pairs of reals, arithmetic with reals."""

from ci_autotest import oneof, random, random_dtype, random_tensor, torch
from ci_autotest.suite import autotest


@autotest()
def complex():  # noqa: A001 - the operator's name
    rows, columns, dtype = random(1, 8).to(int), random(1, 8).to(int), random_dtype(["float"])
    return torch.complex(
        random_tensor(dims=(rows, columns), dtype=dtype), random_tensor(dims=(rows, columns), dtype=dtype)
    )


@autotest(dtypes=None)
def polar():
    rows, columns = random(1, 8).to(int), random(1, 8).to(int)
    size = random_tensor(dims=(rows, columns), low=0.1, high=3)
    return torch.polar(size, random_tensor(dims=(rows, columns), low=-3, high=3))


@autotest()
def real():
    x = random_tensor(dtype=random_dtype(["complex"]))
    return torch.real(x), x.imag


@autotest()
def angle():
    x = random_tensor(dtype=random_dtype(["float", "half", "complex"]))
    return torch.angle(x)


@autotest()
def abs():  # noqa: A001 - the operator's name
    x = random_tensor(dtype=random_dtype(["complex"]))
    return torch.abs(x)


@autotest()
def sgn():
    x = random_tensor(dtype=random_dtype(["complex"]))
    return torch.sgn(x)


@autotest()
def conj():
    # Lazy until it is read.
    x = random_tensor(dtype=random_dtype(["complex"]))
    return torch.conj(x) * x, torch.conj(x).resolve_conj()


@autotest()
def conjugate_and_negative_views():
    # Neither is computed before it is read.
    x = random_tensor(ndim=2, dtype=random_dtype(["complex"]))
    y = torch.conj(x)
    z = y.imag
    return (
        torch.sum(y), torch.cat((y, y)), y.sum_to_size(1, y.shape[1]), y + 1, y @ x.mT, torch.abs(y),
        torch.sum(z), torch.maximum(z, z * 2), torch.cumsum(z, 0), z.clone().add_(1),
    )  # fmt: skip


@autotest()
def view_as_real():
    x = random_tensor(dtype=random_dtype(["complex"]))
    return torch.view_as_real(x)


@autotest()
def view_as_complex():
    x = random_tensor(ndim=3, dim2=2, dtype=random_dtype(["float"]))
    return torch.view_as_complex(x.contiguous())


@autotest()
def complex_add():
    x = random_tensor(dtype=random_dtype(["complex"]))
    y = random_tensor(ndim=random(0, 2).to(int), dim0=1, dtype=oneof(torch.float32, torch.complex64))
    return x + y


@autotest()
def complex_div():
    x = random_tensor(dtype=random_dtype(["complex"]))
    y = random_tensor(ndim=random(0, 2).to(int), dim0=1, low=0.5, high=2, dtype=torch.complex64)
    return x / y


@autotest()
def complex_matmul():
    inner, dtype = random(1, 9).to(int), random_dtype(["complex"])
    x = random_tensor(ndim=2, dim1=inner, dtype=dtype)
    y = random_tensor(ndim=2, dim0=inner, dtype=dtype)
    return x @ y.conj()


@autotest()
def complex_sum():
    x = random_tensor(ndim=random(2, 6).to(int), dtype=random_dtype(["complex"]))
    return torch.sum(x, dim=oneof(0, -1)), torch.mean(x)


@autotest()
def conj_physical():
    x = random_tensor(dtype=random_dtype(["float", "half", "complex"]))
    y = random_tensor(dtype=random_dtype(["complex"]))
    return torch.conj_physical(x), torch.imag(y * 1j)
