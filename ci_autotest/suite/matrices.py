"""Matrices: factorizations, solutions, inverses, norms. Of ambiguous results, only what is unique is returned."""

from ci_autotest import (
    invertible_tensor,
    nothing,
    oneof,
    positive_definite_tensor,
    random,
    random_bool,
    random_dtype,
    random_tensor,
    symmetric_tensor,
    torch,
)
from ci_autotest.suite import FLOATS, NUMBERS, autotest


@autotest()
def inv():
    x = invertible_tensor(ndim=random(2, 4).to(int), dtype=random_dtype(["float", "complex"]))
    return torch.linalg.inv(x)


@autotest()
def det():
    x = invertible_tensor(size=random(1, 6), ndim=random(2, 4).to(int), dtype=random_dtype(["float"]))
    return torch.linalg.det(x)


@autotest()
def slogdet():
    x = invertible_tensor(ndim=random(2, 4).to(int))
    return torch.linalg.slogdet(x)


@autotest()
def solve():
    size = random(1, 8).to(int)
    x = invertible_tensor(size, dtype=torch.float64)
    y = random_tensor(ndim=2, dim0=size, dim1=oneof(size), dtype=torch.float64)
    return torch.linalg.solve(x, y, left=random_bool() | nothing())


@autotest()
def solve_triangular():
    size = random(1, 8).to(int)
    upper = random_bool()
    x = positive_definite_tensor(size) + torch.eye(size)
    y = random_tensor(ndim=2, dim0=size, dim1=oneof(size))
    return torch.linalg.solve_triangular(
        x, y, upper=upper, left=random_bool() | nothing(), unitriangular=random_bool() | nothing()
    )


@autotest()
def cholesky():
    x = positive_definite_tensor(ndim=random(2, 4).to(int), dtype=random_dtype(["float", "complex"]))
    return torch.linalg.cholesky(x, upper=random_bool())


@autotest(dtypes=None)
def cholesky_solve():
    size = random(1, 8).to(int)
    x = positive_definite_tensor(size)
    y = random_tensor(ndim=2, dim0=size)
    return torch.cholesky_solve(y, torch.linalg.cholesky(x)), torch.cholesky_solve(
        y, torch.linalg.cholesky(x, upper=True), upper=True
    )


@autotest()
def eigvalsh():
    # Values only: the sign of an eigenvector is anyone's.
    x = symmetric_tensor(ndim=random(2, 4).to(int), dtype=random_dtype(["float"]))
    return torch.linalg.eigvalsh(x, UPLO=oneof("L", "U", nothing()))


@autotest()
def svdvals():
    x = random_tensor(ndim=random(2, 4).to(int), dtype=random_dtype(["float"]))
    return torch.linalg.svdvals(x)


@autotest()
def qr():
    # The sign of each row of R is anyone's: its magnitude is not.
    size = random(1, 6).to(int)
    x = invertible_tensor(size, dtype=torch.float64)
    _, r = torch.linalg.qr(x, mode=oneof("reduced", "complete", nothing()))
    return torch.abs(torch.diagonal(r))


@autotest()
def lu_factor():
    x = invertible_tensor(ndim=random(2, 4).to(int))
    return torch.linalg.lu_factor(x)


@autotest(forms=None)
def lstsq():
    # As it is written: in the last bit MKL's results depend on where its memory lies, so those in other forms do too.
    # More rows than columns, of full rank.
    size = random(1, 6).to(int)
    x = invertible_tensor(size, dtype=torch.float64)
    y = random_tensor(dims=(2 * size, random(1, 5).to(int)), low=-1, high=1, dtype=torch.float64)
    return torch.linalg.lstsq(torch.cat([x, x]), y)[0]


@autotest(forms=("out", "second_derivatives"))
def pinv():
    # Not under autocast: torch 2.13 has no backward pass there.
    x = invertible_tensor(ndim=random(2, 4).to(int))
    return torch.linalg.pinv(x), torch.linalg.pinv(x + torch.transpose(x, -1, -2), hermitian=True)


@autotest()
def matrix_exp():
    x = symmetric_tensor(ndim=random(2, 4).to(int))
    return torch.linalg.matrix_exp(x)


@autotest()
def matrix_power():
    x = invertible_tensor(ndim=random(2, 4).to(int))
    return torch.linalg.matrix_power(x, random(-2, 4))


@autotest(dtypes=NUMBERS)
def multi_dot():
    a, b, c = random(1, 6).to(int), random(1, 6).to(int), random(1, 6).to(int)
    x = random_tensor(ndim=2, dim1=a)
    y = random_tensor(dims=(a, b))
    z = random_tensor(dims=(b, c))
    return torch.linalg.multi_dot([x, y, z])


@autotest()
def vector_norm():
    x = random_tensor(ndim=random(1, 6).to(int), dtype=random_dtype(["float", "half"]))
    return torch.linalg.vector_norm(
        x,
        ord=oneof(1, 2, 3.5, float("inf"), nothing()),
        dim=oneof(None, 0, -1, nothing()),
        dtype=oneof(torch.float64, nothing()),
        keepdim=random_bool() | nothing(),
    )


@autotest(dtypes=(*FLOATS, "complex64"))
def matrix_norm():
    x = random_tensor(ndim=random(2, 4).to(int))
    return torch.linalg.matrix_norm(
        x,
        ord=oneof("fro", "nuc", 1, float("inf"), -1, nothing()),
        dim=oneof((0, 1), (-1, 0), nothing()),
        keepdim=random_bool() | nothing(),
    )


