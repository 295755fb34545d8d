from __future__ import annotations

import random
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

from ci_autotest.loader.generators import first_numbers, held_generators, reseed, state_of

SHARED = np.random.default_rng(5)
LINE = "SHARED = np.random.default_rng(5)"


class Slotted:
    __slots__ = ("rng",)

    def __init__(self):
        self.rng = random.Random(1)  # noqa: S311 - a sample


class Holder:
    def __init__(self, held):
        self.held = held


class Module:
    def draw(self):
        return SHARED.normal()


def stream():
    rng = np.random.default_rng(0)
    while True:
        yield rng.random()


def closure():
    rng = random.Random(2)  # noqa: S311 - a sample
    return lambda: rng.random()


def begun():
    made = stream()
    next(made)
    return made


@pytest.mark.parametrize(
    ("root", "place", "kind"),
    [
        pytest.param(lambda: Holder(np.random.default_rng(0)), "self.held", "numpy.random.Generator", id="attribute"),
        pytest.param(
            lambda: Holder([1, {"a": np.random.RandomState(0)}]),
            "self.held",
            "numpy.random.RandomState",
            id="element",
        ),
        pytest.param(Slotted, "self.rng", "random.Random", id="slot"),
        pytest.param(lambda: Holder(partial(int, torch.Generator())), "self.held", "torch.Generator", id="partial"),
        pytest.param(lambda: Holder(closure()), "rng of closure.<locals>.<lambda>", "random.Random", id="closure"),
        pytest.param(begun, "rng of stream", "numpy.random.Generator", id="variable of an iterator"),
        pytest.param(Module, f"{__name__}.SHARED", "numpy.random.Generator", id="module"),
        pytest.param(lambda: Holder(Holder(Slotted())), f"self.rng of {__name__}.Slotted", "random.Random", id="deep"),
    ],
)
def test_held_generators__place(root, place, kind):
    (found,) = held_generators(dataset=root())

    assert (found.place, found.kind) == (place, kind)


@pytest.mark.parametrize(
    "held",
    [
        pytest.param(random.SystemRandom(), id="system"),
        pytest.param(torch.rand(3), id="tensor"),
        pytest.param(torch.default_generator, id="global"),
        pytest.param("rng", id="text"),
    ],
)
def test_held_generators__nothing_that_a_worker_copies__is_empty(held):
    assert held_generators(dataset=Holder(held)) == []


def test_held_generators__cycle__ends():
    one = Holder(None)
    one.held = [one, np.random.default_rng(0)]

    assert [found.access for found in held_generators(dataset=one)] == ["dataset.held[1]"]


def test_held_generators__made__is_the_line_that_makes_it():
    (found,) = held_generators(dataset=Module())
    file, _, line = found.made.rpartition(":")

    assert Path(file).read_text("utf-8").splitlines()[int(line) - 1] == LINE


@pytest.mark.parametrize(
    "make",
    [
        np.random.default_rng,
        np.random.RandomState,
        random.Random,
        lambda seed: torch.Generator().manual_seed(seed),
    ],
)
def test_first_numbers__move_no_generator(make):
    made, other = make(3), make(3)

    numbers, state = first_numbers(made), state_of(made)

    assert (state, first_numbers(made)) == (state_of(other), numbers)
    reseed(made, 4)
    assert state_of(made) != state
