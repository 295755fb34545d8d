"""Embedding: rows of a table by index."""

from ci_autotest import autotest, nothing, random, random_bool, random_tensor, torch

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
