"""Profiles: each applies to what a test leaves free, and what cannot be applied is an ordinary case."""

from __future__ import annotations

from collections import Counter

import pytest
import torch as real

from ci_autotest import oneof, random, random_tensor, torch
from ci_autotest.record.draw.profiles import (
    BOUNDARY_SIZES,
    ELEMENT_CAP,
    LARGE_SHAPES,
    LAYOUT_PROFILES,
    ORDINARY,
    PROFILES,
    SHAPE_PROFILES,
    VALUE_PROFILES,
    profile_of,
    turn_of,
)
from tests.engine import record


def free(**how):
    return lambda: random_tensor(**how) * 1


def seen(profile: str, body=None, count: int = 30) -> list[real.Tensor]:
    return [record(body or free(), case, profile=profile).trace.values[0].detach() for case in range(count)]


@pytest.mark.parametrize("profile", PROFILES)
def test_attempt__free_tensor__profile_applies(profile):
    assert record(free(), 1, profile=profile).profile == profile


def test_attempt__zero_dim__is_0_dim():
    assert {t.dim() for t in seen("zero_dim")} == {0}


def test_attempt__zero_size__has_an_empty_dimension():
    assert all(0 in t.shape for t in seen("zero_size"))


def test_attempt__size_one__has_a_dimension_of_one():
    assert all(1 in t.shape for t in seen("size_one"))


def test_attempt__boundary__has_a_boundary_size_under_the_cap():
    found = [record(free(ndim=2), case, profile="boundary") for case in range(1, 81, 2)]
    sizes = {size for a in found for size in a.trace.values[0].shape} & set(BOUNDARY_SIZES)
    assert len(sizes) > 4
    assert all(a.trace.values[0].numel() <= ELEMENT_CAP for a in found)


def test_attempt__boundary_over_the_cap__is_ordinary():
    wide = free(ndim=4, dim1=40, dim2=40, dim3=40)
    assert {record(wide, case, profile="boundary").profile for case in range(10)} == {ORDINARY}


def test_attempt__non_contiguous__takes_each_layout():
    layouts = Counter()
    for t in seen("non_contiguous", free(ndim=2, dim0=3, dim1=4), 60):
        assert not t.is_contiguous()
        expanded = 0 in t.stride()
        layouts["expanded" if expanded else "sliced" if t.storage_offset() else "transposed"] += 1
    assert set(layouts) == {"expanded", "sliced", "transposed"}


def test_attempt__non_contiguous_of_one_element__is_ordinary():
    assert record(free(ndim=1, dim0=1), profile="non_contiguous").profile == ORDINARY


def test_attempt__non_contiguous_data__are_the_same_on_a_replay():
    first, second = (record(free(), 3, profile="non_contiguous").trace.values[0] for _ in range(2))
    assert first.stride() == second.stride()
    assert real.equal(first, second)


def test_attempt__zeros_and_ties__has_few_distinct_values():
    found = real.cat([t.flatten() for t in seen("zeros_and_ties")])
    assert set(found.abs().tolist()) == {0.0, 1.0}


def test_attempt__large__is_large():
    found = real.cat([t.flatten() for t in seen("large")])
    assert 1e3 < float(found.abs().max()) <= 1e4


@pytest.mark.parametrize("dtype", [real.float32, real.float64, real.float16, real.bfloat16], ids=str)
def test_attempt__special__has_each_special_value(dtype):
    found = real.cat([t.flatten() for t in seen("special", free(dtype=dtype))])
    assert bool(found.isnan().any())
    assert bool((found == real.inf).any())
    assert bool((found == -real.inf).any())
    assert bool((found.signbit() & (found == 0)).any())


def test_attempt__special__every_tensor_has_one():
    assert all(
        bool((~t.isfinite() | (t == 0) | (t.abs() < 1e-38)).any()) for t in seen("special", free(ndim=1, dim0=2))
    )


def test_attempt__integers__have_no_special_values():
    assert record(free(dtype=int), profile="special").profile == ORDINARY


