"""Batches of matrices, of another number on each side or of none; vectors and numbers where matrices are usual."""

from ci_autotest import (
    choice_tensor,
    oneof,
    random_bool,
    random_dtype,
    random_tensor,
    torch,
)
from ci_autotest.suite import NUMBERS, autotest, some_of

INFINITY = float("inf")


@autotest()
def one_dimension():
    # Forms that vectors and numbers have of their own.
    size = oneof(1, 2, 5)
    x, y = random_tensor(dims=(size,)), random_tensor(dims=(size,))
    number = random_tensor(dims=())
    return some_of(
        7,
        lambda: torch.column_stack((x, y)),
        lambda: torch.hstack((x, y)),
        lambda: torch.vstack((x, y)),
        lambda: torch.dstack((x, y)),
        lambda: torch.stack((number, number)),
        lambda: torch.hstack((number, number)),
        lambda: torch.cat((x, y), -1),
        lambda: torch.block_diag(x, number),
        lambda: torch.diag(x),
        lambda: torch.inner(x, y),
        lambda: torch.inner(number, x),
        lambda: torch.matmul(x, y),
        lambda: torch.kron(x, number),
        lambda: torch.tensordot(x, y, 1),
        lambda: torch.outer(x, y),
        lambda: torch.nn.functional.linear(x, y),
        lambda: torch.atleast_2d(x),
        lambda: torch.atleast_3d(x),
        lambda: torch.column_stack((number, number)),
        lambda: torch.nn.functional.cosine_similarity(x, y, 0),
        lambda: torch.softmax(number, 0),
        lambda: torch.cumsum(number, 0),
        lambda: torch.sort(number)[0],
        lambda: torch.max(number, 0),
        lambda: torch.amax(number),
        lambda: torch.argmax(number),
        lambda: torch.flip(x, (0,)),
        lambda: torch.roll(x, oneof(-7, 0, 9)),
        lambda: torch.unbind(x),
        lambda: torch.logsumexp(number, 0),
        lambda: torch.squeeze(number),
        lambda: torch.repeat_interleave(x, oneof(0, 2)),
        lambda: torch.tril(torch.outer(x, y), oneof(-9, 9)),
        lambda: torch.prod(number, 0),
        lambda: torch.index_select(number, 0, torch.tensor([0])),
        lambda: torch.gather(number, 0, torch.tensor(0)),
        lambda: torch.nn.functional.l1_loss(number, x[0]),
        lambda: x.repeat(oneof(0, 1), 2),
    )


@autotest()
def batches_of_products():
    # Batches of another number of dimensions on each side, and of one that repeats.
    rows, inner, columns = oneof(4, 2, 1), oneof(3, 2, 1, 0), oneof(1, 2, 5)
    dtype = random_dtype(["float", "complex", "int64"])
    batches = oneof(((), (2, 3)), ((2, 1, 3), ()), ((3,), (2, 1)), ((2, 1), (1, 3)), ((1,), (4,)), ((0,), (1,))).value()
    x = random_tensor(dims=(*batches[0], rows, inner), dtype=dtype)
    y = random_tensor(dims=(*batches[1], inner, columns), dtype=dtype)
    row, column = random_tensor(dims=(inner,), dtype=dtype), random_tensor(dims=(rows,), dtype=dtype)
    single, one = torch.ones(1, dtype=dtype).expand(rows), x.sum_to_size(rows, inner)
    several = one.expand(2, rows, inner)
    return some_of(
        3,
        lambda: torch.matmul(x, y),
        lambda: torch.matmul(x, row),
        lambda: torch.matmul(row, y),
        lambda: torch.matmul(y.mT, x.mT),
        lambda: torch.einsum("...ij,...jk->...ik", x, y),
        lambda: torch.nn.functional.linear(x, y.mT.flatten(0, -2)[:2]),
        lambda: torch.linalg.multi_dot((column, one, row)),
        lambda: torch.matmul(x.mT, single),
        lambda: torch.addmv(column, one, row, beta=oneof(0, 3), alpha=oneof(0, 2)),
        lambda: torch.mv(torch.outer(row, column), single),
        lambda: torch.mv(torch.outer(column, row).mT, single),
        lambda: torch.addr(torch.outer(column, row), column, row, beta=oneof(0, 3)),
        lambda: torch.inner(x, row),
        lambda: torch.tensordot(x, row, ([-1], [0])),
        lambda: torch.baddbmm(torch.ones(1, rows, rows, dtype=dtype), several, several.mT, beta=oneof(0, 3)),
    )