@autotest(dtypes=NUMBERS)
def cross():
    x = random_tensor(ndim=2, dim1=3)
    y = random_tensor(ndim=2, dim0=1, dim1=3)
    return torch.linalg.cross(x, y, dim=oneof(-1, 1, nothing()))


@autotest(dtypes=None)
def vander():
    x = random_tensor(ndim=random(1, 3).to(int))
    return torch.linalg.vander(x, N=random(2, 6).to(int) | nothing())


@autotest()
def checked():
    # Each also returns whether it worked.
    x = invertible_tensor(ndim=random(2, 4).to(int))
    y = positive_definite_tensor(ndim=random(2, 4).to(int))
    check = random_bool() | nothing()
    return (
        torch.linalg.inv_ex(x, check_errors=check),
        torch.linalg.cholesky_ex(y, upper=random_bool()),
        (torch.linalg.lu_factor_ex(x, check_errors=check)),
    )


@autotest()
def lu():
    size = random(1, 6).to(int)
    x = invertible_tensor(size, dtype=torch.float64)
    y = random_tensor(ndim=2, dim0=size, dtype=torch.float64)
    factors, pivots = torch.linalg.lu_factor(x)
    return torch.linalg.lu(x), torch.linalg.lu_solve(factors, pivots, y), torch.lu_unpack(factors, pivots)


@autotest()
def solve_ex():
    size = random(1, 6).to(int)
    x = invertible_tensor(size, dtype=torch.float64)
    y = random_tensor(ndim=2, dim0=oneof(size), dim1=oneof(size), dtype=torch.float64)
    return torch.linalg.solve_ex(x, y, left=random_bool() | nothing())


@autotest()
def cholesky_inverse():
    x = positive_definite_tensor(ndim=random(2, 4).to(int), dtype=torch.float64)
    upper = random_bool()
    return (
        torch.cholesky_inverse(torch.linalg.cholesky(x, upper=upper), upper=upper),
        torch.logdet(x),
        (torch.cholesky_inverse(torch.linalg.cholesky(x))),
    )


@autotest()
def eigenvalues():
    # Values only, and of those what does not depend on their order.
    x = symmetric_tensor(dtype=torch.float64)
    y = invertible_tensor(dtype=torch.float64)
    return (
        torch.linalg.eigh(x, UPLO=oneof("L", "U", nothing()))[0],
        torch.linalg.eigvals(y.detach()).real.sum(),
        torch.linalg.svd(y, full_matrices=random_bool() | nothing())[1],
    )


@autotest()
def norm_of_any_rank():
    x = random_tensor(ndim=2, dtype=random_dtype(["float", "half"]))
    y = invertible_tensor(dtype=torch.float64)
    keepdim = random_bool() | nothing()
    return torch.linalg.norm(
        x,
        ord=oneof(1, 2.5, float("inf"), nothing()),
        dim=oneof(0, -1),
        dtype=oneof(torch.float64, nothing()),
        keepdim=keepdim,
    ), (torch.linalg.cond(y.detach(), p=oneof("fro", 1, nothing())))


@autotest()
def norms_of_zero():
    # The gradient at zero is zero.
    x = random_tensor(ndim=random(1, 3).to(int)) * oneof(0.0, 1.0)
    keepdim = random_bool()
    return (
        torch.linalg.norm(x, keepdim=keepdim), torch.norm(x), torch.norm(x, dim=-1, keepdim=keepdim),
        torch.linalg.vector_norm(x, ord=oneof(1, 2, 3, float("inf")), keepdim=keepdim), torch.dist(x, x * 1),
    )  # fmt: skip


@autotest()
def matrix_rank():
    x = invertible_tensor(ndim=random(2, 4).to(int), dtype=torch.float64)
    return torch.linalg.matrix_rank(x.detach(), hermitian=oneof(False, nothing()))


@autotest()
def tensorinv():
    x = invertible_tensor(6, dtype=torch.float64)
    y = random_tensor(dims=(2, 3), dtype=torch.float64)
    return (
        torch.linalg.tensorinv(x.reshape(2, 3, 6), ind=2),
        torch.linalg.tensorinv(x.reshape(2, 3, 3, 2)),
        torch.linalg.tensorsolve(x.reshape(2, 3, 6), y),
    )


@autotest()
def ldl_factor():
    # The factors alone are compared: the pivots are theirs.
    size = random(1, 6).to(int)
    x = positive_definite_tensor(size, dtype=torch.float64)
    y = random_tensor(ndim=2, dim0=size, dtype=torch.float64)
    factors, pivots = torch.linalg.ldl_factor(x.detach())
    return torch.linalg.ldl_solve(factors, pivots, y.detach()), torch.linalg.ldl_factor_ex(x.detach())[0]


@autotest()
def householder_product():
    x = invertible_tensor(random(1, 6).to(int), dtype=torch.float64)
    reflectors, factors = torch.geqrf(x.detach())
    return torch.abs(torch.linalg.householder_product(reflectors, factors)), torch.ormqr(
        reflectors, factors, x.detach(), left=random_bool() | nothing(), transpose=random_bool() | nothing()
    )


@autotest()
def matrices_of_any_precision():
    # What needs no factorization has half precision too.
    size = random(1, 6).to(int)
    x = random_tensor(dims=(random(1, 4).to(int), size, size))
    pivots = torch.arange(1, 7, dtype=torch.int32)[:size]
    return torch.linalg.matrix_exp(x), torch.linalg.matrix_power(x, random(0, 4)), torch.lu_unpack(x[0], pivots)