@pytest.mark.parametrize("dtype", [real.uint8, real.int8, real.int16, real.int32, real.int64], ids=str)
def test_attempt__large_integers__are_near_the_ends_and_no_float_of_their_size_holds_them(dtype):
    found = real.cat([t.flatten() for t in seen("large", free(dtype=dtype))]).tolist()
    held = real.iinfo(dtype)
    assert held.max / 4 < max(map(abs, found)) <= held.max
    float_of_the_size = {1: None, 2: real.float16, 4: real.float32, 8: real.float64}[held.bits // 8]
    if float_of_the_size is not None:
        rounded = real.tensor(found, dtype=real.int64).to(float_of_the_size).to(real.int64).tolist()
        assert rounded != found


def test_attempt__special_among_dtypes__takes_one_that_has_special_values():
    either = [
        record(lambda: random_tensor(dtype=oneof(real.int64, real.float32, real.bool)) * 1, case, profile="special")
        for case in range(12)
    ]
    assert {attempt.profile for attempt in either} == {"special"}
    assert {attempt.trace.values[0].dtype for attempt in either} == {real.float32}
    assert {attempt.draws[-1].value for attempt in either if len(attempt.draws) == 1} <= {1}


def test_attempt__special_in_one_element__is_any_of_the_special_values():
    found = [float(t) for t in seen("special", free(ndim=1, dim0=1), 60)]
    assert {"nan", "inf", "-inf"} < {str(value) for value in found}
    assert {value for value in found if value == 0 or 0 < value < 1e-38}


def test_attempt__expanded__has_an_offset_and_may_overlap():
    strides = {t.stride() for t in seen("non_contiguous", free(ndim=2, dim0=3, dim1=4), 60) if t.storage_offset()}
    assert {(0, 1), (1, 0), (1, 1)} < strides


@pytest.mark.parametrize("ndim", [4, 5])
def test_attempt__four_and_five_dimensions__may_have_the_channels_last(ndim):
    formats = {4: real.channels_last, 5: real.channels_last_3d}
    shown = seen("non_contiguous", free(ndim=ndim, dim0=2, dim1=3, dim2=4, dim3=2), 60)
    assert {t.is_contiguous(memory_format=formats[ndim]) for t in shown} == {True, False}


@pytest.mark.parametrize("profile", SHAPE_PROFILES)
def test_attempt__every_size_given__shapes_cannot_be_profiled(profile):
    attempt = record(free(ndim=2, dim0=3, dim1=random(4, 6).to(int)), profile=profile)
    assert attempt.profile == ORDINARY
    assert attempt.trace.values[0].shape[0] == 3


@pytest.mark.parametrize("dtype", [real.float32, real.float64, real.bfloat16, real.int64], ids=str)
@pytest.mark.parametrize("bounds", [(0, 3), (-4, 12), (1, 2), (-3, -1)], ids=str)
@pytest.mark.parametrize("profile", VALUE_PROFILES)
def test_attempt__range_given__values_stay_within(profile, bounds, dtype):
    low, high = bounds
    found = real.cat([t.flatten() for t in seen(profile, free(low=low, high=high, dtype=dtype), 12)])
    # A half precision rounds what is just below the upper bound to the bound itself.
    assert bool(((found >= low) & ((found <= high) if dtype is real.bfloat16 else (found < high))).all())


def test_attempt__zeros_and_ties_in_a_range__has_the_bound_and_zeros_and_few_values():
    found = real.cat([t.flatten() for t in seen("zeros_and_ties", free(low=-4, high=12))])
    assert {-4.0, 0.0} < set(found.tolist()) <= {float(value) for value in range(-4, 12)}
    narrow = real.cat([t.flatten() for t in seen("zeros_and_ties", free(low=0.5, high=0.9))])
    assert len(set(narrow.tolist())) == 4
    assert float(narrow.min()) == 0.5


def test_attempt__large_in_a_range__has_both_bounds():
    found = real.cat([t.flatten() for t in seen("large", free(low=1, high=4))])
    assert (float(found.min()), float(found.max())) == (1.0, pytest.approx(4, abs=1e-4))


@pytest.mark.parametrize(
    ("given", "special"),
    [
        pytest.param({"low": 0}, real.inf, id="open_above"),
        pytest.param({"high": 0.5}, -real.inf, id="open_below"),
    ],
)
def test_attempt__one_bound_given__other_side_is_open(given, special):
    found = real.cat([t.flatten() for t in seen("special", free(**given))])
    assert bool((found == special).any())
    assert not bool((found == -special).any() | found.isnan().any())
    assert float(real.cat([t.flatten() for t in seen("large", free(**given))]).abs().max()) > 1e3


def test_attempt__special_in_a_range_with_zero__has_a_negative_zero_and_a_denormal():
    found = real.cat([t.flatten() for t in seen("special", free(low=-1, high=1))])
    assert bool((found.signbit() & (found == 0)).any())
    assert bool(((found > 0) & (found < 1e-38)).any())


@pytest.mark.parametrize(
    ("profile", "body", "reason"),
    [
        pytest.param("special", free(low=0.5, high=2), "bounds", id="bounds"),
        pytest.param("large", free(dtype=bool), "dtype", id="dtype"),
        pytest.param("boundary", free(ndim=1, dim0=2), "fixed_sizes", id="fixed_sizes"),
        pytest.param("non_contiguous", free(ndim=1, dim0=1), "too_few_elements", id="too_few_elements"),
        pytest.param("large", lambda: torch.ones(3) * 1, "no_drawn_tensor", id="no_drawn_tensor"),
    ],
)
def test_attempt__profile_that_a_test_cannot_have__says_why(profile, body, reason):
    attempt = record(body, 1, profile=profile)
    assert (attempt.profile, attempt.unfit) == (ORDINARY, (profile, reason))


def test_attempt__profile_that_the_reference_rejected__says_so():
    allowed = {"profiles": ("zero_dim",)}
    assert record(free(), 1, number=3, **allowed).unfit == ("zero_dim", "rejected")
    assert record(free(), 1, number=0, **allowed).unfit is None


def test_profile_of__half_of_the_cases__are_ordinary():
    assert [profile_of("t", case, 0) == ORDINARY for case in range(20)] == [True, False] * 10


def test_profile_of__twenty_cases__have_each_profile_once_and_another_layout_in_three():
    counts = Counter(profile_of("t", case, 0) for case in range(20))
    assert counts == {ORDINARY: 10, **dict.fromkeys(PROFILES, 1), **dict.fromkeys(LAYOUT_PROFILES, 3)}
    turns = [turn_of("t", case) % 3 for case in range(20) if profile_of("t", case, 0) in LAYOUT_PROFILES]
    assert sorted(turns) == [0, 1, 2]


def test_profile_of__by_name__starts_elsewhere():
    assert len({profile_of(f"test_{i}", 1, 0) for i in range(40)}) == len(PROFILES)


@pytest.mark.parametrize(("attempt", "is_ordinary"), [(0, False), (2, False), (3, True), (19, True)])
def test_profile_of__third_attempt_rejected__falls_back(attempt, is_ordinary):
    assert (profile_of("t", 1, attempt) == ORDINARY) == is_ordinary


def test_profile_of__narrowed__takes_those_only():
    assert {profile_of("t", case, 0, ("special",)) for case in range(8)} == {ORDINARY, "special"}
    assert {profile_of("t", case, 0, ()) for case in range(8)} == {ORDINARY}


def test_attempt__declared_profiles__are_kept():
    found = {record(free(), case, profiles=("zero_dim",)).profile for case in range(8)}
    assert found == {ORDINARY, "zero_dim"}


def test_profiles__groups__are_all_of_them():
    assert sorted(PROFILES) == sorted((*SHAPE_PROFILES, *LAYOUT_PROFILES, *VALUE_PROFILES))


def test_attempt__profile_of_two_tensors__ordinary_case_is_as_without_profiles():
    def body():
        return torch.add(random_tensor(ndim=1, dim0=3), random_tensor(ndim=1, dim0=3))

    special, ordinary = (record(body, 5, profile=name) for name in ("special", ORDINARY))
    kept = special.sources["t0"].isfinite() & (special.sources["t0"].abs() > 1e-38)
    assert real.equal(special.sources["t0"][kept], ordinary.sources["t0"][kept])


def shapes_of(body, **how):
    attempt = record(body, profile=LARGE_SHAPES, **how)
    return [tuple(step.args[0].shape) for step in attempt.program.steps if step.op == "placeholder"], attempt.profile


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        pytest.param(lambda: torch.exp(random_tensor(ndim=1)), [(8192,)], id="one free size"),
        pytest.param(lambda: torch.exp(random_tensor(ndim=2)), [(512, 512)], id="two"),
        pytest.param(lambda: torch.exp(random_tensor(ndim=4)), [(22, 22, 22, 22)], id="four"),
        pytest.param(lambda: torch.exp(random_tensor(ndim=2, dim1=64)), [(4096, 64)], id="one of two"),
    ],
)
def test_large_shapes__free_sizes__are_large(body, expected):
    assert shapes_of(body) == (expected, LARGE_SHAPES)


