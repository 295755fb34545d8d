"""Embedding: rows of a table by index, as single rows or in bags."""

from ci_autotest import index_tensor, nothing, oneof, random, random_bool, random_tensor, torch
from ci_autotest.suite import autotest

#: Number of rows that a table has at least.
LEAST = 5


@autotest()
def embedding():
    index = random_tensor(low=0, high=LEAST, dtype=int)
    table = random_tensor(ndim=2, dim0=random(LEAST, 12).to(int))
    return torch.nn.functional.embedding(
        index,
        table,
        padding_idx=random(-LEAST, LEAST).to(int) | nothing(),
        scale_grad_by_freq=random_bool() | nothing(),
    )


@autotest()
def embedding_module():
    rows = random(LEAST, 12).to(int)
    module = torch.nn.Embedding(rows, random(1, 6).to(int), padding_idx=random(0, LEAST).to(int) | nothing())
    index = index_tensor(rows, ndim=random(1, 4).to(int))
    return module(index)


@autotest()
def embedding_bag():
    # Bags of equal length: rows of a matrix of indices.
    table = random_tensor(ndim=2, dim0=random(1, 12).to(int))
    index = index_tensor(table, ndim=2)
    return torch.nn.functional.embedding_bag(
        index, table, mode=oneof("sum", "mean", "max", nothing()), scale_grad_by_freq=oneof(False, nothing())
    )


@autotest()
def embedding_bag_offsets():
    # Bags of unequal length: the first begins at 0, the second somewhere, and it may be empty.
    size = random(2, 9).to(int)
    table = random_tensor(ndim=2, dim0=random(1, 12).to(int))
    index = index_tensor(table, dims=(size,))
    offsets = torch.cumsum(random_tensor(dims=(3,), low=0, high=2, dtype=int), 0)
    return torch.nn.functional.embedding_bag(
        index, table, offsets - offsets[0], mode=oneof("sum", "mean"), padding_idx=oneof(0, nothing())
    )
