"""Cases that share sizes and choices: for a candidate that compiles for every shape, with new data each time."""

from __future__ import annotations

from functools import lru_cache

import pytest

from ci_autotest import oneof, random_tensor, torch
from ci_autotest.config import shapes_of
from ci_autotest.kinds import ModuleCandidate, TorchCandidate
from ci_autotest.record.attempt import Attempts
from ci_autotest.record.declaration import Declaration
from ci_autotest.record.draw.profiles import PROFILES
from ci_autotest.values.case import pattern_of
from ci_autotest.values.case import test_key as stream_key


def body():
    """Draw two sizes, a choice, more scalars than an attempt opens with, and weights from torch's generator."""
    x = random_tensor(ndim=2)
    for _ in range(8):
        x = x * oneof(1.0, 2.0, 3.0)
    return torch.nn.Dropout(0.5)(x)


@lru_cache(maxsize=4)
def attempts(shapes: int) -> Attempts:
    return Attempts(shapes=shapes)


def attempt(case: int, shapes: int = 3, profile: str | None = "ordinary"):
    name = (stream_key(0, "a_test"), "a_test", case, 0)
    return attempts(shapes).attempt(Declaration(body), body, name, None, profile)


def choices(found) -> list[object]:
    return [draw.value for draw in found.draws]


def data(found) -> list[float]:
    return found.sources["t0"].flatten().tolist()


@pytest.mark.parametrize(("case", "other"), [(0, 6), (0, 1), (2, 9), (4, 10), (5, 4)])
def test_attempt__cases_of_one_pattern__share_choices_and_nothing_else(case, other):
    first, second = attempt(case), attempt(other)
    assert choices(first) == choices(second)
    assert data(first) != data(second)
    assert first.program.steps[-2].seed != second.program.steps[-2].seed


def test_attempt__three_sets__of_fifty_ordinary_cases():
    assert len({tuple(choices(attempt(case))) for case in range(0, 100, 2)}) == 3


def test_attempt__every_profile__few_shapes():
    shapes = {tuple(attempt(case, 3, None).sources["t0"].shape) for case in range(200)}
    # Three sets, each as it is, as four profiles of shape make it, and two with a large dimension.
    assert len(shapes) <= 17


def test_attempt__own_sets__differ_from_case_to_case():
    assert len({tuple(choices(attempt(case, 0))) for case in range(0, 100, 2)}) > 40


def test_attempt__prefetched__is_the_same():
    alone = attempt(9)
    attempts(3).prefetch(stream_key(0, "a_test"), range(8, 12))
    together = attempt(9)
    assert (choices(alone), data(alone)) == (choices(together), data(together))


def test_attempt__its_patterns_own_case__is_as_without_sharing():
    assert (choices(attempt(2)), data(attempt(2))) == (choices(attempt(2, 0)), data(attempt(2, 0)))


@pytest.mark.parametrize("profile", PROFILES)
def test_pattern_of__odd_number__each_profile_meets_every_set(profile):
    cases = [case for case in range(1, 200, 2) if PROFILES[case // 2 % len(PROFILES)] == profile]
    assert {pattern_of(case, 3) for case in cases} == {0, 2, 4}


@pytest.mark.parametrize(
    ("asked", "expected"),
    [([], 0), ([None], 0), ([5, 3], 3), ([0, 4], 4), ([0], 0)],
    ids=["no candidate", "no wish", "the fewest", "0 is no wish", "none"],
)
def test_shapes_of__candidates__fewest_that_one_asks_for(asked, expected):
    named = [TorchCandidate(name=f"c{i}", shapes=number) for i, number in enumerate(asked)]
    assert shapes_of(named) == expected


@pytest.mark.parametrize(("given", "expected"), [(None, 3), (0, 0), (7, 7)])
def test_shapes_of__jax__has_three_unless_told_otherwise(given, expected):
    assert shapes_of([ModuleCandidate(name="jax", module="jax", shapes=given)]) == expected
