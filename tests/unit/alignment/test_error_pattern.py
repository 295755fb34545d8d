import zlib

import numpy as np
import pytest

from ci_autotest.alignment.error_pattern import DifferingTensor, error_pattern
from ci_autotest.report.error_pattern_text import pattern_sentence
from ci_autotest.values.error_pattern import CELLS_AT_MOST, NOT_FINITE, OUTSIDE, Everything
from ci_autotest.values.tolerance import Tolerance
from tests.unit.alignment.pattern_families import SEEN, TOLERANCE, is_right, noise, planted
from tests.unit.alignment.pattern_families_kept_aside import KEPT_ASIDE

SEEDS = 20


def _map(candidate, reference, wrong, tolerance, ulps=None):
    return error_pattern(DifferingTensor(candidate, reference, wrong, {}, tolerance, ulps)).map


def _right(family, seeds=SEEDS):
    draws = (family(np.random.default_rng([zlib.crc32(family.__name__.encode()), seed])) for seed in range(seeds))
    return sum(is_right(error_pattern(each.sample), each) for each in draws)


@pytest.mark.parametrize("family", [*SEEN, *KEPT_ASIDE], ids=lambda family: family.__name__)
def test_error_pattern__planted_family__is_named(family):
    assert _right(family) >= 0.9 * SEEDS


def test_error_pattern__noise__has_no_pattern():
    found = [error_pattern(noise(np.random.default_rng([7, seed])).sample) for seed in range(100)]

    assert [each for each in found if each.region is not None or each.relation is not None] == []


def test_error_pattern__one_wrong_element_of_many__has_no_pattern():
    rng = np.random.default_rng(3)
    mask = np.zeros((40, 40), bool)
    mask[7, 9] = True

    assert error_pattern(planted(rng, rng.normal(size=mask.shape), mask).sample).region is None


@pytest.mark.parametrize("shape", [(), (1,), (3, 1, 2)])
def test_error_pattern__few_elements_all_wrong__is_everything_or_nothing(shape):
    reference = np.ones(shape)
    sample = DifferingTensor(reference + 1, reference, np.ones(shape, bool), {}, TOLERANCE)

    assert error_pattern(sample).region in {None, Everything()}


def test_error_map__levels__tell_the_wrong_elements_exactly():
    rng = np.random.default_rng(5)
    reference = rng.normal(size=(30, 40))
    tolerance = Tolerance(1e-3, 1e-3)
    candidate = reference + rng.normal(size=reference.shape) * 3e-3
    wrong = ~np.isclose(candidate, reference, rtol=1e-3, atol=1e-3)

    found = _map(candidate, reference, wrong, tolerance)

    levels = np.frombuffer(found.levels, np.uint8).reshape(found.cells)
    assert found.block == (1, 1)
    assert ((levels >= OUTSIDE) == wrong).all()
    assert sum(count for level, count in found.counts if level >= OUTSIDE) == wrong.sum()


def test_error_map__nan_in_candidate_only__is_the_farthest_level():
    candidate, reference = np.array([1.0, np.nan]), np.array([1.0, 1.0])

    found = _map(candidate, reference, np.isnan(candidate), Tolerance(1e-5, 1e-5), np.array([0, np.inf]))

    assert (found.levels, found.counts, found.ulps) == (bytes([0, NOT_FINITE]), ((0, 1), (255, 1)), ((0, 1), (64, 1)))


def test_error_map__large_tensor__shares_cells_and_counts_every_element():
    reference = np.zeros((500, 900))
    candidate = reference.copy()
    candidate[499, 899] = 1.0

    found = _map(candidate, reference, candidate > 0, Tolerance(0.0, 0.0))

    assert len(found.levels) == np.prod(found.cells) <= CELLS_AT_MOST
    assert found.levels[-1] >= OUTSIDE
    assert sum(count for _, count in found.counts) == reference.size
    assert found.is_absolute


def _tail(strays, share=1.0):
    """Return the sample of the last 24 of each row of 88, or a share of them, and of some other elements."""
    rng = np.random.default_rng(11)
    mask = np.zeros((64, 88), bool)
    mask[:, -24:] = rng.random((64, 24)) < share
    for index in strays:
        mask[index] = True
    return planted(rng, rng.normal(size=mask.shape), mask).sample


@pytest.mark.parametrize(
    ("strays", "share", "words"),
    [
        ([], 1.0, "only the last 24 of each row of 88"),
        ([(5, 3)], 1.0, "the last 24 of each row of 88, and 1 other"),
        ([(5, 3), (40, 17)], 1.0, "the last 24 of each row of 88, and 2 others"),
        ([(5, 3)], 0.7, "the last 24 of each row of 88 (1,098 of these 1,536 elements), and 1 other"),
    ],
)
def test_error_pattern__tail_and_strays__is_still_the_tail(strays, share, words):
    assert pattern_sentence(error_pattern(_tail(strays, share))).startswith(words)


def test_error_pattern__row_and_one_stray__is_still_the_row():
    rng = np.random.default_rng(12)
    mask = np.zeros((64, 88), bool)
    mask[17] = mask[40, 3] = True
    words = pattern_sentence(error_pattern(planted(rng, rng.normal(size=mask.shape), mask).sample))
    assert words.startswith("row 17 of 64, and 1 other")


def test_error_pattern__values_that_vanish__are_no_matter_of_a_bound_like_the_tolerance():
    rng = np.random.default_rng(13)
    reference = rng.uniform(0, 2e-5, size=400)
    wrong = reference > TOLERANCE.atol + TOLERANCE.rtol * reference
    sample = DifferingTensor(np.zeros(400), reference, wrong, {"x": reference}, Tolerance(1.3e-6, 1e-5))
    assert error_pattern(sample).region is None


def test_error_pattern__condition_that_most_right_elements_meet__is_none():
    rng = np.random.default_rng(14)
    reference = rng.normal(size=248)
    wrong = np.ones(248, bool)
    wrong[np.argsort(reference)[:24]] = wrong[rng.permutation(248)[:35]] = False
    sample = DifferingTensor(reference + wrong, reference, wrong, {"r": reference}, TOLERANCE)
    assert error_pattern(sample).region is None