def test_large_shapes__sizes_that_the_test_gives__stay():
    assert shapes_of(lambda: torch.exp(random_tensor(ndim=2, dim0=3, dim1=4))) == ([(3, 4)], "ordinary")


@pytest.mark.parametrize("case", range(4))
def test_large_shapes__a_size_drawn_for_two_tensors__grows_in_both(case: int):
    def product():
        k = random(1, 6).to(int)
        return torch.matmul(random_tensor(2, dim1=k), random_tensor(2, dim0=k))

    ((rows, inner), (same, columns)), profile = shapes_of(product, case=case)
    assert (inner, profile) == (same, LARGE_SHAPES)
    assert inner >= 64
    assert rows * inner >= 1 << 17
    assert columns == rows


@pytest.mark.parametrize(("low", "high"), [(100, 120), (1, 17)])
def test_large_shapes__a_size_drawn_from_a_large_range__stays(low: int, high: int):
    ((size, _),), _ = shapes_of(lambda: torch.exp(random_tensor(2, dim0=random(low, high).to(int))))
    assert low <= size < high


def test_large_shapes__a_number_that_is_no_size__stays():
    def chosen():
        return torch.softmax(random_tensor(ndim=3), dim=random(0, 3).to(int))

    attempt = record(chosen, profile=LARGE_SHAPES)
    assert attempt.refused is None


def test_large_shapes__of_cases__never_come_by_themselves():
    assert LARGE_SHAPES not in PROFILES