@autotest()
def batches_of_systems():
    # Whole matrices, of which a function reads one triangle; batches that repeat; several sides, one, and none.
    size, columns = oneof(1, 2, 4), oneof(1, 3, 0)
    dtype = oneof(torch.float64, torch.complex128)
    batches = oneof(((), ()), ((2, 1, 2), ()), ((), (3,)), ((2, 1), (3,)), ((0,), ())).value()
    x = random_tensor(dims=(*batches[0], size, size), dtype=dtype, low=-0.3, high=0.3) + 2 * torch.eye(
        size, dtype=dtype
    )
    y = random_tensor(dims=(*batches[1], size, columns), dtype=dtype)
    upper, unitriangular, linalg = random_bool(), random_bool(), torch.linalg
    positive = x @ x.mT.conj()
    return some_of(
        6,
        lambda: linalg.solve_triangular(x, y, upper=upper, unitriangular=unitriangular),
        lambda: linalg.solve_triangular(x, y.mT, upper=upper, left=False, unitriangular=unitriangular),
        lambda: linalg.solve(x, y),
        lambda: linalg.solve(x, y.mT, left=False),
        lambda: linalg.inv(x),
        lambda: linalg.det(x),
        lambda: linalg.slogdet(x),
        lambda: linalg.matrix_exp(x),
        lambda: linalg.matrix_power(x, oneof(0, 1, 2, 3, 4, -1, -2)),
        lambda: linalg.cholesky(positive, upper=upper),
        lambda: torch.cholesky_solve(y, linalg.cholesky(positive)),
        lambda: linalg.eigvalsh(positive),
        lambda: linalg.svdvals(x),
        lambda: torch.logdet(positive.real),
        lambda: linalg.matrix_norm(x, oneof("nuc", 2, -2, "fro")),
        lambda: linalg.pinv(x),
        lambda: linalg.lu_factor(x)[0],
        lambda: torch.trace(x.reshape(-1, size)),
        lambda: linalg.cond(x.detach(), oneof(1, 2, INFINITY)),
        lambda: torch.det(x),
        lambda: torch.inverse(x),
        lambda: torch.slogdet(x),
        lambda: torch.matrix_exp(x),
        lambda: torch.matrix_power(x, oneof(2, 5, -1)),
        lambda: torch.pinverse(x),
        lambda: torch.triu(x, oneof(-1, 0, 2)),
        lambda: torch.tril(x, oneof(-1, 0, 2)),
    )


@autotest()
def singular_systems():
    # Zeros on the diagonal: infinities and zeros, in a batch and alone.
    x = choice_tensor([0.0, 1.0, -2.0], (oneof(1, 3), 3, 3), dtype=torch.float64)
    y = choice_tensor([0.0, 1.0, 3.0], (3, 2), dtype=torch.float64)
    upper, linalg = random_bool(), torch.linalg
    return some_of(
        2,
        lambda: linalg.solve_triangular(x, y, upper=upper),
        lambda: linalg.solve_triangular(x[0], y, upper=upper),
        lambda: linalg.det(x),
        lambda: linalg.slogdet(x * torch.tensor([1.0, 0, 1], dtype=x.dtype)),
        lambda: linalg.matrix_rank(x),
        lambda: linalg.pinv(x * 0),
        lambda: linalg.matrix_power(x, oneof(0, 1, 2, 4)),
        lambda: linalg.matrix_exp(x),
        lambda: linalg.inv_ex(x)[1],
        lambda: linalg.cholesky_ex(x)[1],
    )


@autotest(dtypes=NUMBERS)
def letters():
    size, other = oneof(1, 3), oneof(1, 2, 4)
    x, y = random_tensor(dims=(size, size)), random_tensor(dims=(size, other))
    z, row = random_tensor(dims=(2, size, other)), random_tensor(dims=(other,))
    return some_of(
        4,
        lambda: torch.einsum("ii->i", x),
        lambda: torch.einsum("ii", x),
        lambda: torch.einsum("ij->ji", y),
        lambda: torch.einsum("ij->", y),
        lambda: torch.einsum("i,j->ij", row, row),
        lambda: torch.einsum("bij,j->bi", z, row),
        lambda: torch.einsum("bij,ij->bij", z, y),
        lambda: torch.einsum("...ij,jk->...ik", z, y.mT),
        lambda: torch.einsum("i...,i...->...", y, y),
        lambda: torch.einsum("ij,ik,kl->jl", y, x, y),
        lambda: torch.einsum("bij,bkj->bik", z, z),
        lambda: torch.einsum("bij,bij->", z, z),
        lambda: torch.einsum("ij->j", y),
        lambda: torch.einsum("ij,jk", x, y),
        lambda: torch.tensordot(z, y, ([1, 2], [0, 1])),
        lambda: torch.tensordot(z, row, 1),
        lambda: torch.tensordot(row, row, 0),
    )
