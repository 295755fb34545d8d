"""How a tensor lies on ranks, held against PyTorch's own rule."""

from __future__ import annotations

import pytest
import torch

from ci_autotest.program.distribution import Distribution, fits, is_placement, local_shapes


@pytest.mark.parametrize("size", range(7))
@pytest.mark.parametrize("ranks", range(1, 6))
def test_local_shapes__shard__are_the_chunks_of_torch(size: int, ranks: int):
    chunks = torch.empty(size, 3).chunk(ranks)

    found = local_shapes((size, 3), Distribution((ranks,), ("Shard(0)",)))

    assert found == tuple((chunks[rank].shape[0] if rank < len(chunks) else 0, 3) for rank in range(ranks))


@pytest.mark.parametrize(
    ("placements", "expected"),
    [
        (("Shard(0)", "Replicate"), ((3, 4), (3, 4), (2, 4), (2, 4))),
        (("Replicate", "Shard(1)"), ((5, 2), (5, 2), (5, 2), (5, 2))),
        (("Shard(0)", "Shard(0)"), ((2, 4), (1, 4), (1, 4), (1, 4))),
        (("Shard(1)", "Partial"), ((5, 2), (5, 2), (5, 2), (5, 2))),
    ],
    ids=str,
)
def test_local_shapes__two_dimensions__are_cut_one_after_the_other(placements, expected):
    assert local_shapes((5, 4), Distribution((2, 2), placements)) == expected


@pytest.mark.parametrize(
    ("text", "expected"), [("Shard(0)", True), ("Partial", True), ("Shard(-1)", False), ("x", False)]
)
def test_is_placement(text: str, expected: bool):
    assert is_placement(text) is expected


def test_fits__dimension_that_is_not_there__does_not():
    assert not fits(Distribution((2,), ("Shard(2)",)), 2)
