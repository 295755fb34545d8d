"""Hashes of samples: equal samples have equal ones, and others do not."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import torch

from ci_autotest.loader.epochs import digest_of

DIFFERENT = {
    "pair": (1, 11), "pair the other way": (11, 1), "list": [1, 11], "nested": ((1,), 11), "text": "111", "number": 111,
    "zeros": torch.zeros(2, 3), "zeros of another shape": torch.zeros(3, 2), "integers": torch.zeros(2, 3, dtype=int),
    "array": np.zeros((2, 3)), "array of another shape": np.zeros((3, 2)), "names": {"a": 1, "b": 2}, "others": {"a": 12},
}  # fmt: skip


def test_digest_of__different_samples__differ():
    found = {name: digest_of(sample) for name, sample in DIFFERENT.items()}
    assert [pair for pair in combinations(found, 2) if found[pair[0]] == found[pair[1]]] == []


def test_digest_of__equal_samples_in_other_memory__is_the_same():
    assert digest_of((torch.ones(2), [1.5, "a"])) == digest_of((torch.ones(4)[::2], [1.5, "a"]))


def test_digest_of__a_sample_that_cannot_be_read__is_empty():
    class Unreadable:
        def __repr__(self) -> str:
            raise RuntimeError

    assert digest_of(Unreadable()) == ""
