"""Cases of an entry: their order, their samples, and what generating these leaves behind."""

from __future__ import annotations

import random
from itertools import islice

import numpy as np
import torch

from ci_autotest.opinfo.database import entries
from ci_autotest.opinfo.schedule import KeptSamples, Samples, SampleSpot, ordered, spots

ADD = "torch.add"


def samples_of(name: str, seed: int = 0) -> Samples:
    return Samples(entries()[name], name, seed, KeptSamples())


def test_spots__entry_with_all_variants__samples_variants_and_other_dtypes_take_turns():
    name = "torch.gather"

    found = list(islice(spots(entries()[name], samples_of(name), ("float32", "int64", "complex64")), 9))

    assert found == [
        SampleSpot("ordinary", "float32", 0), SampleSpot("non_contiguous", "float32", 0), SampleSpot("ordinary", "int64", 0),
        SampleSpot("ordinary", "float32", 1), SampleSpot("conjugate", "complex64", 0), SampleSpot("ordinary", "complex64", 0),
        SampleSpot("ordinary", "float32", 2), SampleSpot("out", "float32", 1), SampleSpot("error_input", "", 0),
    ]  # fmt: skip


def test_spots__variants_left_out__none_of_them_is_there():
    left_out = ("non_contiguous", "in_place", "out", "conjugate", "error_input")

    found = {spot.variant for spot in spots(entries()[ADD], samples_of(ADD), ("float32", "int64"), left_out)}

    assert found == {"ordinary"}


def test_samples__asked_in_another_order__are_the_same():
    first, second = samples_of(ADD), samples_of(ADD)
    last = first.get("float32", 9).args[0]

    assert second.has("float32", 3)
    assert torch.equal(second.get("float32", 9).args[0], last)
    assert torch.equal(first.get("float32", 3).args[0], second.get("float32", 3).args[0])


def test_samples__another_root_seed__differ():
    assert not torch.equal(samples_of(ADD).get("float32", 2).args[0], samples_of(ADD, 1).get("float32", 2).args[0])


def test_samples__generated__generators_are_as_before():
    torch.manual_seed(5)
    before = torch.get_rng_state(), random.getstate(), np.random.get_bit_generator()

    samples_of(ADD).get("float32", 0)

    assert torch.equal(torch.get_rng_state(), before[0])
    assert (random.getstate(), np.random.get_bit_generator()) == before[1:]


def test_ordered__no_dtypes_wanted__float32_is_first():
    assert ordered(("bool", "float32", "int64")) == ("float32", "int64", "bool")


def test_ordered__dtypes_wanted__those_that_the_entry_has_in_that_order():
    assert ordered(("bool", "float32", "int64"), ("int64", "complex64", "bool")) == ("int64", "bool")
